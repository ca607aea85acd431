"""What a run is asked to do, loaded and checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from placer.accuracy.evaluator import check_gates
from placer.accuracy.gates import Gate, default_gates
from placer.accuracy.latency_gates import Beat, parse_beats
from placer.calibration.data_shapes import shapes_of_data
from placer.calibration.dataset import (
    Dataset,
    calibration_and_evaluation,
    load_dataset,
    synthetic_dataset,
)
from placer.calibration.masked import masked_tensors
from placer.engines.abilities import HasDefaultBase, abilities_of, range_note, target_of
from placer.engines.base import Engine, Tensors
from placer.engines.select import select_engine
from placer.engines.source_model import distance_sentence, recovered
from placer.errors import InputError
from placer.graph import Edge
from placer.graph.bodies import bodies_of
from placer.graph.shapes import ShapeRange, check_ranges, optima
from placer.model import Model, load_model
from placer.optimizer.chosen_nodes import check_forced, chosen_sites
from placer.optimizer.latency_baselines import implicit_engine
from placer.optimizer.observer import Observer
from placer.optimizer.option_values import check_values
from placer.optimizer.presets import Preset, load_preset
from placer.optimizer.request import AUTO, Base, Request
from placer.optimizer.warm_start import warm_starts
from placer.qdq import Inserter
from placer.qdq.mixed_precision import weights_beyond_float16
from placer.qdq.precision import FLOAT8_OPSET, parse_base, with_opset
from placer.quantization import EMPTY, Placement
from placer.quantization.overrides import Pins, resolve
from placer.rules.connected import connected
from placer.rules.pack import Pack
from placer.rules.packaging.lock import check_lock
from placer.rules.restriction import without_tensors
from placer.rules.sites import Site, find_sites
from placer.search.samplers import Proposal
from placer.search.space import Space, build_space

SYNTHETIC_SAMPLES = 16
# Names of alternative schemes of a pack; None is its own.
Schemes = tuple[str | None, ...]


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that is settled before the first trial.

    ``from_quantized``: whether the file was quantized; ``source_sqnr``: then the SQNR in dB of the
    recovered float model's outputs against the file's, None if ONNX Runtime does not run that.
    ``bases``: the base precisions that the search decides between, that of the float model first;
    none if there is nothing to decide. ``schemes``: those that ``scheme`` auto stands for, that of
    the trials first.
    """

    request: Request
    preset: Preset
    model: Model
    pack: Pack
    engine: Engine
    sites: tuple[Site, ...]
    space: Space
    gates: tuple[Gate, ...]
    calibration_data: Dataset
    evaluation_data: Dataset
    warnings: tuple[str, ...]
    beats: tuple[Beat, ...] = ()
    from_quantized: bool = False
    source_sqnr: float | None = None
    warm_starts: tuple[Proposal, ...] = ()
    bases: tuple[Base, ...] = ()
    schemes: Schemes = ()
    pins: Pins = field(default_factory=Pins)

    @cached_property
    def edges(self) -> frozenset[Edge]:
        """All edges that some layout quantizes."""
        layouts = (layout for site in self.sites for layout in site.layouts.values())
        return frozenset(edge for layout in layouts for edge in layout.quantize)

    @property
    def gate_texts(self) -> tuple[str, ...]:
        """All gates as the user writes them, those on latency last."""
        return (*(gate.text() for gate in self.gates), *(f"{beat}<=1" for beat in self.beats))

    @property
    def shape_ranges(self) -> Mapping[str, ShapeRange]:
        """Ranges of more than one shape that the engine builds for."""
        if "shape-ranges" not in abilities_of(self.engine):
            return {}
        ranges = self.request.shape_ranges
        return {name: found for name, found in ranges.items() if not found.is_fixed}

    @property
    def budget(self) -> int | None:
        """Trials that the study may hold: as asked for, else the preset's unless time ends it."""
        if self.request.budget is None and self.request.timeout is None:
            return self.preset.budget
        return self.request.budget

    @property
    def base(self) -> Base:
        """Type of what is not quantized, where the engine takes one: FP16 by default on GPUs.

        Where the search decides on it, that of the float model.
        """
        if self.bases:
            return self.bases[0]
        asked = self.request.base
        if asked is None or asked == "auto":
            if isinstance(self.engine, HasDefaultBase):
                return parse_base(self.engine.default_base)
            return "float" if self.engine.remainder == "computed" else "float16"
        return asked

    def base_of(self, placement: Placement) -> Base:
        """Type of what ``placement`` does not quantize."""
        return parse_base(placement.base or "float") if self.bases else self.base

    @property
    def float_placement(self) -> Placement:
        """The float model in its base precision."""
        return EMPTY.computed_in(self.space.base_of({}))

    @cached_property
    def inputs(self) -> Tensors:
        """The sample that latency is measured on."""
        return next(iter(self.evaluation_data)).inputs


