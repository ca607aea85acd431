"""The result of a run with accuracy recovered: other constants in the same layers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placer.accuracy.evaluator import Evaluator
from placer.accuracy.metrics import finite
from placer.optimizer.candidates import Candidates
from placer.optimizer.observer import Observer
from placer.optimizer.task import Task
from placer.optimizer.trial_setup import TrialSetup, candidates_of, reference_of
from placer.quantization import Placement
from placer.recovery.constants import same_layers
from placer.recovery.crossfit import score
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
    most = min(len(data) // 2, _TIMES_NOISE_SAMPLES * task.preset.noise_samples)
    most = max(1, min(most, _BUDGET_BYTES // max(1, peak_bytes(task.model.graph))))
    order = np.random.default_rng(_SEED).permutation(len(data)).tolist()
    learned, held = data.choose(order[:most]), data.choose(order[most : 2 * most])
    observer.stage(f"recovering accuracy on {len(learned)} samples: {', '.join(steps)}")
    reference = reference_of(task, setup.baseline)
    batches = [
        Evaluator(task.model.graph, (), held.choose([index]), reference, tell_silent=False)
        for index in range(len(held))
    ]

    def judge(state: State) -> Noises:
        candidates = candidates_of(task, state.model, state.ranges)
        run = candidates.runner(placement)
        return [batch.evaluate(run).noises for batch in batches]

    few = Evaluator(task.model.graph, (), learned.limit(_LOSS_SAMPLES), reference)

    def loss(state: State) -> float:
        run = candidates_of(task, state.model, state.ranges).runner(placement)
        return -score(few.evaluate(run).noises)

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
