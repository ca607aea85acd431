"""What is generated of the documentation: the rule reference and the JSON Schemas in ``configs/``.

``python -m tests.generated`` writes them into the repository in the current folder.
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
from placer.rules.packaging import reference

SCHEMAS: Mapping[Path, type[BaseModel]] = {
    **reference.SCHEMAS,
    Path("configs/onboarding.schema.json"): Manifest,
    Path("configs/onboarding.summary.schema.json"): Summary,
    Path("configs/project.schema.json"): Project,
    Path("configs/result.schema.json"): Result,
}


def generated() -> dict[Path, str]:
    """The text of each file, by its path in the repository."""
    schemas = {path: reference.schema_text(model) for path, model in SCHEMAS.items()}
    return {reference.PAGE: reference.reference(), **schemas}


if __name__ == "__main__":
    for path, text in generated().items():
        write_text(path, text)
