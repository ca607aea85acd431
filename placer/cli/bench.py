"""``placer bench`` measures models on an engine; ``placer doctor`` says which engines run here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from onnx import helper
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from placer.calibration.dataset import load_dataset, synthetic_dataset
from placer.cli.options import SHAPE_HELP, engine_options, shape_ranges_of
from placer.common.statistics import paired_ratio
from placer.engines.abilities import LoadsEngines, abilities_of, range_note
from placer.engines.base import Compiled, Engine, Tensors
from placer.engines.select import select_engine
from placer.engines.tensorrt.saved import SUFFIXES
from placer.errors import InputError
from placer.graph import index_graph, tensor_type
from placer.graph.shapes import InputType, ShapeRange, check_ranges, optima
from placer.model import Model, load_as_is


@dataclass(frozen=True)
class Measured:
    """One model's latency in milliseconds and its ratio to the first model's."""

    model: str
    median_ms: float
    p10_ms: float
    p90_ms: float
    ratio: float
    ratio_interval: tuple[float, float]
    per_second: float


def bench_command(
    models: Annotated[
        list[Path],
        typer.Argument(help="ONNX models, or saved TensorRT engines, with the same inputs."),
    ],
    engine: Annotated[str, typer.Option(help="auto, or an engine of placer doctor.")] = "auto",
    shape: Annotated[list[str] | None, typer.Option(help=SHAPE_HELP)] = None,
    data: Annotated[
        str | None, typer.Option(help="Inputs as for optimize [default: random ones].")
    ] = None,
    rounds: Annotated[int, typer.Option(min=3, help="Interleaved rounds.")] = 51,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of the engine.")] = 1,
    gpu: Annotated[str | None, typer.Option(help="GPU of fusion-model.")] = None,
    device: Annotated[str | None, typer.Option(help="Device that the engine runs on.")] = None,
    engine_option: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE for the engine, any number of times.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure models in turn on one engine: medians, spread, and ratios to the first."""
    ranges = shape_ranges_of(shape or [])
    loaded = [_read(path, ranges) for path in models]
    chosen, _, why = select_engine(
        engine,
        threads=threads,
        pack=None,
        gpu=gpu,
        base=None,
        shapes=optima(ranges),
        shape_ranges=ranges,
        device=device,
        extra=engine_options(engine_option or []),
    )
    compiled = [_compile(chosen, model, ranges) for model in loaded]
    inputs = _inputs(compiled[0][1], data)
    seconds = chosen.measure([model for model, _ in compiled], inputs, rounds)
    measured = [
        _measured(path, seconds[:, column], seconds[:, 0], inputs)
        for column, path in enumerate(models)
    ]
    notes = [note for note in [range_note(chosen, ranges)] if note is not None]
    about = {
        "engine": chosen.name,
        "version": chosen.version,
        "device": chosen.device,
        "clock": chosen.clock,
        "estimated": chosen.estimated,
        "notes": notes,
    }
    if as_json:
        typer.echo(json.dumps({**about, "models": [asdict(m) for m in measured]}, indent=2))
        return
    console = Console()
    console.print(f"{chosen.name} {chosen.version}: {escape(why)}", highlight=False, soft_wrap=True)
    for note in notes:
        console.print(f"note: {escape(note)}", highlight=False, soft_wrap=True)
    console.print(_table(measured, chosen.estimated))
    console.print(f"latency is {chosen.clock} on {escape(chosen.device)}", highlight=False)


def _read(path: Path, ranges: Mapping[str, ShapeRange]) -> Model | Path:
    """The ONNX model at ``path``, or ``path`` if it is a saved engine."""
    if path.suffix not in SUFFIXES:
        model = load_as_is(path, optima(ranges))
        check_ranges(model.proto, ranges)
        return model
    if not path.is_file():
        raise InputError(f"{path} does not exist; give the path of a saved engine")
    return path


def _compile(
    engine: Engine, model: Model | Path, ranges: Mapping[str, ShapeRange]
) -> tuple[Compiled, Model]:
    """What is measured of ``model``, and the model that its inputs are made for."""
    if isinstance(model, Model):
        return engine.compile(model.proto, model.base_dir), model
    if "saved-engines" not in abilities_of(engine) or not isinstance(engine, LoadsEngines):
        raise InputError(
            f"{model} is a saved TensorRT engine, which engine {engine.name} cannot load; "
            "give an ONNX model or --engine tensorrt"
        )
    saved = engine.load(model)
    return saved, described(model, saved.inputs, ranges)


def described(
    path: Path, inputs: Mapping[str, InputType], ranges: Mapping[str, ShapeRange]
) -> Model:
    """A model with the inputs of the saved engine at ``path`` and no nodes, to make data for.

    ``ranges`` (of --shape) come before the engine's own shapes. Raises InputError if they name an
    input that it does not have.
    """
    for name in ranges:
        if name not in inputs:
            known = ", ".join(inputs)
            raise InputError(f"--shape names unknown input '{name}'; {path} has: {known}")
    own = {name: found.shape for name, found in inputs.items()}
    shapes = {**own, **optima(ranges)}
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(found.dtype)), shapes[name]
        )
        for name, found in inputs.items()
    ]
    proto = helper.make_model(helper.make_graph([], "saved", values, []))
    graph = index_graph(proto.graph, {value.name: tensor_type(value) for value in values})
    return Model(path, proto, graph, "", path.parent, shapes, ())


def _measured(path: Path, seconds: np.ndarray, baseline: np.ndarray, inputs: Tensors) -> Measured:
    low, median, high = np.percentile(seconds * 1e3, [10, 50, 90])
    ratio = paired_ratio(seconds, baseline)
    batch = next((value.shape[0] for value in inputs.values() if value.ndim), 1)
    return Measured(
        model=str(path),
        median_ms=float(median),
        p10_ms=float(low),
        p90_ms=float(high),
        ratio=ratio.median,
        ratio_interval=(ratio.low, ratio.high),
        per_second=batch * 1e3 / float(median),
    )


def _inputs(model: Model, data: str | None) -> Tensors:
    dataset = load_dataset(data, model) if data else synthetic_dataset(model, 1, 0)
    return next(iter(dataset)).inputs


def _table(measured: list[Measured], estimated: bool) -> Table:
    kind = "estimated " if estimated else ""
    table = Table()
    columns = ("model", f"{kind}latency, ms (p10 to p90)", "ratio (95% interval)", "samples/s")
    for column in columns:
        table.add_column(column, overflow="fold")
    for entry in measured:
        low, high = entry.ratio_interval
        table.add_row(
            escape(entry.model),
            f"{entry.median_ms:.3f} ({entry.p10_ms:.3f} to {entry.p90_ms:.3f})",
            f"{entry.ratio:.3f} ({low:.3f} to {high:.3f})",
            f"{entry.per_second:.1f}",
        )
    return table
