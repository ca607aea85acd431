"""The result of a run with accuracy recovered: other constants in the same layers."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from placer.accuracy.evaluation import Run
from placer.errors import RunError
from placer.optimizer.observer import Observer
from placer.optimizer.setup.candidates import Candidates
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup, candidates_of
from placer.quantization import Placement
from placer.recovery.constants import same_layers
from placer.recovery.recover import (
    StateEvaluator,
    Target,
    nothing,
    recover_state,
    split,
    too_little,
)
from placer.recovery.state import State
from placer.results.parts import RecoveryPart


@dataclass(frozen=True, eq=False)
class Recovered:
    """What recovery found. ``candidates``: of the changed model; None if no step helps."""

    part: RecoveryPart
    candidates: Candidates | None


def recover(
    task: Task,
    setup: TrialSetup,
    placement: Placement,
    steps: Sequence[str],
    observer: Observer,
    until: float = math.inf,
) -> Recovered:
    """Try ``steps`` on ``placement``; what helps on calibration data held back stays.

    ``until``: a ``time.monotonic`` time after which no candidate is compared any more.
    """
    data = task.calibration_data
    reason = too_little(data)
    if reason:
        return Recovered(nothing(reason), None)
    samples = split(data, task.model.graph, task.preset.noise_samples)
    observer.stage(f"recovering accuracy on {len(samples[0])} samples: {', '.join(steps)}")
    first = State(task.model, task.model, setup.ranges)
    target = Target(first, placement, task.pack.manifest.scheme, _fixed(task))
    state, part = recover_state(target, state_evaluator(task, placement, until), samples, steps)
    if not part.kept:
        return Recovered(part, None)
    candidates = candidates_of(task, state.model, state.ranges)
    if not same_layers(setup.candidates.result(placement), candidates.result(placement)):
        reason = "what was changed would change the layers, too"
        return Recovered(part.model_copy(update={"kept": False, "reason": reason}), None)
    return Recovered(part, candidates)


def state_evaluator(task: Task, placement: Placement, until: float = math.inf) -> StateEvaluator:
    """States of ``placement`` as trials have them, on the task's engine; see ``recover``."""

    def run_of(state: State) -> Run:
        if time.monotonic() >= until:
            raise RunError("the time limit left no time for it")
        return candidates_of(task, state.model, state.ranges).runner(placement)

    return StateEvaluator.of(task.model, run_of, task.request.threads)


def _fixed(task: Task) -> frozenset[str]:
    """Tensors whose range the user or an imported model has given."""
    imported = task.model.imported
    return frozenset([*task.pins.by_tensor, *(imported.activations if imported else ())])
