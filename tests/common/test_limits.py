"""Limits are documented as they are."""

from dataclasses import fields
from pathlib import Path

from placer.common.limits import Limits, variable

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"


def test_the_page_has_every_limit_and_its_default():
    rows = [
        tuple(cell.strip(" `") for cell in line.split("|")[1:3])
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `")
    ]
    limits = Limits()
    assert rows == [(variable(f.name), str(getattr(limits, f.name))) for f in fields(limits)]
