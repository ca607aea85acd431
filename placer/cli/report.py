"""``placer report``: the HTML report of a run or an onboarding, made from its output folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import placer
from placer.cli.options import PlainReplace
from placer.cli.terminal import output_console

EXAMPLES = (
    "placer report model.placer",
    "placer report models.placer -o summary.html",
    "placer report int8.placer fp8.placer -o compared.html",
)


def report_command(
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="Output folder of placer optimize or placer onboard; several runs are compared."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File.", show_default="report.html in it, or comparison.html"
        ),
    ] = None,
    replace: PlainReplace = False,
) -> None:
    """Write the report of a finished run again, or compare runs: one HTML file."""
    if len(folders) == 1:
        path = placer.write_report(folders[0], output, replace=replace)
    else:
        page = output or Path("comparison.html")
        path = placer.write_comparison(folders, page, replace=replace)
    output_console().print(f"wrote {path}", soft_wrap=True, markup=False)
