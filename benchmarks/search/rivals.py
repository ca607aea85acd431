"""Plain searches that ours is compared with. All begin with the same placements, if told to.

Each is asked for the next placement and told of all trials so far. A placement that was tried is
no trial for anybody: rivals look at what they know of it and go on. Under a gate TPE is told by how
much trials miss it; for the others a trial that misses it is worse than all that meet it, and the
worse the more it does.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from placer.search.records import TrialRecord
from placer.search.samplers import Proposal
from placer.search.space import Choices, Space

# Sampling that keeps returning known placements has nothing left to find.
MOST_REPEATS = 1_000
# More than any latency, as a share of the float model's.
MISSED = 1_000.0


class AskedProposer:
    """One of Optuna's samplers, asked and told; gates are constraints of trials."""

    def __init__(
        self,
        kind: str,
        space: Space,
        sampler: optuna.samplers.BaseSampler,
        starts: Sequence[Choices],
    ) -> None:
        """``starts``: placements to begin with."""
        self._kind = kind
        self._space = space
        self._study = optuna.create_study(sampler=sampler)
        self._asked: optuna.Trial | None = None
        for start in starts:
            self._study.enqueue_trial(self.encoded(start))

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``placer.search.samplers.Proposer``; repeats are told what is known of them."""
        known = {trial.placement_id: trial for trial in trials}
        for _ in range(MOST_REPEATS):
            if self._asked is None:
                self._asked = self._study.ask(self.distributions())
            choices = self.decoded(self._asked)
            twin = known.get(self._space.placement(choices).id)
            if twin is None:
                return Proposal(self._kind, choices)
            for name, value in self.constraints(twin).items():
                self._asked.set_constraint(name, value)
            self._study.tell(self._asked, self.value(twin))
            self._asked = None
        return None

    def constraints(self, trial: TrialRecord) -> dict[str, float]:
        """By how much it misses gates, as the sampler is told."""
        return trial.constraints

    def value(self, trial: TrialRecord) -> float | None:
        """What the sampler is to minimize, None if the trial failed."""
        return trial.ratio

    def distributions(self) -> dict[str, BaseDistribution]:
        """What the sampler knows of the decisions."""
        return {g.name: CategoricalDistribution(g.layouts) for g in self._space.groups}

    def encoded(self, choices: Choices) -> dict[str, object]:
        """Parameters that ``decoded`` makes ``choices`` of."""
        return dict(choices)

    def decoded(self, trial: optuna.Trial) -> dict[str, str]:
        """The choices of a trial."""
        return dict(trial.params)


class CmaEsProposer(AskedProposer):
    """Optuna's CMA-ES, which knows numbers only: a group's layouts share the unit interval.

    It knows no constraints and ranks trials, so what misses a gate is told to be slower than all.
    """

    def __init__(self, space: Space, seed: int, starts: Sequence[Choices]) -> None:
        """The first generation is drawn around the pack's default."""
        self._space = space
        with warnings.catch_warnings():
            # Optuna 6 is to drop where to begin, without which it begins in the middle.
            warnings.simplefilter("ignore", FutureWarning)
            sampler = optuna.samplers.CmaEsSampler(
                x0=self.encoded(space.defaults),
                sigma0=0.25,
                seed=seed,
                warn_independent_sampling=False,
            )
        super().__init__("cma-es", space, sampler, starts)

    def constraints(self, _: TrialRecord) -> dict[str, float]:
        """None: see the class."""
        return {}

    def value(self, trial: TrialRecord) -> float | None:
        """See the class."""
        if trial.ratio is None or trial.violation <= 0:
            return trial.ratio
        return MISSED + trial.violation

    def distributions(self) -> dict[str, BaseDistribution]:
        """A number from 0 to 1 for every group."""
        return {group.name: FloatDistribution(0.0, 1.0) for group in self._space.groups}

    def encoded(self, choices: Choices) -> dict[str, object]:
        """The middle of each layout's share."""
        return {
            g.name: (g.layouts.index(choices[g.name]) + 0.5) / len(g.layouts)
            for g in self._space.groups
        }

    def decoded(self, trial: optuna.Trial) -> dict[str, str]:
        """The layouts whose shares the numbers are in."""
        found = {}
        for group in self._space.groups:
            index = int(trial.params[group.name] * len(group.layouts))
            found[group.name] = group.layouts[min(index, len(group.layouts) - 1)]
        return found


class TpeProposer(AskedProposer):
    """Optuna's TPE with its own defaults."""

    def __init__(self, space: Space, seed: int, starts: Sequence[Choices] = ()) -> None:
        super().__init__("tpe", space, optuna.samplers.TPESampler(seed=seed), starts)


