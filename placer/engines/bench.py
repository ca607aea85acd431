"""Models, or saved engines, measured in turn on one engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from placer.calibration.data_shapes import shapes_of_data
from placer.calibration.dataset import load_dataset, synthetic_dataset
from placer.common.counts import MOST_ROUNDS, MOST_THREADS, check_count
from placer.common.files import paths_of, text_of_source
from placer.common.names import unknown
from placer.common.shapes import GivenShape, ShapeRange, given_ranges, optima
from placer.common.statistics import paired_ratio
from placer.engines.abilities import LoadsEngines, abilities_of, converts_inputs, range_note
from placer.engines.base import Compiled, Engine, Tensors
from placer.engines.estimated.error import EstimateError
from placer.engines.placed_for import placed_for_others
from placer.engines.select import base_of_files, check_base, check_estimate_options, select_engine
from placer.engines.tensorrt.saved import SUFFIXES
from placer.engines.times import measured_seconds
from placer.errors import InputError
from placer.graph import index_graph, tensor_type
from placer.graph.shapes import InputType, check_ranges
from placer.model import Model, load_as_is
from placer.model.named_dimensions import with_named_dimensions
from placer.model.same_inputs import cast_inputs, check_same_inputs

LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Measured:
    """One model's latency in milliseconds and its ratio to the first model's.

    Of estimates, 80% intervals stand for the percentiles and for the 95% interval of the ratio.
    """

    model: str
    median_ms: float
    p10_ms: float
    p90_ms: float
    ratio: float
    ratio_interval: tuple[float, float]
    per_second: float


@dataclass(frozen=True)
class BenchResult:
    """What was measured, in the order given, and on what.

    ``why``: why ``auto`` took the engine, else empty. ``clock``: what latencies are, e.g. CPU
    time. ``estimated``: nothing was measured.
    """

    engine: str
    version: str
    device: str
    clock: str
    estimated: bool
    notes: tuple[str, ...]
    why: str
    models: tuple[Measured, ...]

    def to_json(self) -> dict[str, Any]:
        """For ``json.dumps``."""
        fields = asdict(self)
        del fields["why"]
        return fields


def bench(
    models: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    engine: str = "auto",
    shapes: Mapping[str, GivenShape] | None = None,
    data: str | PathLike[str] | None = None,
    rounds: int = 51,
    threads: int = 1,
    gpu: str | None = None,
    device: str | None = None,
    base: str | None = None,
    engine_options: Mapping[str, str] | None = None,
) -> BenchResult:
    """Measure ONNX models, or saved TensorRT engines, with the same inputs in interleaved rounds.

    ``data``: inputs as for ``placer.optimize``, of which the first sample is used; by default
    random ones. ``gpu``: of the engine ``fusion-model``. ``base``: the type that OpenVINO computes
    float models in; by default the one that each file names, else float.

    Raises InputError for wrong input, RunError if the engine refuses a model.
    """
    paths = paths_of(models)
    if not paths:
        raise InputError("no model is given; give at least one")
    check_count("rounds", rounds, LEAST_ROUNDS, MOST_ROUNDS)
    check_count("threads", threads, 1, MOST_THREADS)
    check_estimate_options(engine, gpu)
    source = None if data is None else text_of_source(data)
    ranges = _ranges(paths[0], given_ranges(shapes), source)
    loaded = [_read(path, ranges) for path in paths]
    networks = [model for model in loaded if isinstance(model, Model)]
    chosen, _, why = select_engine(
        engine,
        threads=threads,
        gpu=gpu,
        base=base_of_files(engine, base, [model.proto for model in networks]),
        shapes=optima(ranges),
        shape_ranges=ranges,
        device=device,
        extra=engine_options or {},
        weight_range="full",  # Files are measured as they are.
    )
    check_base(chosen, base)
    notes = [note for note in (range_note(chosen, ranges),) if note]
    notes += _given_the_same(networks, chosen)
    if engine == "auto":
        estimate = "and `engine` fusion-model with `gpu` estimates its latency"
        notes += placed_for_others(networks, chosen, "measured", estimate)
    compiled = [_compile(chosen, model, ranges) for model in loaded]
    inputs = _inputs(compiled[0][1], source)
    seconds = measured_seconds(chosen, [model for model, _ in compiled], inputs, rounds)
    error = EstimateError.of(chosen)
    same = replace(error, ratio=0.0)
    return BenchResult(
        engine=chosen.name,
        version=chosen.version,
        device=chosen.device,
        clock=chosen.clock,
        estimated=chosen.estimated,
        notes=tuple(notes),
        why=why,
        models=tuple(
            # A model takes as long as itself, whatever the error of estimates.
            _measured(path, seconds[:, [column, 0]], inputs, error if column else same)
            for column, path in enumerate(paths)
        ),
    )


def _ranges(
    path: Path, ranges: Mapping[str, ShapeRange], source: str | None
) -> Mapping[str, ShapeRange]:
    """``ranges``, and the shapes of the data where the model at ``path`` leaves others open."""
    if path.suffix in SUFFIXES:
        return ranges
    ranges = with_named_dimensions(path, ranges)
    if source is None:
        return ranges
    of_data = shapes_of_data(path, ranges, source)
    return {**{name: ShapeRange.fixed(shape) for name, shape in of_data.items()}, **ranges}


def _read(path: Path, ranges: Mapping[str, ShapeRange]) -> Model | Path:
    """The ONNX model at ``path``, or ``path`` if it is a saved engine."""
    if path.suffix not in SUFFIXES:
        model = load_as_is(path, optima(ranges))
        check_ranges(model.proto, ranges)
        return model
    if not path.is_file():
        raise InputError(f"{path} does not exist; give the path of a saved engine")
    return path


def _given_the_same(models: Sequence[Model], engine: Engine) -> list[str]:
    """Let all ``models`` take what the first one does; returns what changed in sentences."""
    notes = list[str]()
    for model in models[1:]:
        check_same_inputs(models[0], model, converted=True)
        if not converts_inputs(engine):
            notes += cast_inputs(models[0], model)
    return notes


def _compile(
    engine: Engine, model: Model | Path, ranges: Mapping[str, ShapeRange]
) -> tuple[Compiled, Model]:
    """What is measured of ``model``, and the model that its inputs are made for."""
    if isinstance(model, Model):
        return engine.compile(model.proto, model.base_dir), model
    if "saved-engines" not in abilities_of(engine) or not isinstance(engine, LoadsEngines):
        raise InputError(
            f"{model} is a saved TensorRT engine, which engine {engine.name} cannot load; "
            "give an ONNX model or choose engine tensorrt"
        )
    saved = engine.load(model)
    return saved, described(model, saved.inputs, ranges)


def described(
    path: Path, inputs: Mapping[str, InputType], ranges: Mapping[str, ShapeRange]
) -> Model:
    """A model with the inputs of the saved engine at ``path`` and no nodes, to make data for.

    ``ranges`` come before the engine's own shapes. Raises InputError if they name an
    input that it does not have.
    """
    for name in ranges:
        if name not in inputs:
            raise InputError(f"{path}, shapes: {unknown('input', name, inputs)}")
    declared = {name: spec.shape for name, spec in inputs.items()}
    shapes = {**declared, **optima(ranges)}
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(spec.dtype)), shapes[name]
        )
        for name, spec in inputs.items()
    ]
    proto = helper.make_model(helper.make_graph([], "saved", values, []))
    graph = index_graph(proto.graph, {value.name: tensor_type(value) for value in values})
    return Model(path, proto, graph, "", path.parent, shapes, ())


def _measured(path: Path, seconds: np.ndarray, inputs: Tensors, error: EstimateError) -> Measured:
    """``seconds``: of the model and of the first one, shape (rounds, 2)."""
    low, median, high = np.percentile(seconds[:, 0] * 1e3, [10, 50, 90])
    ratio = paired_ratio(seconds[:, 0], seconds[:, 1])
    low_ratio, high_ratio = error.interval(ratio.low, ratio.high)
    batch = next((value.shape[0] for value in inputs.values() if value.ndim), 1)
    return Measured(
        model=str(path),
        median_ms=float(median),
        p10_ms=float(low) / (1 + error.latency),
        p90_ms=float(high) * (1 + error.latency),
        ratio=ratio.median,
        ratio_interval=(low_ratio, high_ratio),
        per_second=batch * 1e3 / float(median),
    )


def _inputs(model: Model, data: str | None) -> Tensors:
    dataset = load_dataset(data, model) if data else synthetic_dataset(model, 1, 0)
    return next(iter(dataset)).inputs
