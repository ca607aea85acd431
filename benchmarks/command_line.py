"""What the command lines of benchmarks share: help, and results as JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from placer.common.files import write_text


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser whose help shows ``description``, a script's docstring, as it is written."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def write_json(path: Path, document: object) -> None:
    """Write ``document`` to ``path``, to a temporary name first."""
    write_text(path, json.dumps(document, indent=2) + "\n")