def engine_for(
    request: Request, device: str | None, bases: Sequence[Base] = (), schemes: Schemes = ()
) -> tuple[Engine, Pack, str]:
    """The engine that ``request`` asks for on ``device``, its pack and why it was taken.

    ``bases``, ``schemes``: see ``Task``. Where ``scheme`` auto is not settled, the pack's own.
    Raises InputError or RunError, see ``placer.engines.select.select_engine``.
    """
    asked = None if request.scheme == AUTO else request.scheme
    return select_engine(
        request.engine,
        threads=request.threads,
        pack=request.pack,
        gpu=request.gpu,
        base=None if request.base == AUTO and not bases else request.base,
        shapes=optima(request.shape_ranges),
        shape_ranges=request.shape_ranges,
        build_for=request.build_for,
        device=device,
        extra=request.engine_options,
        scheme=schemes[0] if schemes else asked,
        objective=request.objective,
    )


def _first_device(request: Request) -> str | None:
    """The device that a run begins on."""
    return request.devices[0] if request.devices else request.device


def prepare(
    request: Request, observer: Observer, bases: Sequence[Base] = (), schemes: Schemes = ()
) -> Task:
    """Load and check everything that ``request`` names; writes nothing.

    ``bases``, ``schemes``: those that ``base`` and ``scheme`` auto stand for, see ``Task``.
    Raises InputError for the first thing that is wrong.
    """
    check_values(request)
    preset = load_preset(request.preset)
    beats = parse_beats(request.beats)
    observer.stage(f"loading {request.model}")
    warnings: list[str] = []

    def warn(text: str) -> None:
        warnings.append(text)
        observer.warn(text)

    request = _with_shapes_of_data(request, observer)
    engine, pack, why = engine_for(request, _first_device(request), bases, schemes)
    _check_io_type(request, engine)
    observer.stage(f"engine {engine.name} {engine.version} on {engine.device}: {why}")
    _check_export(request, engine)
    check_lock(pack, Path())
    _check_pack(pack, engine, warn)
    if "implicit" in beats:
        implicit_engine(engine)
    model = load_model(request.model, optima(request.shape_ranges), fix=request.fix)
    check_ranges(model.proto, request.shape_ranges)
    note = range_note(engine, request.shape_ranges)
    if note is not None:
        warn(note)
    calibration_data, evaluation_data = _datasets(request, model, preset, warn)
    distance, from_quantized = None, model.imported is not None
    if from_quantized:
        observer.stage("comparing the recovered float model with the quantized one")
        model, distance = recovered(model, calibration_data, preset.noise_samples)
        model = _taken_apart(request, model, distance, pack, warn)
    if pack.manifest.scheme.is_float8:
        model = with_opset(model, FLOAT8_OPSET)
    found = find_sites(model.graph, pack.rules, target_of(engine))
    sites = quantizable_sites(found, model, pack, warn)
    sites = scalable_sites(sites, model, calibration_data, warn)
    sites, needed = chosen_sites(sites, model.graph, pack, request, observer)
    inside = bodies_of(model.proto)
    told = inside.sentence(_only_values(inside.switches, calibration_data, evaluation_data))
    space = _space_of(sites, model, pack, told or "there is nothing to do")
    check_forced(space, needed)
    pins = _pins(request, sites, model, pack)
    space = replace(space, per_tensor=pins.per_tensor, bases=tuple(bases))
    if told:
        warn(told)
    asked = tuple(Gate.parse(text) for text in request.gates)
    gates = asked or default_gates(evaluation_data.has_labels)
    check_gates(gates, model.graph.outputs, evaluation_data.has_labels)
    return Task(
        request=request,
        preset=preset,
        model=model,
        pack=pack,
        engine=engine,
        sites=sites,
        space=space,
        gates=gates,
        calibration_data=calibration_data,
        evaluation_data=evaluation_data,
        warnings=tuple(warnings),
        beats=beats,
        from_quantized=from_quantized,
        source_sqnr=distance,
        warm_starts=warm_starts(request.warm_starts, model, space),
        bases=tuple(bases),
        schemes=schemes,
        pins=pins,
    )


def _pins(request: Request, sites: tuple[Site, ...], model: Model, pack: Pack) -> Pins:
    """What the option ``overrides`` pins on ``model``."""
    if not request.overrides:
        return Pins()
    layouts = [layout for site in sites for layout in site.layouts.values()]
    edges = frozenset(edge for layout in layouts for edge in layout.quantize)
    shared = [tensors for layout in layouts for tensors in layout.shared]
    joined = [{t for index in part for t in shared[index]} for part in connected(shared)]
    return resolve(request.overrides, model.graph, edges, pack.manifest.scheme, joined)


