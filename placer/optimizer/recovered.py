"""The result of a run with accuracy recovered: other constants in the same layers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placer.accuracy.evaluator import Evaluator, Run
from placer.accuracy.metrics import finite
from placer.calibration.dataset import Dataset
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.graph import Graph
from placer.optimizer.candidates import Candidates
from placer.optimizer.observer import Observer
from placer.optimizer.task import Task
from placer.optimizer.trial_setup import TrialSetup, candidates_of
from placer.quantization import Placement
from placer.recovery.constants import same_layers
from placer.recovery.crossfit import score
from placer.recovery.methods import mean_noises
from placer.recovery.saturation import before_saturation, with_outputs
from placer.recovery.state import State, Work
from placer.recovery.steps import STEPS, Attempt, Noises, try_steps
from placer.recovery.walk import peak_bytes
from placer.results.result import RecoveryPart, RecoveryStepPart

log = logging.getLogger(__name__)

# Samples that steps learn from, and that they are judged on: at most so many for each of the
# preset's ``noise_samples``, and half of the calibration data.
_TIMES_NOISE_SAMPLES = 8
_LEAST_SAMPLES = 8
# Samples that the variants of one step are compared on.
_LOSS_SAMPLES = 16
# What the float tensors of the samples learned from may take at once, as they go through the
# network together; corrections keep those of the candidate beside them.
_BUDGET_BYTES = 2**30
# A seed of its own: folders are often sorted by class, and the split is not to follow that.
_SEED = 0x5EC0


@dataclass(frozen=True, eq=False)
class Recovered:
    """What recovery found. ``candidates``: of the changed model; None if no step helps."""

    part: RecoveryPart
    candidates: Candidates | None


def recovery_steps(asked: Sequence[str]) -> tuple[str, ...]:
    """The steps that ``recover`` of a request stands for, in the order in which they are tried."""
    return tuple(name for name in STEPS if name in asked or "auto" in asked)


def recover(
    task: Task, setup: TrialSetup, placement: Placement, steps: Sequence[str], observer: Observer
) -> Recovered:
    """Try ``steps`` on ``placement``; each stays if it helps on calibration data held back."""
    data = task.calibration_data
    if data.synthetic or len(data) < _LEAST_SAMPLES:
        what = "random inputs" if data.synthetic else f"{len(data)} calibration samples"
        return _nothing(f"{what} tell too little; give `data` of {_LEAST_SAMPLES} or more")
    learned, held = split(task)
    observer.stage(f"recovering accuracy on {len(learned)} samples: {', '.join(steps)}")
    bench = Bench.of(task, placement)
    held_batches, few = bench.batches(held), bench.batches(learned.limit(_LOSS_SAMPLES))

    def judge(state: State) -> Noises:
        return bench.noises(state, held_batches)

    def loss(state: State) -> float:
        return -score(mean_noises(bench.noises(state, few)))

    work = Work(placement, task.pack.manifest.scheme, learned, loss, _fixed(task))
    first = State(task.model, task.model, setup.ranges)
    state, attempts = try_steps(first, steps, work, judge)
    kept = any(attempt.kept for attempt in attempts)
    part = RecoveryPart(
        samples=len(learned),
        held_back=len(held),
        kept=kept,
        reason="" if kept else "no step helps on samples held back",
        steps=[_step_part(attempt) for attempt in attempts],
    )
    if not kept:
        return Recovered(part, None)
    candidates = candidates_of(task, state.model, state.ranges)
    if not same_layers(setup.candidates.result(placement), candidates.result(placement)):
        reason = "what was changed would change the layers, too"
        return Recovered(part.model_copy(update={"kept": False, "reason": reason}), None)
    return Recovered(part, candidates)


def split(task: Task) -> tuple[Dataset, Dataset]:
    """Calibration samples to learn from, and as many to judge on."""
    data = task.calibration_data
    most = min(len(data) // 2, _TIMES_NOISE_SAMPLES * task.preset.noise_samples)
    most = max(1, min(most, _BUDGET_BYTES // max(1, peak_bytes(task.model.graph))))
    order = np.random.default_rng(_SEED).permutation(len(data)).tolist()
    return data.choose(order[:most]), data.choose(order[most : 2 * most])


@dataclass(frozen=True, eq=False)
class Bench:
    """Judges states of a placement by what a network computes before its outputs saturate."""

    task: Task
    placement: Placement
    judged: Graph
    reference: Run

    @staticmethod
    def of(task: Task, placement: Placement) -> Bench:
        """Errors are those to the float model on ONNX Runtime."""
        judged, model = before_saturation(task.model.graph), task.model
        seen = with_outputs(model, judged.outputs)
        run = OnnxRuntimeModel(seen.proto, model.base_dir, task.request.threads).run
        return Bench(task, placement, judged, run)

    def batches(self, data: Dataset) -> list[Evaluator]:
        """One for each sample."""
        return [
            Evaluator(self.judged, (), data.choose([index]), self.reference, tell_silent=False)
            for index in range(len(data))
        ]

    def noises(self, state: State, batches: Sequence[Evaluator]) -> Noises:
        """By batch; raises RunError if the candidate cannot be run."""
        seen = with_outputs(state.model, self.judged.outputs)
        run = candidates_of(self.task, seen, state.ranges).runner(self.placement)
        return [batch.evaluate(run).noises for batch in batches]


def _nothing(reason: str) -> Recovered:
    part = RecoveryPart(samples=0, held_back=0, kept=False, reason=reason, steps=[])
    return Recovered(part, None)


def _fixed(task: Task) -> frozenset[str]:
    """Tensors whose range the user or an imported model has given."""
    imported = task.model.imported
    return frozenset([*task.pins.by_tensor, *(imported.activations if imported else ())])


def _step_part(attempt: Attempt) -> RecoveryStepPart:
    found = None
    if attempt.before is not None and attempt.after is not None:
        found = [finite(attempt.before), finite(attempt.after)]
    return RecoveryStepPart(
        step=attempt.step,
        kept=attempt.kept,
        layers=attempt.layers,
        held_back_sqnr=found,
        reason=attempt.reason,
    )
