"""The JSON Schemas in ``configs/`` of the files of a run, an onboarding and a project.

``python -m placer.cli.schemas`` writes them into the repository in the current folder; those of
rules and packs are written with the rule reference (``placer.rules.packaging.reference``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

from placer.common.files import write_text
from placer.onboarding.manifest_fields import Manifest
from placer.optimizer.options.project import Project
from placer.results.onboarding import Summary
from placer.results.result import Result
from placer.rules.packaging.reference import schema_text

SCHEMAS: Mapping[Path, type[BaseModel]] = {
    Path("configs/onboarding.schema.json"): Manifest,
    Path("configs/onboarding.summary.schema.json"): Summary,
    Path("configs/project.schema.json"): Project,
    Path("configs/result.schema.json"): Result,
}

if __name__ == "__main__":
    for path, model in SCHEMAS.items():
        write_text(path, schema_text(model))