def _with_shapes_of_data(request: Request, observer: Observer) -> Request:
    """``request`` with the shapes that neither it nor the model gives, as its data has them."""
    source = request.data or request.evaluation_data
    if source is None:
        return request
    found = shapes_of_data(request.model, request.shape_ranges, source)
    for name, shape in found.items():
        observer.stage(f"shape {name}={'x'.join(map(str, shape))}, as the data has it")
    fixed = {name: ShapeRange.fixed(shape) for name, shape in found.items()}
    return replace(request, shape_ranges={**request.shape_ranges, **fixed})


def _check_export(request: Request, engine: Engine) -> None:
    if request.export is not None and engine.rules != "openvino":
        raise InputError(
            f"`export` writes what engine openvino has judged, and this is engine {engine.name}; "
            "choose `engine` openvino or leave out `export`"
        )


def _check_io_type(request: Request, engine: Engine) -> None:
    """Raise InputError if inputs and outputs are to be converted where nothing is."""
    if request.io_type == "convert" and (
        engine.remainder in ("kept", "computed") or request.base == "float"
    ):
        raise InputError(
            "`io_type` convert: nothing is converted on engine "
            f"{engine.name}{' with base float' if request.base == 'float' else ''}; leave it out"
        )


def _taken_apart(
    request: Request,
    model: Model,
    distance: float | None,
    pack: Pack,
    warn: Callable[[str], None],
) -> Model:
    """A model that was quantized, with or without what it said besides, as asked for."""
    keep = request.ranges == "imported"
    source = model.source_quantization()
    sentence = source.summary(request.model, pack.manifest.scheme, keep)
    warn(f"{sentence}; {distance_sentence(distance)}")
    return model if keep else replace(model, imported=None)


def quantizable_sites(
    sites: tuple[Site, ...], model: Model, pack: Pack, warn: Callable[[str], None]
) -> tuple[Site, ...]:
    """The sites of which no weight, of an FP16 model, would have a scale that FP16 cannot hold."""
    edges_of = {
        site.name: {edge for layout in site.layouts.values() for edge in layout.quantize}
        for site in sites
    }
    every = frozenset[Edge]().union(*edges_of.values())
    wrong = weights_beyond_float16(Inserter(model, pack.manifest.scheme), every)
    if not wrong:
        return sites
    kept = tuple(site for site in sites if edges_of[site.name].isdisjoint(wrong))
    first = next(iter(wrong.values()))
    warn(f"{len(sites) - len(kept)} of {len(sites)} sites stay as they are: {first}")
    return kept


def scalable_sites(
    sites: tuple[Site, ...], model: Model, data: Dataset, warn: Callable[[str], None]
) -> tuple[Site, ...]:
    """The sites with those layouts only that quantize no tensor that no scale fits."""
    layouts = [layout for site in sites for layout in site.layouts.values()]
    quantized = {edge.tensor for layout in layouts for edge in layout.quantize}
    masked = masked_tensors(model, quantized, data)
    if not masked:
        return sites
    others = "" if len(masked) == 1 else f" and {len(masked) - 1} more"
    warn(
        f"tensor '{min(masked)}'{others} stays float: it holds infinity or a mask beside small "
        "values, and no scale fits both"
    )
    return without_tensors(sites, masked)


def _only_values(names: Iterable[str], *datasets: Dataset) -> dict[str, float]:
    """Those inputs of ``names`` that hold the same value in all samples, with it."""
    found: dict[str, set[float]] = {}
    for name in () if datasets[0].synthetic else names:
        arrays = (sample.inputs[name] for dataset in datasets for sample in dataset)
        found[name] = {float(one) for array in arrays for one in array.flat}
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def _space_of(sites: tuple[Site, ...], model: Model, pack: Pack, why: str) -> Space:
    """The choices at ``sites``; InputError if there are none, which ``why`` explains."""
    space = build_space(model.graph, sites)
    # Sites that only follow others have nothing to follow.
    if not space.groups and not space.placement({}).edges:
        raise InputError(
            f"no rule of pack '{pack.manifest.name}' matches a node of {model.path} that it "
            f"could quantize; {why}"
        )
    return space


def _check_pack(pack: Pack, engine: Engine, warn: Callable[[str], None]) -> None:
    manifest = pack.manifest
    if manifest.engine != engine.rules:
        raise InputError(
            f"pack '{manifest.name}' is for engine {manifest.engine}, not {engine.rules}; "
            "choose another pack or engine"
        )
    if engine.estimated and "built-plans" not in abilities_of(engine):
        return  # Its version is placer's own.
    try:
        made_for = SpecifierSet(manifest.engine_versions).contains(engine.version, prereleases=True)
    except InvalidVersion:  # Since packaging 26 such a version is merely outside of every range.
        made_for = False
    if not made_for:
        warn(
            f"pack '{manifest.name}' was made for {engine.name} {manifest.engine_versions}, "
            f"this is {engine.version}"
        )


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
