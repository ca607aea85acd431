"""``placer extract``: a region of a model as a model of its own, with data that reaches it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import placer
from placer.cli.options import SHAPE_HELP, shapes_of
from placer.errors import InputError

EXAMPLES = (
    "placer extract model.onnx --around /layer1/conv1/Conv --data calibration.npz",
    "placer extract model.onnx --inputs input --outputs features -o backbone.onnx",
)


def extract_command(
    model: Annotated[Path, typer.Argument(help="Any ONNX model, with or without Q/DQ pairs.")],
    inputs: Annotated[
        str,
        typer.Option(help="Tensors where the region begins: A,B.", show_default="graph inputs"),
    ] = "",
    outputs: Annotated[str, typer.Option(help="Tensors where the region ends: C,D.")] = "",
    around: Annotated[
        str | None, typer.Option(help="Node that the region is around, instead of its outputs.")
    ] = None,
    depth: Annotated[int, typer.Option(help="How many edges away from that node it goes.")] = 2,
    data: Annotated[
        str | None,
        typer.Option(help="Calibration data of the whole model; writes that of the region."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File.", show_default="MODEL.region.onnx"),
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help=SHAPE_HELP)] = None,
) -> None:
    """Write the part of a model between tensors or around a node, to examine it alone.

    With --data the values that reach the region are written beside it, as placer optimize takes
    them: what an engine refuses or runs slowly can be narrowed down and reported.
    """
    if (around is None) == (outputs == ""):
        raise InputError("give --outputs C,D (and --inputs A,B) or --around NODE, one of the two")
    if around is not None and inputs:
        raise InputError("--around NODE finds the inputs itself; leave out --inputs")
    region = placer.extract_region(
        model,
        output or Path(f"{model.stem}.region.onnx"),
        inputs=_names(inputs),
        outputs=_names(outputs),
        around=around,
        depth=depth,
        data=data,
        shapes=shapes_of(shape or []),
    )
    typer.echo(f"inputs: {', '.join(region.inputs)}")
    typer.echo(f"outputs: {', '.join(region.outputs)}")
    data_file = "" if region.data is None else f" and {region.data}"
    typer.echo(f"wrote {region.model} of {region.nodes} nodes{data_file}")


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]
