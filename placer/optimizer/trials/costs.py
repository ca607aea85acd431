"""What trials cost, in wall time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from placer.engines.abilities import abilities_of
from placer.engines.rounds import expected_seconds
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.search.records import TrialRecord

# Trials by which it is judged what the next one takes.
RECENT = 5
# Each model is warmed up before it is measured, however few the rounds are.
_WARM_UP_S = 0.1


@dataclass(frozen=True)
class TrialCosts:
    """Seconds of wall time.

    ``build``: until a candidate is built and checked; ``rebuild``: one that was built before.
    ``warm_up``, ``round``: of one model that is
    measured. ``judge``: comparing a candidate's outputs. ``trial``: all of a trial.
    """

    build: float
    rebuild: float
    warm_up: float
    round: float
    judge: float
    trial: float

    def measure(self, models: int, rounds: int) -> float:
        """Measuring ``models`` in turn."""
        return models * (self.warm_up + rounds * self.round)

    @staticmethod
    def of(records: Sequence[TrialRecord], setup: TrialSetup, task: Task) -> TrialCosts:
        """By the last trials; before there is one that was measured, by the float model."""
        recent = [r for r in records if r.measurement is not None and r.seconds > 0][-RECENT:]
        if not recent:
            return TrialCosts.of_float(setup.float_build_s, setup.float_run_s, task)
        models = 2 + len(setup.latency_baselines.measured)
        measured = (
            median(r.measurement.seconds for r in recent if r.measurement is not None) / models
        )
        warm_up = min(_WARM_UP_S, measured)
        judged = [r.judgement.seconds for r in recent if r.judgement is not None]
        rest = [
            record.seconds
            - (record.measurement.seconds if record.measurement is not None else 0.0)
            - (record.judgement.seconds if record.judgement is not None else 0.0)
            for record in recent
        ]
        build = max(0.0, median(rest))
        return TrialCosts(
            build=build,
            rebuild=_rebuild(build, task),
            warm_up=warm_up,
            round=(measured - warm_up) / task.preset.rounds,
            judge=median(judged) if judged else 0.0,
            trial=max(record.seconds for record in recent),
        )

    @staticmethod
    def of_float(build: float, run: float, task: Task) -> TrialCosts:
        """What the float model's ``build`` and one ``run`` of it, in seconds, let one expect."""
        judge = len(task.evaluation_data) * run
        if task.engine.estimated:
            return TrialCosts(build, _rebuild(build, task), 0.0, 0.0, judge, build + judge)
        warm_up, of_round = expected_seconds(run)
        costs = TrialCosts(build, build, warm_up, of_round, judge, 0.0)
        return replace(costs, trial=build + costs.measure(2, task.preset.rounds) + judge)


def _rebuild(build: float, task: Task) -> float:
    """What was built is kept where plans are built (``placer.engines.tensorrt.build_cache``)."""
    return 0.0 if "built-plans" in abilities_of(task.engine) else build
