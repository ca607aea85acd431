"""``placer init``: a project file to begin with."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

import placer
from placer.cli.options import option

EXAMPLES = ("placer init model.onnx", "placer init model.onnx --data images/ --output placer.yaml")


def init_command(
    model: Annotated[Path, typer.Argument(help="The ONNX model.")],
    data: Annotated[str | None, option("data", default="files beside the model that fit")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file to write.",
            show_default="placer.yaml beside the model",
            rich_help_panel="Output",
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Write over the file.", rich_help_panel="Output"),
    ] = False,
) -> None:
    """Write a commented placer.yaml after a look at the model, its data and this machine.

    Nothing is run. `placer optimize` in the file's folder takes its options from there.
    """
    path = placer.init_project(model, data=data, output=output, replace=replace)
    typer.echo(f"wrote {path}; now run: placer optimize --project {shlex.quote(str(path))}")