class StartedProposer:
    """Another search after the same beginning."""

    def __init__(
        self,
        space: Space,
        starts: Sequence[Choices],
        after: Callable[[Sequence[TrialRecord]], Proposal | None],
    ) -> None:
        self._space, self._starts, self._after = space, starts, after

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``placer.search.samplers.Proposer``."""
        tried = {trial.placement_id for trial in trials}
        for start in self._starts:
            if self._space.placement(start).id not in tried:
                return Proposal("start", start)
        return self._after(trials)


class LocalProposer:
    """Changes one group of the best at a time, in random order, and keeps what is faster.

    Where no change of one group is left, it goes on from the best with two random changes.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._rng = np.random.default_rng(seed)
        self._around: tuple[str, Iterator[Choices]] | None = None

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``placer.search.samplers.Proposer``."""
        tried = {trial.placement_id for trial in trials}
        best = min(trials, key=lambda t: (t.violation, t.ratio if t.ratio is not None else np.inf))
        if self._around is None or self._around[0] != best.placement_id:
            self._around = best.placement_id, self._changes(best.choices)
        for choices in self._around[1]:
            if self._space.placement(choices).id not in tried:
                return Proposal("local", choices)
        return None

    def _changes(self, best: Choices) -> Iterator[Choices]:
        single = [
            (g.name, layout)
            for g in self._space.groups
            for layout in g.layouts
            if layout != best[g.name]
        ]
        for index in self._rng.permutation(len(single)):
            yield {**best, **dict([single[int(index)]])}
        for _ in range(MOST_REPEATS):
            picks = self._rng.choice(len(single), size=min(2, len(single)), replace=False)
            yield {**best, **dict(single[int(i)] for i in picks)}


class _InTurn(ABC):
    """What a generator yields that sees the trials so far; known placements are left out."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._trials: Sequence[TrialRecord] = ()
        self._proposals = self._all()

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``placer.search.samplers.Proposer``."""
        self._trials = trials
        tried = {trial.placement_id for trial in trials}
        for choices in self._proposals:
            if self._space.placement(choices).id not in tried:
                return Proposal("greedy", choices)
        return None

    @abstractmethod
    def _all(self) -> Iterator[Choices]:
        """Asked one by one, so that each knows what the one before found."""


class GreedyProposer(_InTurn):
    """Tries every change of one group of the best start, then adds those that gained together.

    The change that gained most comes first; each of the others stays if it makes the best faster.
    Where none is left, it begins again around the best.
    """

    def _all(self) -> Iterator[Choices]:
        last = np.inf
        while (before := self._best()[0]) < last:
            last, start = self._best()
            changes = [
                {g.name: layout}
                for g in self._space.groups
                for layout in g.layouts
                if layout != start[g.name]
            ]
            for change in changes:
                yield {**start, **change}
            gains = [(before - self._ratio({**start, **own}), own) for own in changes]
            for gain, change in sorted(gains, key=lambda own: -own[0]):
                if gain > 0:
                    yield {**self._best()[1], **change}

    def _best(self) -> tuple[float, Choices]:
        return min(
            ((t.ratio, t.choices) for t in self._trials if t.ratio is not None),
            key=lambda own: own[0],
        )

    def _ratio(self, choices: Choices) -> float:
        """The latency of what was tried."""
        wanted = self._space.placement(choices).id
        found = (t.ratio for t in self._trials if t.placement_id == wanted)
        return next((ratio for ratio in found if ratio is not None), np.inf)


class QuietestProposer(_InTurn):
    """The quietest groups, as many as meet the gate by bisection, then each of the others.

    ``noise``: of each group alone, in the pack's default layout. Whatever meets the gate stays.
    """

    def __init__(self, space: Space, noise: Mapping[str, float]) -> None:
        super().__init__(space)
        self._noise = noise

    def _all(self) -> Iterator[Choices]:
        defaults = self._space.defaults
        ranked = sorted(self._noise, key=self._noise.__getitem__)
        low, high = 0, len(ranked)
        while low < high:
            middle = (low + high + 1) // 2
            choices = self._quantized(ranked[:middle])
            yield choices
            if self._holds(choices):
                low = middle
            else:
                high = middle - 1
        best = self._quantized(ranked[:low])
        for name in ranked[low:]:
            choices = {**best, name: defaults[name]}
            yield choices
            if self._holds(choices):
                best = choices

    def _quantized(self, names: Sequence[str]) -> Choices:
        return {**self._space.floats, **{name: self._space.defaults[name] for name in names}}

    def _holds(self, choices: Choices) -> bool:
        """Whether what was tried meets the gate."""
        wanted = self._space.placement(choices).id
        return any(trial.feasible for trial in self._trials if trial.placement_id == wanted)


def decided_by_default(space: Space) -> list[str]:
    """Groups that the pack's default quantizes."""
    return [g.name for g in space.groups if space.floats[g.name] != space.defaults[g.name]]
