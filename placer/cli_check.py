"""``placer check``: does NVIDIA's builder take a model."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from placer.builder import check_file, import_builder
from placer.cli_options import shapes_of
from placer.errors import InputError, RunError
from placer.trt.build import BuildReport


def check_command(
    model: Annotated[Path, typer.Argument(help="Any ONNX model, with or without Q/DQ pairs.")],
    gpu: Annotated[str, typer.Option(help="Compute capability to build for.")] = "sm89",
    shape: Annotated[
        list[str] | None, typer.Option(help="Shape of a dynamic input, e.g. image=1x3x320x320.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Parse and build a model with TensorRT-RTX, no GPU needed, and show its layers.

    Exit code 1 if it is refused, with the node and the reason.
    """
    if not model.is_file():
        raise InputError(f"{model} does not exist; give the path of an ONNX file")
    shapes = shapes_of(shape or [])
    report = check_file(import_builder(), model, gpu, shapes)
    if as_json:
        typer.echo(json.dumps(_document(report), indent=2))
    else:
        _print(report)
    if not report.accepted:
        raise RunError(f"{report.builder} refuses {model}: {report.refusals[0]}")


def _document(report: BuildReport) -> dict[str, object]:
    document = {**asdict(report), "accepted": report.accepted, "engine_bytes": len(report.engine)}
    del document["engine"]
    return document


def _print(report: BuildReport) -> None:
    console = Console()
    if report.accepted:
        table = Table(title=f"{report.builder}, {report.gpu}: {len(report.plan.layers)} layers")
        for column in ("layer", "inputs", "outputs", "ONNX nodes"):
            table.add_column(column, overflow="fold")
        for layer in report.plan.layers:
            cells = (layer.op, *map(" ".join, (layer.input_types, layer.output_types, layer.nodes)))
            table.add_row(*cells)
        console.print(table)
        console.print(f"engine of {len(report.engine)} bytes in {report.seconds:.1f} s")
    for refusal in report.refusals[1:]:
        console.print(str(refusal), highlight=False, soft_wrap=True)
