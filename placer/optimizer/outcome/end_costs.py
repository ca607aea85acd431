"""How long the end of a run will take, and the effort that its time limit allows.

The end: the race of the finalists, the confirmation, the file written and judged, plans, report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from placer.optimizer.observer import Observer
from placer.optimizer.options.presets import Preset
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.optimizer.trials.costs import TrialCosts
from placer.quantization import FLOAT_IDS
from placer.recovery.recover import steps_of
from placer.search.records import TrialRecord

# A run ends with the plans of the result and the float model, each about a build, and documents,
# which take so many seconds of CPU time for networks of some hundred nodes.
_PLANS, _DOCUMENTS_S = 2, 2.0
# At most these parts of a time limit are kept for a full end, and for recovery where it is asked
# for. Where that is too little, the end is made with less effort.
_SHARE_OF_END, _SHARE_OF_RECOVERY = 0.3, 0.2
# The least rounds that tell a gain from noise (``placer.common.statistics.paired_ratio``).
_LEAST_ROUNDS = 11


def end_seconds(preset: Preset, costs: TrialCosts, candidates: int, task: Task) -> float:
    """Seconds from the last trial to the end of a run: finals, the file written and judged, plans.

    ``candidates``: how many trials may be finalists.
    """
    front = task.request.front
    finalists = max(1, min(candidates, preset.finalists + 2 * (front or 0)))
    copies = 1 if task.engine.estimated else preset.copies
    points = min(finalists, front or 1)
    rebuilds = copies * (finalists + 1) + points
    seconds = rebuilds * costs.rebuild + 2 * points * costs.judge
    if finalists > 1:
        races = 1 if front else preset.races
        rounds = preset.races * preset.race_rounds if front else preset.race_rounds
        seconds += races * costs.measure(finalists * copies, rounds)
    others = len(task.beats) + task.from_quantized
    seconds += costs.measure((points + 1) * copies + others, preset.confirm_rounds)
    if task.schemes[1:]:  # Finalists and near misses are judged in each of the others.
        judged = len(task.schemes[1:]) * (preset.finalists + 3)
        seconds += judged * (costs.build + costs.judge)
    return seconds + rest_s(costs, task)


def rest_s(costs: TrialCosts, task: Task) -> float:
    """Seconds that remain to be spent once the result is written and judged."""
    return _PLANS * costs.rebuild + _DOCUMENTS_S * task.limit.busy


def lighter(preset: Preset) -> list[Preset]:
    """``preset``, then with ever less effort at the end of a run."""
    rounds = min(_LEAST_ROUNDS, preset.confirm_rounds)
    changes: list[dict[str, int]] = [
        {},
        {"races": 1},
        {"races": 1, "copies": 1},
        {"races": 1, "copies": 1, "finalists": min(2, preset.finalists)},
        {"races": 1, "copies": 1, "finalists": 1},
        {"races": 1, "copies": 1, "finalists": 1, "confirm_rounds": rounds},
    ]
    return [preset.model_copy(update=change) for change in changes]


def affordable(task: Task, costs: TrialCosts, candidates: int, seconds: float) -> Preset:
    """The preset whose end of a run takes at most ``seconds``, or else the one that takes least."""
    presets = lighter(task.preset)
    fitting = (p for p in presets if end_seconds(p, costs, candidates, task) <= seconds)
    return next(fitting, presets[-1])


def kept_for_the_end(task: Task, costs: TrialCosts, candidates: int) -> float:
    """Seconds of the time limit that trials leave to what follows them; 0 without a limit."""
    limit = task.limit.seconds
    if limit is None:
        return 0.0
    full, *_, least = (end_seconds(p, costs, candidates, task) for p in lighter(task.preset))
    return max(least, min(full, _SHARE_OF_END * limit)) + recovery_s(task)


def first_trial_s(task: Task, build_s: float, run_s: float) -> float:
    """Seconds that a first trial and the shortest end take; 0 without a limit.

    ``build_s``, ``run_s``: of the float model's build and of one inference.
    """
    if task.limit.seconds is None:
        return 0.0
    costs = TrialCosts.of_float(build_s, run_s, task)
    return costs.trial + end_seconds(lighter(task.preset)[-1], costs, 1, task) + recovery_s(task)


def finalists_of(records: Sequence[TrialRecord]) -> int:
    """How many of ``records`` may be the result."""
    return sum(r.feasible and r.placement_id not in FLOAT_IDS for r in records)


def kept_by(task: Task, setup: TrialSetup) -> Callable[[Sequence[TrialRecord]], float]:
    """Tells by the trials so far what they leave to what follows; see ``kept_for_the_end``.

    Before a trial was measured, the first one is part of it.
    """

    def kept(records: Sequence[TrialRecord]) -> float:
        costs = TrialCosts.of(records, setup, task)
        seconds = kept_for_the_end(task, costs, finalists_of(records) + 1)
        return seconds if any(record.measurement for record in records) else seconds + costs.trial

    return kept


def with_affordable_end(
    task: Task, setup: TrialSetup, records: Sequence[TrialRecord], observer: Observer
) -> Task:
    """``task`` with as much effort for the end of the run as its time limit leaves room for."""
    if task.limit.seconds is None:
        return task
    costs = TrialCosts.of(records, setup, task)
    seconds = task.limit.left_s - recovery_s(task)
    preset = affordable(task, costs, finalists_of(records), seconds)
    if preset != task.preset:
        observer.stage(
            f"{task.limit.left_s:.1f} s are left: finalists {preset.finalists}, each built "
            f"{_times(preset.copies)}, {preset.confirm_rounds} rounds to confirm the result"
        )
    return replace(task, preset=preset)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def recovery_s(task: Task) -> float:
    """Seconds of the time limit that recovery may take; 0 if it is not asked for."""
    recovers = bool(steps_of(task.request.recover)) and not task.calibration_data.synthetic
    return _SHARE_OF_RECOVERY * task.limit.seconds if recovers and task.limit.seconds else 0.0


def recovery_ends(task: Task, setup: TrialSetup, records: Sequence[TrialRecord]) -> float:
    """The ``time.monotonic`` time at which what recovery has found must be written and judged."""
    if task.limit.seconds is None:
        return math.inf
    costs = TrialCosts.of(records, setup, task)
    return task.limit.end - 2 * (costs.build + costs.judge) - rest_s(costs, task)
