"""What trials are made and judged with: ranges, the float model, candidates, gates."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import FiniteFloat, TypeAdapter

from placer.accuracy.evaluator import Evaluator, Run
from placer.accuracy.metrics import finite
from placer.calibration.collect import METHODS, Calibration, calibrate
from placer.calibration.dataset import Dataset
from placer.engines.base import Compiled, Tensors
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.errors import RunError
from placer.optimizer.candidates import Candidates, NoiseMeter
from placer.optimizer.latency_baselines import LatencyBaselines, implicit_engine
from placer.optimizer.observer import Observer
from placer.optimizer.request import AUTO
from placer.optimizer.task import Task
from placer.qdq import Inserter
from placer.qdq.mixed_precision import MixedPrecision
from placer.quantization import EMPTY, Range, Ranges
from placer.results.result import CalibrationPart

log = logging.getLogger(__name__)
_PAIRS = TypeAdapter(dict[str, tuple[FiniteFloat, FiniteFloat]])


@dataclass(frozen=True)
class Calibrated:
    """What calibration found: kept with a study, so that all its workers build the same models.

    ``ranges``: by the chosen method. ``plain``: by the first method, which the float model's own
    conversion to another type rests on; empty on engines that convert nothing.
    """

    ranges: Ranges
    plain: Ranges
    part: CalibrationPart

    def to_json(self) -> dict[str, Any]:
        """JSON values that ``from_json`` reads; floats keep all their digits."""
        return {
            "ranges": {
                name: [float(low), float(high)] for name, (low, high) in self.ranges.items()
            },
            "plain": {name: [float(low), float(high)] for name, (low, high) in self.plain.items()},
            "part": self.part.model_dump(),
        }

    @staticmethod
    def from_json(kept: Mapping[str, Any]) -> Calibrated:
        """What ``to_json`` returned; raises ValueError or KeyError if it is damaged."""
        ranges, plain = (
            {name: Range(*pair) for name, pair in _PAIRS.validate_python(kept[key]).items()}
            for key in ("ranges", "plain")
        )
        if any(low > high for low, high in (*ranges.values(), *plain.values())):
            raise ValueError("a range ends before it begins")
        return Calibrated(ranges, plain, CalibrationPart.model_validate(kept["part"]))


@dataclass(frozen=True, eq=False)
class TrialSetup:
    """What trials are made and judged with."""

    baseline: Compiled
    candidates: Candidates
    evaluator: Evaluator
    noise: NoiseMeter
    calibrated: Calibrated
    latency_baselines: LatencyBaselines

    @property
    def ranges(self) -> Ranges:
        """What candidates are quantized with."""
        return self.calibrated.ranges

    @property
    def calibration(self) -> CalibrationPart:
        """Where the ranges come from."""
        return self.calibrated.part


def set_up(task: Task, observer: Observer, calibrated: Calibrated | None = None) -> TrialSetup:
    """Compile the float model and make what trials need.

    ``calibrated``: what an earlier run or another worker found; None calibrates here and chooses
    the method.
    """
    model = task.model
    makers = _Makers(task, Inserter(model, task.pack.manifest.scheme))
    few = task.calibration_data.limit(task.preset.noise_samples)
    if calibrated is None:
        if task.engine.remainder == "kept":
            # Its process is there to be lost to a model that crashes or hangs; calibration runs
            # the same model in this one.
            makers.candidates({}).compile(EMPTY).run(task.inputs)
        calibration = _calibrate(task, observer)
        plain = ranges_of(task, calibration, METHODS[0])
        baseline = makers.candidates(plain).compile(EMPTY)
        reference = _reference(task, baseline)
        on_few = Evaluator(model.graph, (), few, reference)
        calibrated = _choose_method(task, makers, calibration, on_few, observer)
    else:
        baseline = makers.candidates(calibrated.plain).compile(EMPTY)
        reference = _reference(task, baseline)
        on_few = Evaluator(model.graph, (), few, reference)
    candidates = makers.candidates(calibrated.ranges, written=True)
    return TrialSetup(
        baseline=baseline,
        candidates=candidates,
        evaluator=Evaluator(model.graph, task.gates, task.evaluation_data, reference),
        noise=NoiseMeter(task.space, candidates, on_few),
        calibrated=calibrated,
        latency_baselines=_rivals(task, observer),
    )


def _calibrate(task: Task, observer: Observer) -> Calibration:
    activations = activations_of(task)
    if activations:
        observer.stage(f"calibrating on {len(task.calibration_data)} samples")
    return calibrate(
        task.model,
        activations,
        task.calibration_data,
        task.request.cache_dir,
        observer.progress,
    )


def _choose_method(
    task: Task,
    makers: _Makers,
    calibration: Calibration,
    evaluator: Evaluator,
    observer: Observer,
) -> Calibrated:
    """The ranges of the method that the request names, or of the best one."""
    by_method = _compare_methods(task, makers, calibration, evaluator, observer)
    method = max(by_method, key=lambda name: by_method[name])
    converts = task.engine.remainder == "built"
    return Calibrated(
        ranges=ranges_of(task, calibration, method),
        plain=ranges_of(task, calibration, METHODS[0]) if converts else {},
        part=CalibrationPart(
            data=task.request.data,
            samples=len(task.calibration_data),
            method=method,
            requested_method=task.request.calibration,
            sqnr_by_method={name: finite(value) for name, value in by_method.items()},
        ),
    )


def ranges_of(task: Task, calibration: Calibration, method: str) -> Ranges:
    """Ranges that an imported model had; of other tensors those of ``method``."""
    scheme, imported = task.pack.manifest.scheme, task.model.imported
    calibrated = calibration.ranges(method, scheme)
    return calibrated if imported is None else {**calibrated, **imported.ranges(scheme)}


@dataclass(frozen=True, eq=False)
class _Inputs:
    """The inputs of a dataset, which can be iterated any number of times."""

    data: Dataset

    def __iter__(self) -> Iterator[Tensors]:
        return (sample.inputs for sample in self.data)


def _rivals(task: Task, observer: Observer) -> LatencyBaselines:
    """Build what is to be beaten; the float model is built anyway."""
    if "implicit" not in task.beats:
        return LatencyBaselines(task.beats)
    observer.stage("building the implicit INT8 engine that is to be beaten")
    model, samples = task.model, _Inputs(task.calibration_data)
    engine = implicit_engine(task.engine)
    return LatencyBaselines(
        task.beats, engine.compile_implicit(model.proto, model.base_dir, samples)
    )


@dataclass(frozen=True, eq=False)
class _Makers:
    """Makes ``Candidates`` with any ranges."""

    task: Task
    inserter: Inserter

    def candidates(self, ranges: Ranges, *, written: bool = False) -> Candidates:
        """Candidates with ``ranges``; ``written`` says that the result is of them."""
        task = self.task
        remainder = None
        converts = ("built", "written") if written else ("built",)
        if task.engine.remainder in converts and task.base != "float":
            io = task.request.io_type
            remainder = MixedPrecision.of(self.inserter, task.base, io, ranges, task.edges)
        return Candidates(task.model, task.engine, self.inserter, ranges, remainder)


def _reference(task: Task, baseline: Compiled) -> Run:
    """What gates compare with: the float model as it was given, not converted to another type."""
    kind = task.engine.remainder
    if kind in ("kept", "written") or (kind == "computed" and task.base == "float"):
        return baseline.run
    model = task.model
    return OnnxRuntimeModel(model.proto, model.base_dir, task.request.threads).run


def activations_of(task: Task) -> list[str]:
    """Tensors that some layout quantizes and whose range only data can tell.

    Of an imported model those that had no scale.
    """
    imported = task.model.imported
    known = {*task.model.graph.initializers, *(imported.activations if imported else ())}
    return sorted({edge.tensor for edge in task.edges} - known)


def _compare_methods(
    task: Task,
    makers: _Makers,
    calibration: Calibration,
    evaluator: Evaluator,
    observer: Observer,
) -> dict[str, float]:
    """SQNR in dB of the default placement by calibration method, on calibration data only."""
    requested = task.request.calibration
    if requested != AUTO:
        return {requested: math.nan}
    if not calibration.statistics:  # Every range is imported.
        return {METHODS[0]: math.nan}
    observer.stage("comparing calibration methods")
    placement = task.space.placement(task.space.defaults)
    found = {}
    # Entropy and MSE weigh the 255 even steps of INT8, which FP8 does not have.
    methods = ("minmax", "percentile") if task.pack.manifest.scheme.is_float8 else METHODS
    for method in methods:
        try:
            ranges = ranges_of(task, calibration, method)
            compiled = makers.candidates(ranges).compile(placement)
            evaluation = evaluator.evaluate(compiled.run)
        except RunError as error:
            log.warning("calibration %s: %s", method, error)
            continue
        found[method] = evaluation.sqnr
    return found or {METHODS[0]: math.nan}
