"""What trials are made and judged with: ranges, the float model, candidates, gates."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from placer.accuracy import finite
from placer.calibration import METHODS, Calibration, calibrate
from placer.engines.base import Compiled
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


def set_up(task: Task, observer: Observer) -> Bench:
    """Calibrate, choose the calibration method and compile the float model."""
    model = task.model
    observer.stage(f"calibrating on {len(task.calibration_data)} samples")
    calibration = calibrate(
        model,
        _activations(task),
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
    ranges = calibration.ranges(method, task.pack.manifest.scheme)
    candidates = makers.candidates(method, written=True)
    return Bench(
        baseline=baseline,
        candidates=candidates,
        evaluator=Evaluator(model.graph, task.gates, task.evaluation_data, reference),
        noise=NoiseMeter(task.space, candidates, on_few),
        ranges=ranges,
        calibration=CalibrationPart(
            data=task.request.data,
            samples=len(task.calibration_data),
            method=method,
            requested_method=task.request.calibration,
            sqnr_by_method={name: finite(value) for name, value in by_method.items()},
        ),
    )


@dataclass(frozen=True, eq=False)
class _Makers:
    """Makes ``Candidates`` for each calibration method."""

    task: Task
    calibration: Calibration
    inserter: Inserter

    def candidates(self, method: str, *, written: bool = False) -> Candidates:
        """Candidates with the ranges of ``method``; ``written`` says that the result is of them."""
        task, scheme = self.task, self.task.pack.manifest.scheme
        ranges = self.calibration.ranges(method, scheme)
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
    """Tensors that some layout quantizes and whose range only data can tell."""
    edges = {
        edge for site in task.sites for layout in site.layouts.values() for edge in layout.quantize
    }
    return sorted({edge.tensor for edge in edges} - task.model.graph.initializers.keys())


def _compare_methods(
    task: Task, makers: _Makers, evaluator: Evaluator, observer: Observer
) -> dict[str, float]:
    """SQNR in dB of the default placement by calibration method, on calibration data only."""
    requested = task.request.calibration
    if requested != AUTO:
        return {requested: math.nan}
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
