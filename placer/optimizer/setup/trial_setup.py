"""The setup that all trials share: ranges, the float model, candidates, gates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import median

from placer.accuracy.evaluation import Run
from placer.accuracy.evaluator import Evaluator
from placer.calibration.collect import METHODS
from placer.calibration.dataset import Dataset
from placer.engines.base import Compiled, Tensors
from placer.engines.execution_paths import each_path
from placer.engines.isolation import IsolatedEngine
from placer.engines.onnxruntime.engine import OnnxRuntimeModel
from placer.model import Model
from placer.optimizer.observer import Observer
from placer.optimizer.setup.calibrated import (
    Calibrated,
    calibration_of,
    choose_ranges,
    ranges_of,
)
from placer.optimizer.setup.candidates import Candidates, JudgedCandidates
from placer.optimizer.setup.latency_baselines import LatencyBaselines, implicit_engine
from placer.optimizer.setup.noise_meter import FewSamples, NoiseMeter
from placer.optimizer.setup.reference_choices import ReferenceChoices
from placer.optimizer.setup.task import Task
from placer.qdq import Inserter
from placer.qdq.mixed_precision import MixedPrecision
from placer.quantization import Ranges
from placer.results.parts import CalibrationPart

# Inferences by which it is judged what a first trial takes.
_TIMED_RUNS = 5
# Calibration leaves so many times what a first trial and the end seem to take: models of latency
# are made, too, and a quantized model's build takes longer than the float model's.
_SPARE = 1.2

# Seconds of a first trial and all that follows, by the float model's build and one inference.
FirstTrial = Callable[[Task, float, float], float]


@dataclass(frozen=True, eq=False)
class TrialSetup:
    """What trials are made and judged with.

    ``float_build_s``, ``float_run_s``: wall time of the float model's build and of one inference.
    """

    baseline: Compiled
    candidates: Candidates
    evaluator: Evaluator
    noise: NoiseMeter
    calibrated: Calibrated
    latency_baselines: LatencyBaselines
    float_build_s: float = 0.0
    float_run_s: float = 0.0

    @property
    def ranges(self) -> Ranges:
        """What candidates are quantized with."""
        return self.calibrated.ranges

    @property
    def calibration(self) -> CalibrationPart:
        """Where the ranges come from."""
        return self.calibrated.part


def set_up(
    task: Task,
    observer: Observer,
    calibrated: Calibrated | None = None,
    first_trial_s: FirstTrial = lambda *_: 0.0,
) -> TrialSetup:
    """Compile the float model and make what trials need.

    ``calibrated``: what an earlier run or another worker found; None calibrates here and chooses
    the method, in the time that ``first_trial_s`` leaves where time is limited.
    """
    makers = _Makers(task, task.model)
    converts = task.engine.remainder == "built"
    float_build = None if converts else _timed_build(task, makers.candidates({}))
    reference = _reference_of(task, makers, float_build)
    # Before calibration, which may take minutes: labels and gates may not fit the model, and a
    # model that crashes or hangs is to cost an engine's process and not this one.
    evaluator = evaluator_of(task, reference)
    if evaluator.is_constant:
        task.evaluation_data.refuse_constant_outputs()
    if calibrated is None:
        own = task
        if float_build is not None:
            kept_s = _SPARE * first_trial_s(task, float_build.build_s, float_build.run_s)
            own = replace(task, limit=replace(task.limit, kept_s=kept_s))
        data = calibration_of(own, observer)
        if float_build is None:
            plain = makers.candidates(ranges_of(task, data.whole, METHODS[0]))
            float_build = _timed_build(task, plain)
        calibrated = choose_ranges(own, makers.judged_inserter, data, reference, observer)
        for sentence in calibrated.part.shortened:
            observer.warn(sentence)
    if float_build is None:
        float_build = _timed_build(task, makers.candidates(calibrated.plain))
    candidates = makers.candidates(calibrated.ranges, written=True)
    few = partial(FewSamples.of, task, candidates, evaluator)
    return TrialSetup(
        baseline=float_build.compiled,
        candidates=candidates,
        evaluator=evaluator,
        noise=NoiseMeter(task.space, candidates, few),
        calibrated=calibrated,
        latency_baselines=_latency_baselines(task, observer),
        float_build_s=float_build.build_s,
        float_run_s=float_build.run_s,
    )


def _seconds(call: Callable[[], object]) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


@dataclass(frozen=True, eq=False)
class _FloatBuild:
    """The float model, and seconds of its build and, if time is limited, of one inference."""

    compiled: Compiled
    build_s: float
    run_s: float


def _timed_build(task: Task, candidates: Candidates) -> _FloatBuild:
    if isinstance(task.engine, IsolatedEngine):
        task.engine.ready()
    start = time.monotonic()
    baseline = candidates.compile(task.float_placement)
    built, run_s = time.monotonic() - start, 0.0
    if task.limit.seconds is not None:
        sample = each_path(task.inputs)[0]
        baseline.run(sample)  # The first one makes ready what later ones have.
        run_s = median(_seconds(lambda: baseline.run(sample)) for _ in range(_TIMED_RUNS))
    return _FloatBuild(baseline, built, run_s)


def candidates_of(task: Task, model: Model, ranges: Ranges) -> Candidates:
    """What makes candidates of ``model``, which has the layers of the task's, as trials do."""
    return _Makers(task, model).candidates(ranges, written=True)


