"""The trials of one device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

from placer.common.cores import usable_cores
from placer.engines.isolation import IsolatedEngine
from placer.optimizer.outcome.near_misses import recoverable_noise
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.optimizer.trials.layer_times import (
    ProfiledLayers,
    keep_layers,
    layer_costs,
    remembered_layers,
)
from placer.optimizer.trials.proposer import make_landscapes, make_proposer
from placer.optimizer.trials.search_time import SearchTime, TimedProposer
from placer.optimizer.trials.trial import TrialRunner
from placer.results.parts import StopReason
from placer.search.ahead import RehearsingSearch
from placer.search.proposals.surrogate import SurrogateProposer
from placer.search.records import TrialRecord
from placer.search.samplers import Proposer
from placer.search.study.study import Evaluate, Study

OnTrial = Callable[[TrialRecord], None]


@dataclass(frozen=True, eq=False)
class Device:
    """One device and what its trials are made with; ``task.engine`` runs on it."""

    task: Task
    setup: TrialSetup


class DeviceSearch:
    """What one device does; all that devices share is read before any of them begins.

    ``earlier``: the study's trials so far. ``on_probe`` is told how often noise alone was measured.
    """

    def __init__(
        self,
        device: Device,
        study: Study,
        earlier: Sequence[TrialRecord],
        spent: SearchTime,
        on_probe: Callable[[int], None],
    ) -> None:
        task, setup = device.task, device.setup
        self._task, self._study, self._spent = task, study, spent
        self._landscapes = make_landscapes(task)
        self._costs = {base: layer_costs(task, base) for base in self._landscapes}
        remembered = {
            base: remembered_layers(task, setup, study, base, known)
            for base, known in self._costs.items()
        }
        self._proposer = make_proposer(
            task, setup, study, self._landscapes, remembered, on_probe, spent
        )
        self._runner = TrialRunner(
            setup.candidates,
            setup.evaluator,
            setup.baseline,
            task.inputs,
            task.preset.rounds,
            task.sites,
            setup.latency_baselines,
            layers=ProfiledLayers(task, self._landscapes, earlier),
            earlier=earlier,
            judge_all=task.request.front is not None,
            recoverable=recoverable_noise(task),
        )

    def run(self, tell: OnTrial, stop: Event) -> StopReason:
        """Run trials until nothing is left to do or ``stop`` is set; ``tell`` is told of each."""
        records: list[TrialRecord] = []

        def on_trial(record: TrialRecord) -> None:
            records.append(record)
            tell(record)

        try:
            return self._trials(on_trial, stop)
        finally:
            self._keep_layers(records)

    def _trials(self, on_trial: OnTrial, stop: Event) -> StopReason:
        """Run trials; where cores are left, proposals are worked out beside measurements."""
        if not isinstance(self._proposer, SurrogateProposer) or not leaves_cores(self._task):
            return self._run_study(self._proposer, self._runner, on_trial, stop)
        alone = not self._study.shared and len(self._task.request.devices) <= 1
        rehearsing = RehearsingSearch(self._proposer, self._runner, alone=alone)
        try:
            return self._run_study(rehearsing, rehearsing.evaluate, on_trial, stop)
        finally:
            rehearsing.close()

    def _run_study(
        self, proposer: Proposer, evaluate: Evaluate, on_trial: OnTrial, stop: Event
    ) -> StopReason:
        deadline = None if math.isinf(self._spent.deadline) else self._spent.deadline
        if deadline is not None:
            proposer = TimedProposer(proposer, self._landscapes.values(), self._spent)
        return self._study.run(
            proposer,
            evaluate,
            budget=self._task.budget,
            deadline=deadline,
            on_trial=on_trial,
            stop=stop,
            kept_s=self._spent.kept_s,
        )

    def _keep_layers(self, records: Sequence[TrialRecord]) -> None:
        """Store what layers took in ``records``, for later runs."""
        task = self._task
        for base, landscape in self._landscapes.items():
            in_base = [r for r in records if task.base_of(task.space.placement(r.choices)) == base]
            keep_layers(self._costs[base], landscape, in_base)


def leaves_cores(task: Task) -> bool:
    """Whether proposals may be worked out beside measurements without disturbing them.

    The engine must run in a process of its own, and a core be left by its threads on all devices.
    """
    busy = task.request.threads * max(1, len(task.request.devices))
    return isinstance(task.engine, IsolatedEngine) and usable_cores() > busy
