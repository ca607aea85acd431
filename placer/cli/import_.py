"""``placer import``: the float model behind a quantized one, its scales and its placement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

import placer
from placer.cli.options import CustomOps, Replace, Shapes, json_option, option, shapes_of
from placer.cli.terminal import output_console, table_of, table_of_counts

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.importing.api import PackComparison
    from placer.importing.ir_matching import Matched
    from placer.model.quantized import Imported, Loss
    from placer.rules.pack import Pack

MAX_ROWS = 20
EXAMPLES = (
    "placer import quantized.onnx -o model.float.onnx --pack tensorrt",
    "placer import quantized.onnx --data calibration.npz",
    "placer import nncf.xml --float model.onnx --pack openvino",
)


def import_command(
    model: Annotated[Path, typer.Argument(help="The quantized ONNX model.")],
    output: Annotated[
        Path | None, option("output", "-o", help="Float model.", default="MODEL.float.onnx")
    ] = None,
    float_model: Annotated[
        Path | None,
        typer.Option(
            "--float",
            help="Of an OpenVINO IR (.xml): the ONNX model that it was made from.",
            rich_help_panel="Model and data",
        ),
    ] = None,
    pack: Annotated[
        str, option("pack", help="Rule pack whose scheme the scales are converted to.")
    ] = "tensorrt",
    shape: Shapes = None,
    custom_ops: CustomOps = None,  # noqa: ARG001 - loaded by its callback
    data: Annotated[
        str | None,
        option(
            "data",
            help="Data on which the float model is compared with the quantized one: .npz, .npy, "
            "a folder of them or of images, or module:function.",
            default="random inputs",
        ),
    ] = None,
    replace: Replace = False,
    as_json: Annotated[bool, json_option("what was found")] = False,
) -> None:
    """Write the float model behind a quantized one, and its scales as placement.yaml.

    Takes Q/DQ pairs, QOperator nodes and dynamic quantization; with --float also what NNCF has
    written as an OpenVINO IR, which becomes a Q/DQ model. Lists what could not be kept.
    placer optimize takes the quantized model itself and keeps the scales of weights too.
    """
    result = placer.import_model(
        model,
        output,
        pack=pack,
        shapes=shapes_of(shape or []),
        data=data,
        float_model=float_model,
        replace=replace,
    )
    if as_json:
        typer.echo(json.dumps(result.to_json(), indent=2))
    else:
        _print(result.imported, result.pack, result.comparison, result.losses)
        if result.matched is not None:
            _print_matched(result.matched)
        for warning in result.warnings:
            typer.echo(f"warning: {warning}")
        typer.echo(f"on {result.compared_on}, {result.distance}")
        typer.echo(f"wrote {result.model} and {result.placement_file}")


def _print(
    imported: Imported, pack: Pack, comparison: PackComparison, losses: Sequence[Loss]
) -> None:
    console = output_console()
    name = pack.manifest.name
    counts = (
        ("scales of activations", len(imported.activations)),
        ("scales of weights", len(imported.weights)),
        ("quantized edges", len(imported.placement.edges)),
        (f"of them in the default placement of pack {name}", len(comparison.kept)),
        ("of them elsewhere", len(comparison.left)),
        (f"only in the default placement of pack {name}", len(comparison.added)),
        ("tensors there without a scale, to be calibrated", len(comparison.uncalibrated)),
    )
    console.print(table_of_counts(f"imported: {imported.source}", counts))
    if losses:
        console.print(_losses(losses, name))
    for note in imported.notes:
        console.print(f"- {note}", soft_wrap=True, markup=False)


def _print_matched(matched: Matched) -> None:
    typer.echo(
        f"found in the ONNX model: {matched.by_name} tensors by name, {matched.by_structure} by "
        f"structure; not carried over: {len(matched.unmatched)}"
    )


def _losses(losses: Sequence[Loss], pack: str) -> Table:
    hidden = len(losses) - MAX_ROWS
    more = f"{hidden} more with --json" if hidden > 0 else ""
    title = f"coarser in the scheme of pack {pack}"
    columns = ("tensor", "source", "step", "rounding noise")
    table = table_of(*columns, title=title, caption=more)
    for loss in losses[:MAX_ROWS]:
        cells = (
            loss.tensor,
            loss.source.text,
            f"{loss.step_growth:.3f} times",
            f"+{loss.decibel:.2f} dB",
        )
        table.add_row(*map(escape, cells))
    return table
