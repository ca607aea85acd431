"""What trials are made and judged with: ranges, the float model, candidates, gates."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass

from placer.accuracy import finite
from placer.beat import Rivals, implicit_engine
from placer.calibration import METHODS, Calibration, calibrate
from placer.data import Dataset
from placer.engines.base import Compiled, Tensors
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.errors import RunError
from placer.gates import Evaluator, Run
from placer.placement import EMPTY
from placer.qdq import Inserter
from placer.ranges import Ranges
from placer.result import CalibrationPart
from placer.task import AUTO, Observer, Task
from placer.trials import Candidates, NoiseMeter, Remainder

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Bench:
    """What trials are made and judged with."""

    baseline: Compiled
    candidates: Candidates
    evaluator: Evaluator
    noise: NoiseMeter
    ranges: Ranges
    calibration: CalibrationPart
    rivals: Rivals


def set_up(task: Task, observer: Observer) -> Bench:
    """Calibrate, choose the calibration method and compile the float model."""
    model = task.model
    activations = _activations(task)
    if activations:
        observer.stage(f"calibrating on {len(task.calibration_data)} samples")
    calibration = calibrate(
        model,
        activations,
        task.calibration_data,
        task.request.cache_dir,
        observer.progress,
    )
    inserter = Inserter(model, task.pack.manifest.scheme)
    makers = _Makers(task, calibration, inserter)
    baseline = makers.candidates(METHODS[0]).compile(EMPTY)
    reference = _reference(task, baseline)
    few = task.calibration_data.limit(task.preset.noise_samples)
    on_few = Evaluator(model.graph, (), few, reference)
    by_method = _compare_methods(task, makers, on_few, observer)
    method = max(by_method, key=lambda name: by_method[name])
    ranges = makers.ranges(method)
    candidates = makers.candidates(method, written=True)
    return Bench(
        baseline=baseline,
        candidates=candidates,
        evaluator=Evaluator(model.graph, task.gates, task.evaluation_data, reference),
        noise=NoiseMeter(task.space, candidates, on_few),
        ranges=ranges,
        rivals=_rivals(task, observer),
        calibration=CalibrationPart(
            data=task.request.data,
            samples=len(task.calibration_data),
            method=method,
            requested_method=task.request.calibration,
            sqnr_by_method={name: finite(value) for name, value in by_method.items()},
        ),
    )


@dataclass(frozen=True, eq=False)
class _Inputs:
    """The inputs of a dataset, which can be iterated any number of times."""

    data: Dataset

    def __iter__(self) -> Iterator[Tensors]:
        return (sample.inputs for sample in self.data)


def _rivals(task: Task, observer: Observer) -> Rivals:
    """Build what --beat names; the float model is built anyway."""
    if "implicit" not in task.beats:
        return Rivals(task.beats)
    observer.stage("building the implicit INT8 engine that is to be beaten")
    model, samples = task.model, _Inputs(task.calibration_data)
    engine = implicit_engine(task.engine)
    return Rivals(task.beats, engine.compile_implicit(model.proto, model.base_dir, samples))


@dataclass(frozen=True, eq=False)
class _Makers:
    """Makes ``Candidates`` for each calibration method."""

    task: Task
    calibration: Calibration
    inserter: Inserter

    def ranges(self, method: str) -> Ranges:
        """Ranges that an imported model had; of other tensors those of ``method``."""
        scheme, imported = self.task.pack.manifest.scheme, self.task.model.imported
        calibrated = self.calibration.ranges(method, scheme)
        return calibrated if imported is None else {**calibrated, **imported.ranges(scheme)}

    def candidates(self, method: str, *, written: bool = False) -> Candidates:
        """Candidates with the ranges of ``method``; ``written`` says that the result is of them."""
        task, scheme = self.task, self.task.pack.manifest.scheme
        ranges = self.ranges(method)
        remainder = None
        converts = ("built", "written") if written else ("built",)
        if task.engine.remainder in converts and task.base != "float":
            io = task.request.io_type
            remainder = Remainder.of(task.model, task.base, io, scheme, ranges)
        return Candidates(task.model, task.engine, self.inserter, ranges, remainder)


def _reference(task: Task, baseline: Compiled) -> Run:
    """What gates compare with: the float model as it was given, not converted to another type."""
    if task.engine.remainder != "built":
        return baseline.run
    model = task.model
    return OnnxRuntimeModel(model.proto, model.base_dir, task.request.threads).run


def _activations(task: Task) -> list[str]:
    """Tensors that some layout quantizes and whose range only data can tell.

    Of an imported model those that had no scale.
    """
    edges = {
        edge for site in task.sites for layout in site.layouts.values() for edge in layout.quantize
    }
    imported = task.model.imported
    known = {*task.model.graph.initializers, *(imported.activations if imported else ())}
    return sorted({edge.tensor for edge in edges} - known)


def _compare_methods(
    task: Task, makers: _Makers, evaluator: Evaluator, observer: Observer
) -> dict[str, float]:
    """SQNR in dB of the default placement by calibration method, on calibration data only."""
    requested = task.request.calibration
    if requested != AUTO:
        return {requested: math.nan}
    if not makers.calibration.statistics:  # Every range is imported.
        return {METHODS[0]: math.nan}
    observer.stage("comparing calibration methods")
    placement = task.space.placement(task.space.defaults)
    found = {}
    # Entropy and MSE weigh the 255 even steps of INT8, which FP8 does not have.
    methods = ("minmax", "percentile") if task.pack.manifest.scheme.is_float8 else METHODS
    for method in methods:
        try:
            compiled = makers.candidates(method).compile(placement)
            evaluation = evaluator.evaluate(compiled.run)
        except RunError as error:
            log.warning("calibration %s: %s", method, error)
            continue
        found[method] = evaluation.sqnr
    return found or {METHODS[0]: math.nan}
