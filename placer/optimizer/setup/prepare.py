"""A request loaded and checked, before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from onnx import TensorProto

from placer.accuracy.evaluator import check_gates
from placer.accuracy.gates import FLOAT_METRICS, METRICS, Gate, default_gates
from placer.accuracy.latency_gates import parse_beats
from placer.calibration.data_shapes import shapes_of_data
from placer.calibration.dataset import (
    Dataset,
    calibration_and_evaluation,
    load_dataset,
    synthetic_dataset,
)
from placer.engines.abilities import range_note, target_of
from placer.engines.base import Engine, Tensors
from placer.engines.isolation import IsolatedEngine
from placer.errors import InputError
from placer.graph.bodies import bodies_of
from placer.graph.port_arithmetic import numeric_outputs
from placer.graph.shapes import ShapeRange, check_ranges, optima
from placer.graph.training import note_on_training
from placer.importing.same_function import check_same_function
from placer.importing.source_model import Distance, recovered
from placer.model import Model, load_model
from placer.model.judged import judged_by
from placer.model.named_dimensions import with_named_dimensions
from placer.model.passes.fused_operators import note_on_layouts
from placer.optimizer.observer import Observer
from placer.optimizer.options.option_values import check_values
from placer.optimizer.options.presets import Preset, load_preset
from placer.optimizer.options.request import Base, Request
from placer.optimizer.setup.bodies_run import bodies_run
from placer.optimizer.setup.chosen_engine import check_engine, engine_for, first_device
from placer.optimizer.setup.chosen_nodes import check_forced, chosen_sites
from placer.optimizer.setup.decisions import (
    note_on_half_precision,
    pins_of,
    quantizable_sites,
    scalable_sites,
    space_of,
)
from placer.optimizer.setup.default_layouts import default_layouts
from placer.optimizer.setup.latency_baselines import implicit_engine
from placer.optimizer.setup.task import Schemes, Task
from placer.optimizer.setup.warm_start import warm_starts
from placer.optimizer.time_limit import TimeLimit
from placer.prediction.explanation.unpredicted import lacking
from placer.qdq.opset import FLOAT8_OPSET, with_opset
from placer.quantization.overrides import Pins
from placer.recovery.recover import steps_of
from placer.rules.matcher import Matches
from placer.rules.pack import Pack
from placer.rules.sites import Site, find_sites_with_overlaps
from placer.search.space import Space

SYNTHETIC_SAMPLES = 16


def prepare(
    request: Request,
    observer: Observer,
    bases: Sequence[Base] = (),
    schemes: Schemes = (),
    limit: TimeLimit | None = None,
) -> Task:
    """Load and check everything that ``request`` names; writes nothing.

    ``bases``, ``schemes``: those that ``base`` and ``scheme`` auto stand for, see ``Task``.
    ``limit``: of the run's time, which else begins now.
    Raises InputError for the first thing that is wrong.
    """
    limit = limit or TimeLimit.begun(request.timeout)
    check_values(request)
    preset = load_preset(request.preset)
    beats = parse_beats(request.beats)
    observer.stage(f"loading {request.model}")
    warnings: list[str] = []

    def warn(text: str) -> None:
        warnings.append(text)
        observer.warn(text)

    request = _with_shapes_of_data(request, observer)
    engine, pack = _engine_of(request, bases, schemes, observer, warn)
    if "implicit" in beats:
        implicit_engine(engine)
    source = _source(request, engine, pack, preset, observer, warn)
    request = _without_recovery(request, source.model, warn)
    found = _decisions(request, engine, pack, source, observer, warn)
    space = replace(found.space, bases=tuple(bases))
    return Task(
        request=request,
        preset=preset,
        model=source.model,
        pack=pack,
        engine=engine,
        matches=found.matches,
        sites=found.sites,
        space=space,
        gates=source.gates,
        calibration_data=source.calibration_data,
        evaluation_data=source.evaluation_data,
        warnings=tuple(warnings),
        beats=beats,
        from_quantized=source.from_quantized,
        source_sqnr=source.sqnr,
        warm_starts=warm_starts(request.warm_starts, source.model, space, pack.manifest.scheme),
        bases=tuple(bases),
        schemes=schemes,
        pins=found.pins,
        inputs=found.inputs,
        limit=limit,
    )


# Kinds of outputs that hold a tensor; none is declared behind custom operators.
_TENSORS = ("tensor_type", "sparse_tensor_type", None)
_OWN_GATE = (
    "export its scores as a tensor (scikit-learn: options={'zipmap': False}), or give a gate of "
    "your own"
)


def _engine_of(
    request: Request,
    bases: Sequence[Base],
    schemes: Schemes,
    observer: Observer,
    warn: Callable[[str], None],
) -> tuple[Engine, Pack]:
    """The engine of the run and its rules, once the user knows which and why."""
    engine, pack, why = engine_for(request, first_device(request), bases, schemes)
    reason = f": {why}" if why else ""
    observer.stage(f"engine {engine.name} {engine.version} on {engine.device}{reason}")
    check_engine(request, engine, pack, warn)
    if isinstance(engine, IsolatedEngine):  # Its process starts while the model is loaded.
        engine.begin()
    return engine, pack


def _model_for(request: Request, engine: Engine, pack: Pack, warn: Callable[[str], None]) -> Model:
    """The model in the shapes that ``engine`` builds for."""
    shapes, bodies = optima(request.shape_ranges), pack.enters_bodies
    model = load_model(request.model, shapes, fix=request.fix, bodies=bodies).as_written()
    check_ranges(model.proto, request.shape_ranges)
    note = range_note(engine, request.shape_ranges)
    if note is not None:
        warn(note)
    return model


@dataclass(frozen=True)
class _Source:
    """The float model of a run with its data and gates; ``sqnr``: ``Task.source_sqnr``."""

    model: Model
    calibration_data: Dataset
    evaluation_data: Dataset
    gates: tuple[Gate, ...]
    from_quantized: bool
    sqnr: float | None = None


def _source(
    request: Request,
    engine: Engine,
    pack: Pack,
    preset: Preset,
    observer: Observer,
    warn: Callable[[str], None],
) -> _Source:
    """What is decided on, and what it is judged by."""
    model = _model_for(request, engine, pack, warn)
    calibration_data, evaluation_data = _datasets(request, model, preset, warn)
    gates = _gates(request, model, evaluation_data, observer)
    notes = (note_on_training(model.graph), note_on_layouts(model.graph))
    for text in (*notes, judged_by(model).note(), _unjudged(model, gates)):
        if text is not None:
            warn(text)
    distance, from_quantized = None, model.imported is not None
    if from_quantized:
        observer.stage("comparing the recovered float model with the quantized one")
        model, found = recovered(model, calibration_data, preset.noise_samples)
        model, distance = _taken_apart(request, model, found, pack, warn), found.sqnr
    elif note := check_same_function(model, calibration_data):
        warn(note)
    if pack.manifest.scheme.has_float8:
        model = with_opset(model, FLOAT8_OPSET)
    return _Source(model, calibration_data, evaluation_data, gates, from_quantized, distance)


@dataclass(frozen=True)
class _Decisions:
    """What is to be decided on a model; ``inputs``: what latency is measured on."""

    matches: Matches
    sites: tuple[Site, ...]
    space: Space
    pins: Pins
    inputs: Tensors


def _decisions(
    request: Request,
    engine: Engine,
    pack: Pack,
    source: _Source,
    observer: Observer,
    warn: Callable[[str], None],
) -> _Decisions:
    """The sites that can be quantized, and what of them the user leaves open."""
    model, data = source.model, (source.calibration_data, source.evaluation_data)
    formats = pack.manifest.scheme.formats
    target = pack.target(target_of(engine))
    matches = Matches(model.graph, target.processor)
    all_sites, _ = find_sites_with_overlaps(matches, pack.rules, target, formats)
    for text in (
        lacking(model.graph, pack.manifest),
        note_on_half_precision(all_sites, model, pack),
    ):
        if text:
            warn(text)
    unfit: list[str] = []
    sites = quantizable_sites(all_sites, model, pack, unfit.append)
    sites = scalable_sites(sites, model, data, unfit.append)
    for text in unfit:
        warn(text)
    ran = bodies_run(model, *data, warn)
    sites, needed = chosen_sites(ran.sites(sites), model.graph, pack, request, observer)
    sites = default_layouts(matches, sites, pack, engine, request, observer)
    note = _note_on_bodies(model, *data)
    space = space_of(sites, model, pack, note or ran.note or _or_nothing(unfit))
    check_forced(space, needed)
    pins = pins_of(request, sites, model, pack)
    if note:
        warn(note)
    return _Decisions(matches, sites, replace(space, per_tensor=pins.per_tensor), pins, ran.inputs)


def _or_nothing(unfit: Sequence[str]) -> str:
    return unfit[-1] if unfit else "there is nothing to do"


def _without_recovery(request: Request, model: Model, warn: Callable[[str], None]) -> Request:
    """``request`` as it is, or without recovery, which goes through a network layer by layer."""
    if not model.graph.scopes or not steps_of(request.recover):
        return request
    warn("nothing is recovered: recovery does not enter the bodies of If, Loop and Scan")
    return replace(request, recover=())


def _gates(
    request: Request, model: Model, evaluation_data: Dataset, observer: Observer
) -> tuple[Gate, ...]:
    judged = judged_by(model).graph
    others = _no_tensors(model)
    types = [judged.type_of(output).dtype for output in judged.outputs if output not in others]
    has_floats = None in types or bool(numeric_outputs(judged) - others)
    asked = tuple(Gate.parse(text) for text in request.gates)
    if not asked and all(dtype == TensorProto.STRING for dtype in types):
        raise InputError(
            f"{model.path} has no output that a metric compares, but text, sequences or maps only; "
            + _OWN_GATE
        )
    gates = asked or default_gates(evaluation_data.has_labels, has_floats)
    outputs = tuple(dict.fromkeys((*model.graph.outputs, *judged.outputs)))
    check_gates(gates, outputs, evaluation_data.has_labels)
    on_floats = [gate for gate in gates if gate.metric in FLOAT_METRICS and not has_floats]
    if on_floats:
        raise InputError(
            f"gate {on_floats[0].text()} needs a float output, which the model does not have; use "
            "argmax_agreement, the share of values that stay as they are"
        )
    if not (asked or has_floats or evaluation_data.has_labels):
        observer.stage(f"gate {gates[0].text()}, as the model has no float output")
    return gates


def _no_tensors(model: Model) -> frozenset[str]:
    """Sequences and maps, as of scikit-learn's classifiers, which no metric compares."""
    declared = model.proto.graph.output
    return frozenset(v.name for v in declared if v.type.WhichOneof("value") not in _TENSORS)