def candidates_before_trials(task: Task, ranges: Ranges) -> Candidates:
    """What makes candidates of the task's model to compare engines or schemes."""
    return _Makers(task, task.model).candidates(ranges)


@dataclass(frozen=True, eq=False)
class _Inputs:
    """The inputs of a dataset, which can be iterated any number of times."""

    data: Dataset

    def __iter__(self) -> Iterator[Tensors]:
        return (sample.inputs for sample in self.data)


def _latency_baselines(task: Task, observer: Observer) -> LatencyBaselines:
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
    """Makes ``Candidates`` of ``model``, which has the layers of the task's, with any ranges."""

    task: Task
    model: Model

    @cached_property
    def inserter(self) -> Inserter:
        return Inserter(self.model, self.task.pack.manifest.scheme)

    @cached_property
    def judged_inserter(self) -> Inserter:
        """Makes candidates with all outputs that accuracy is judged by."""
        if not self.task.judged.has_more:
            return self.inserter
        return Inserter(self.task.judged.of(self.model), self.task.pack.manifest.scheme)

    @cached_property
    def reference_choices(self) -> ReferenceChoices | None:
        """What gives the float model's choices to an engine that may compute others."""
        judged = self.task.judged
        if (
            judged.rows is None
            or not judged.rows.reference_choices
            or not self.task.engine.verified
        ):
            return None
        return ReferenceChoices.of(judged)

    def candidates(self, ranges: Ranges, *, written: bool = False) -> Candidates:
        """Candidates with ``ranges``; ``written`` says that the result is of them."""
        judged = None
        if self.task.judged.has_more:
            twin = self._candidates(self.judged_inserter, ranges, None, written=written)
            judged = JudgedCandidates(twin, self.task.judged, self.reference_choices)
        return self._candidates(self.inserter, ranges, judged, written=written)

    def _candidates(
        self, inserter: Inserter, ranges: Ranges, judged: JudgedCandidates | None, *, written: bool
    ) -> Candidates:
        task, remainder = self.task, None
        converts = ("built", "written") if written else ("built",)
        if task.engine.remainder in converts and task.base != "float":
            remainder = MixedPrecision.of(
                inserter, task.base, task.request.io_type, ranges, task.edges
            )
        return Candidates(inserter.model, task.engine, inserter, ranges, remainder, judged)


def evaluator_of(task: Task, reference: Run) -> Evaluator:
    """What judges candidates by the gates."""
    judged = task.judged
    return Evaluator(
        judged.graph, task.gates, task.evaluation_data, reference, scores=judged.scores
    )


def _reference_of(task: Task, makers: _Makers, float_build: _FloatBuild | None) -> Run:
    """What gates compare with: the float model as it was given, not converted to another type.

    ``float_build``: None where what is built is converted.
    """
    computed = task.engine.remainder == "computed" and task.base != "float"
    if float_build is not None and not computed:
        return makers.candidates({}).judged_run(task.float_placement, float_build.compiled)
    model = task.judged.model
    return OnnxRuntimeModel(model.proto, model.base_dir, task.request.threads).run
