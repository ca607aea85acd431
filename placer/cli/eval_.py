"""``placer eval``: models compared with their float model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
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
    with_flags,
)
from placer.cli.terminal import output_console, table_of
from placer.errors import GateError
from placer.results.gate_values import gate_value

if TYPE_CHECKING:  # Help is shown without what takes long to import.
    from placer.accuracy.gates import GateResult
    from placer.accuracy.intervals import Measure
    from placer.evaluation.layers import Layer
    from placer.evaluation.results import Evaluated

MAX_LAYERS = 10
LOW_DB = 10.0
EXAMPLES = (
    "placer eval model.onnx model.placer/optimized.onnx other.onnx --data evaluation.npz",
    "placer eval model.onnx quantized.onnx --data evaluation/ --layers --json",
    "placer eval model.onnx model.applied/optimized.onnx --data evaluation/ --gate 'sqnr>=20'",
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
    gate: Annotated[
        list[str] | None,
        typer.Option(
            help="Condition that each model must meet, as for optimize: exit code 3 if one does "
            "not; any number of times.",
            rich_help_panel="Accuracy",
        ),
    ] = None,
    layers: Annotated[
        bool,
        typer.Option(
            "--layers",
            help="Compare intermediate tensors too, on a few samples.",
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
    """Compare models with their float model by all metrics, and layer by layer.

    Exit codes: 0 done, 1 a model did not run, 2 wrong input, 3 a model misses a gate.
    """
    evaluation = placer.evaluate(
        float_model,
        quantized,
        data=data,
        labels=labels,
        metrics=metric or (),
        gates=gate or (),
        shapes=shapes_of(shape or []),
        engine=engine,
        threads=threads,
        device=device,
        base=base,
        engine_options=engine_options(engine_option or []),
        layers=layers,
    )
    if as_json:
        typer.echo(json.dumps(evaluation.to_json(), indent=2))
    else:
        _print(evaluation, layers=layers)
    _refuse_missed(evaluation.models)


def _refuse_missed(models: Sequence[Evaluated]) -> None:
    """Raise GateError if a model misses a gate."""
    missed = [
        f"{one.model} misses {gate.gate}: {_value(gate)} of {gate.where}"
        for one in models
        for gate in one.gates
        if not gate.passed
    ]
    if missed:
        raise GateError("; ".join(missed))


def _print(evaluation: placer.EvalResult, *, layers: bool) -> None:
    console = output_console()
    samples = f"{evaluation.samples} sample{'s' if evaluation.samples != 1 else ''}"
    console.print(f"{samples} on {evaluation.engine} {evaluation.version}")
    if evaluation.note:
        console.print(escape(with_flags(evaluation.note)), soft_wrap=True)
    console.print(_metrics(evaluation.models))
    for one in evaluation.models:
        if layers:
            _print_layers(console, one)
        for note in one.notes or (() if layers else _worst(one)):
            console.print(f"{escape(one.model)}: {escape(note)}", soft_wrap=True)


def _metrics(models: Sequence[Evaluated]) -> Table:
    """A row for each metric of each part, a column for each model."""
    columns = ("metric", "of", *(one.model for one in models))
    table = table_of(*columns, caption="in parentheses: 95% intervals")
    by_model = [{(m.metric, m.where): m for m in one.measures} for one in models]
    for metric, where in by_model[0]:
        cells = [_cell(measured.get((metric, where))) for measured in by_model]
        table.add_row(metric, escape(where), *map(escape, cells))
    for place, gate in enumerate(models[0].gates):
        held = [one.gates[place] for one in models]
        where = ", ".join(dict.fromkeys(value.where for value in held))
        table.add_row(f"gate {escape(gate.gate)}", escape(where), *map(_held, held))
    return table


def _held(gate: GateResult) -> str:
    return f"{_value(gate)} {'ok' if gate.passed else 'missed'}"


def _value(gate: GateResult) -> str:
    return gate_value(gate.value, passed=gate.passed, digits=6)


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


def _worst(one: Evaluated) -> Iterator[str]:
    """What is nearly lost of the outputs, and what tells where."""
    found = [measure for measure in one.measures if measure.metric == "sqnr"]
    worst = min(found, key=lambda measure: measure.value, default=None)
    if worst is not None and worst.value < LOW_DB:
        yield f"{worst.where} keeps {worst.value:.3g} dB only; --layers tells where it is lost"


def _print_layers(console: Console, one: Evaluated) -> None:
    if not one.layers:
        console.print(f"{escape(one.model)}: no tensor of the float model was found in it")
        return
    wrong = one.first_wrong
    text = "none goes wrong" if wrong is None else f"the first that goes wrong is {wrong.tensor}"
    console.print(
        f"{escape(one.model)}: {len(one.layers)} tensors compared, {escape(text)}", soft_wrap=True
    )
    lossy = [layer for layer in one.layers if layer.own is not None and layer.own > 0]
    columns = ("tensor", "operator", "SQNR, dB", "of its inputs, dB", "lost, dB")
    table = table_of(*columns, title="where most is lost")
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