def _unjudged(model: Model, gates: Sequence[Gate]) -> str | None:
    """A sentence on outputs that no gate compares, where no function of the user's may do so."""
    others = sorted(_no_tensors(model))
    if not others or any(gate.metric not in METRICS for gate in gates):
        return None
    return f"no gate judges {', '.join(others)}, as metrics compare tensors only; {_OWN_GATE}"


def _with_shapes_of_data(request: Request, observer: Observer) -> Request:
    """``request`` with the shapes that neither it nor the model gives, as its data has them."""
    ranges = with_named_dimensions(request.model, request.shape_ranges)
    request = replace(request, shape_ranges=ranges)
    source = request.data or request.evaluation_data
    if source is None:
        return request
    of_data = shapes_of_data(request.model, request.shape_ranges, source, request.fix)
    for name, shape in of_data.items():
        observer.stage(f"shape {name}={'x'.join(map(str, shape))}, as the data has it")
    fixed = {name: ShapeRange.fixed(shape) for name, shape in of_data.items()}
    return replace(request, shape_ranges={**request.shape_ranges, **fixed})


def _datasets(
    request: Request, model: Model, preset: Preset, warn: Callable[[str], None]
) -> tuple[Dataset, Dataset]:
    given = [
        load_dataset(source, model) if source else None
        for source in (request.data, request.evaluation_data)
    ]
    if given == [None, None]:
        warn(
            "no data is given: ranges and gates rest on random inputs; the result is not calibrated"
        )
        given[0] = synthetic_dataset(model, SYNTHETIC_SAMPLES, request.seed)
    calibration, evaluation = calibration_and_evaluation(given[0], given[1], request.seed)
    calibration = calibration.limit(preset.calibration_samples)
    evaluation = evaluation.limit(preset.evaluation_samples)
    for note in dict.fromkeys((*calibration.notes, *evaluation.notes)):
        warn(note)
    return calibration, evaluation


def _taken_apart(
    request: Request,
    model: Model,
    distance: Distance,
    pack: Pack,
    warn: Callable[[str], None],
) -> Model:
    """A model that was quantized, with or without what it said besides, as asked for."""
    keep = request.ranges == "imported"
    source = model.source_quantization()
    sentence = source.summary(request.model, pack.manifest.scheme, keep)
    warn(f"{sentence}; {distance}")
    for note in distance.notes:
        warn(note)
    return model if keep else replace(model, imported=None)


def _note_on_bodies(model: Model, *datasets: Dataset) -> str:
    """What is said of nodes in bodies of If, Loop and Scan, which stay as they are."""
    inside = bodies_of(model.flat(), model.graph.scopes)
    return inside.sentence(_only_values(inside.switches, *datasets))


def _only_values(names: Iterable[str], *datasets: Dataset) -> dict[str, float]:
    """Those inputs of ``names`` that hold the same value in all samples, with it."""
    values_of: dict[str, set[float]] = {}
    for name in () if datasets[0].synthetic else names:
        arrays = (sample.inputs[name] for dataset in datasets for sample in dataset)
        values_of[name] = {float(one) for array in arrays for one in array.flat}
    return {name: values.pop() for name, values in values_of.items() if len(values) == 1}
