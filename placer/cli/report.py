"""``placer report``: the HTML report of a run or an onboarding, made from its output folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import placer

EXAMPLES = ("placer report model.placer", "placer report models.onboard -o summary.html")


def report_command(
    folder: Annotated[
        Path, typer.Argument(help="Output folder of placer optimize or placer onboard.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File.", show_default="report.html in it")
    ] = None,
) -> None:
    """Draw the report of a finished run again: one HTML file that needs no network."""
    path = placer.write_report(folder, output)
    Console().print(f"wrote {path}", highlight=False, soft_wrap=True, markup=False)
