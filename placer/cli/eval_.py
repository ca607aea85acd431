"""``placer eval``: models compared with their float model."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import placer
from placer.cli.options import (
    CustomOps,
    Device,
    EngineOptions,
    OwnBase,
    Shapes,
    Threads,
    engine_options,
    json_option,
    option,
    shapes_of,
)

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.accuracy.intervals import Measure
    from placer.evaluation.evaluate import Evaluated
    from placer.evaluation.layers import Layer

MAX_LAYERS = 10
EXAMPLES = (
    "placer eval model.onnx model.placer/optimized.onnx other.onnx --data evaluation.npz",
    "placer eval model.onnx quantized.onnx --data evaluation/ --layers --json",
)


def eval_command(
    float_model: Annotated[Path, typer.Argument(help="The float ONNX model.")],
    quantized: Annotated[list[Path], typer.Argument(help="Models to compare with it.")],
    data: Annotated[str, option("data", help="Evaluation data as for optimize; all is used.")],
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Class indices, an .npy file, for data without labels.",
            rich_help_panel="Model and data",
        ),
    ] = None,
    shape: Shapes = None,
    custom_ops: CustomOps = None,  # noqa: ARG001 - loaded by its callback
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="module:function of (outputs, batch), besides the built-in ones.",
            rich_help_panel="Accuracy",
        ),
    ] = None,
    layers: Annotated[
        bool,
        typer.Option(
            "--layers",
            help="Compare intermediate tensors too, by name, on a few samples.",
            rich_help_panel="Accuracy",
        ),
    ] = False,
    engine: Annotated[
        str, option("engine", help="What the quantized models run on; placer doctor lists all.")
    ] = "onnxruntime",
    threads: Threads = 1,
    device: Device = None,
    base: OwnBase = None,
    engine_option: EngineOptions = None,
    as_json: Annotated[bool, json_option()] = False,
) -> None:
    """Compare models with their float model by all metrics, and layer by layer."""
    found = placer.evaluate(
        float_model,
        quantized,
        data=data,
        labels=labels,
        metrics=metric or (),
        shapes=shapes_of(shape or []),
        engine=engine,
        threads=threads,
        device=device,
        base=base,
        engine_options=engine_options(engine_option or []),
        layers=layers,
    )
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
        return
    console = Console()
    console.print(f"{found.samples} samples on {found.engine} {found.version}", highlight=False)
    if found.note:
        console.print(escape(found.note), highlight=False, soft_wrap=True)
    console.print(_metrics(found.models))
    for one in found.models:
        if layers:
            _print_layers(console, one)


def _metrics(models: Sequence[Evaluated]) -> Table:
    """A row for each metric of each part, a column for each model."""
    table = Table(caption="in brackets 95% by bootstrap over samples")
    for column in ("metric", "of", *(one.model for one in models)):
        table.add_column(escape(column), overflow="fold")
    by_model = [{(m.metric, m.where): m for m in one.measures} for one in models]
    for metric, where in by_model[0]:
        cells = [_cell(measured.get((metric, where))) for measured in by_model]
        table.add_row(metric, escape(where), *map(escape, cells))
    return table


def _cell(measure: Measure | None) -> str:
    if measure is None:
        return ""
    value = _number(measure.value)
    if measure.interval is None:
        return value
    low, high = measure.interval
    return f"{value} ({_number(low)} to {_number(high)})"


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def _print_layers(console: Console, one: Evaluated) -> None:
    if not one.layers:
        console.print(f"{escape(one.model)}: no tensor has a name that the float model has")
        return
    wrong = one.first_wrong
    text = "none goes wrong" if wrong is None else f"the first that goes wrong is {wrong.tensor}"
    console.print(
        f"{escape(one.model)}: {len(one.layers)} tensors compared, {escape(text)}",
        highlight=False,
        soft_wrap=True,
    )
    lossy = [layer for layer in one.layers if layer.own is not None and layer.own > 0]
    table = Table(title="where most is lost")
    for column in ("tensor", "operator", "SQNR, dB", "of its inputs, dB", "lost, dB"):
        table.add_column(column, overflow="fold")
    for layer in sorted(lossy, key=_own, reverse=True)[:MAX_LAYERS]:
        table.add_row(
            escape(layer.tensor),
            layer.op,
            f"{layer.sqnr:.1f}",
            f"{layer.before:.1f}",
            f"{_own(layer):.1f}",
        )
    console.print(table)


def _own(layer: Layer) -> float:
    return layer.own or 0.0
