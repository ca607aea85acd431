"""``placer export-qat``: a placement for training with fake quantization."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

import placer
from placer.cli.options import (
    CustomOps,
    Replace,
    Shapes,
    json_option,
    option,
    shapes_of,
    with_flags,
)

EXAMPLES = (
    "placer export-qat model.placer/placement.yaml model.onnx",
    "placer export-qat model.placer/placement.yaml exported-anew.onnx -o qat.json",
)


def export_qat_command(
    placement: Annotated[Path, typer.Argument(help="placement.yaml of the network.")],
    model: Annotated[
        Path, typer.Argument(help="The float ONNX model, exported from what is trained.")
    ],
    output: Annotated[
        Path | None, option("output", "-o", help="JSON file.", default="MODEL.qat.json")
    ] = None,
    shape: Shapes = None,
    custom_ops: CustomOps = None,  # noqa: ARG001 - loaded by its callback
    partial: Annotated[
        bool,
        typer.Option(
            "--partial",
            help="Write what is found even if the model seems to be another network.",
            rich_help_panel="Output",
        ),
    ] = False,
    replace: Replace = False,
    as_json: Annotated[bool, json_option("what is written")] = False,
) -> None:
    """Write what a placement quantizes, for quantization-aware training.

    The file says which tensors which nodes and PyTorch modules read quantized, with scales to
    begin with. Edges are found as placer apply finds them, whatever the nodes are called.
    """
    exported = placer.export_qat(
        placement, model, output, shapes=shapes_of(shape or []), partial=partial, replace=replace
    )
    for warning in exported.warnings:
        typer.echo(f"warning: {with_flags(warning)}", err=as_json)
    for lost in exported.lost:
        typer.echo(f"not found: {lost.edge}: {lost.reason}", err=as_json)
    if as_json:
        typer.echo(json.dumps(exported.to_json(), indent=2))
        return
    constants = sum(one.constant for one in exported.tensors)
    typer.echo(
        f"wrote {exported.path}: {len(exported.tensors) - constants} activations and {constants} "
        "weights and other constants"
    )
