"""One proposal: the candidates that are looked at, and the one that is worth a trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import TypeGuard

from placer.search.landscape.landscape import Objective, State
from placer.search.models.latency_model import LatencyModel
from placer.search.models.noise_model import NoiseModel
from placer.search.out_of_time import OutOfTime
from placer.search.pareto import FLOAT_MODEL
from placer.search.proposals.exact import solve
from placer.search.proposals.failed_layouts import with_failures
from placer.search.proposals.further import on_descents
from placer.search.proposals.gated import Gated
from placer.search.proposals.knowledge import Knowledge
from placer.search.proposals.near_best import most_promising, near_best
from placer.search.proposals.pool_search import FINALISTS, LARGE, Pool, PoolSearch, best_states
from placer.search.proposals.progress import RESOLUTION, Progress
from placer.search.proposals.repair import pruned, repaired
from placer.search.proposals.starts import starts
from placer.search.records import Skip, TrialRecord
from placer.search.samplers import Proposal

# A change of the best placement, where latencies are off the model.
NEAR = "near the best"
# What is the best under the gates, if predictions are right and changes act in pairs at most.
OPTIMUM = "model optimum"
# What is left of a placement that misses the gates, without what makes it miss them.
REPAIRED = "repaired"
# Before the search ends under a gate, so many changes that may hold are measured for one trial, of
# which so much gain is expected: parts of the float model's latency.
HOPED_SKIPS, LEAST_HOPE = 24, 1e-4
# And of so many trials that missed it narrowly.
NEAR_MISSES = 3
# Descents of predictions that include errors begin at so many of the best trials, and at so many
# placements in all.
BEST_STARTS, MOST_STARTS = 3, 8
# Of what is best around planned states, so many are planned, too.
PLANNED = 8
# Where to look, by whether groups may be split.
Plan = Mapping[bool, Sequence[State]]
NO_PLAN: Plan = MappingProxyType({})
# What random numbers are drawn for.
DRAW, START, NOISE = 1, 2, 3


class Round:
    """One proposal of ``SurrogateProposer``, made from its trials.

    ``target``: noise power within which it looks, besides what gates allow; infinite for the gates
    alone. ``turn``: number of the proposal, which its random numbers hang on. ``explores``: whether
    costs and noise are drawn instead of expected. ``plan``: where to look instead of searching.
    ``expected``: how many of the trials, the last, are as expected and have not ended. ``hopes``:
    see ``Gated``.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        trials: Sequence[TrialRecord],
        target: float,
        turn: int,
        *,
        explores: bool,
        plan: Plan = NO_PLAN,
        expected: int = 0,
        hopes: bool = False,
    ) -> None:
        self._knowledge = knowledge
        self._turn = turn
        self._land = knowledge.landscape
        self._land.guesses.begin()
        self._own = knowledge.own(trials)
        self._target = target
        self._explores = explores
        self._states = [self._land.state(trial.choices) for trial in self._own]
        draw = self._seed(NOISE) if explores else None
        self._gated = Gated(knowledge, trials, target, draw, expected=expected, hopes=hopes)
        skipped = (self._land.state(skip.choices) for skip in self._gated.ruled_out())
        self._tried = {*self._states, *skipped}
        self._forms = {self._land.form(state) for state in self._tried}
        self._progress = Progress(trials, self._own, target)
        self._pools: dict[bool, Pool] = {}
        self._optima: dict[bool, list[State]] = {}
        # Whether the search ends is not decided by what was planned.
        self._planned: Plan = {} if self._progress.has_stalled() else plan
        # Those that were found before the noise of what they led to was known.
        self._outdated: set[bool] = set()
        self._optimum: State | None = None

    def propose(self, *, only_gains: bool) -> Proposal | None:
        """``only_gains``: None unless a gain is predicted, however few trials there are."""
        # With a front, a gain that is predicted at another limit comes first.
        goes_near = self._is_misfit() and not (only_gains and self._knowledge.levels)
        # What one way of looking has nothing left of, the other may: only then has it ended.
        if goes_near and not self._is_far_better():
            return self._near_best() or self._predicted(only_gains=only_gains)
        proposal = self._predicted(only_gains=only_gains)
        return self._near_best() if proposal is None and goes_near else proposal

    def plan(self) -> Plan:
        """What it looks at before it measures any noise."""
        if not self._is_misfit():
            self._candidate()
        elif not self._is_far_better():
            self._change_of_best()
        return self._optima

    def _is_misfit(self) -> bool:
        """Whether latencies are off what layers explain by more than their measurement."""
        has_best = self._progress.holds_best and self._progress.best < math.inf
        return has_best and self._latency.misfit.level > 0

    def _is_far_better(self) -> bool:
        """Whether it is the turn of what layers predict to be best, and that is predicted to be a
        gain with what latencies are off them, too.
        """
        if self._explores or self._progress.has_stalled():
            return False
        candidate = self._candidate()
        expected = None if candidate is None else self._latency.predict(candidate[0])[0]
        return expected is not None and self._progress.is_gain(expected)

    def _near_best(self) -> Proposal | None:
        """A change of the best; None once all were tried or miss a gate."""
        while True:
            state = self._change_of_best()
            if state is None:
                return None
            skip = self._gated.hopeless(state)
            if skip is None:
                return self._proposal(NEAR, state)
            self._pass_over(skip)

    def _change_of_best(self) -> State | None:
        """Of groups, or what is further off, where no change of them promises a gain.

        Where there is none and groups may be split, of sites.
        """
        best = min(self._held())
        allowed, likely = self._is_allowed, self._is_likely
        groups = self._land.group_moves
        changed = near_best(self._land, self._latency, best, groups, allowed, likely)
        if changed is None or changed[0] < LEAST_HOPE:
            further = most_promising(self._latency, best[0], self._further, allowed)
            changed = max(filter(None, (changed, further)), default=None)
        if changed is None and self._knowledge.per_site:
            every = self._land.all_moves
            changed = near_best(self._land, self._latency, best, every, allowed, likely)
        return None if changed is None else changed[1]

    @cached_property
    def _further(self) -> list[State]:
        """What may be promising further from the best; nothing in a large landscape."""
        moves, holds = self._land.group_moves, self._pool_search.holds
        best = [state for _, state in sorted(self._held())[:BEST_STARTS]]
        starts = [] if len(moves) > LARGE else list(dict.fromkeys((*best, *self._starts)))
        return on_descents(self._land, self._latency, starts[:MOST_STARTS], moves, holds)

    def _is_allowed(self, state: State) -> bool:
        # Whether it is new takes longer to tell.
        return self._pool_search.holds(state) and self._is_new(state)

    def _is_likely(self, state: State) -> bool:
        return state not in self._tried and self._pool_search.holds(state)

    def _predicted(self, *, only_gains: bool) -> Proposal | None:
        """The best by the predictions; None if nothing was found that is worth a trial."""
        while True:
            candidate = self._candidate()
            must_gain = only_gains or self._progress.has_stalled()
            if not self._is_useful(candidate) or (must_gain and not self._is_gain(candidate)):
                return None
            state = candidate[0]
            skip = self._gated.hopeless(state)
            if skip is None:
                kind = "explore" if self._explores else "surrogate"
                kind = OPTIMUM if state == self._optimum else kind
                return self._repaired(state) or self._proposal(kind, state)
            self._pass_over(skip)

    def _candidate(self) -> tuple[State, float] | None:
        """The best untried state, of whole groups unless only sites promise a gain."""
        candidate = self._look(per_site=False)
        if self._knowledge.per_site and not self._is_gain(candidate):
            return self._look(per_site=True) or candidate
        return candidate

    def hoped(self) -> Proposal | None:
        """The change of the best of which most gain is expected, be it predicted to hold or not.

        What a sum of noises is off by decides which of the placements at the limit hold it, and one
        measurement of noise tells. Expectation of the gain under the constraint: Schonlau, Welch
        and Jones 1998, Global versus local search in constrained optimization of computer models.
        """
        held = self._held()
        if not held or not self._progress.holds_best:
            return None
        best = min(held)[1]
        moves = self._land.all_moves if self._knowledge.per_site else self._land.group_moves
        value, pool = self._land.value(best, self._objective), dict[State, float]()
        for state in (best, *self._near_misses()):
            pool.update(self._pool_search.exchanges(state, self._objective, moves, value))
        gains = {state: value - other for state, other in pool.items()}

        def expected(state: State) -> float:
            return gains[state] * self._gated.chance(state, best)

        new = [s for s, gain in gains.items() if gain > RESOLUTION and self._is_new(s)]
        new = sorted(new, key=expected, reverse=True)[:FINALISTS]
        with suppress(OutOfTime):
            while new and len(self._gated.passed_over) < HOPED_SKIPS:
                state = max(new, key=expected)
                new = [other for other in new if other != state and self._is_new(other)]
                if expected(state) < LEAST_HOPE:
                    return None
                skip = self._gated.too_noisy(state)
                if skip is None:
                    return self._proposal(NEAR, state)
                self._pass_over(skip)
        return None

    def _near_misses(self) -> list[State]:
        """The tried ones that are the least above what gates allow, and predicted to be faster."""
        value = self._land.value(min(self._held())[1], self._objective)
        missed = sorted(
            (trial.noise, state)
            for trial, state in zip(self._own, self._states, strict=True)
            if trial.noise is not None and trial.violation > 0
        )
        faster = (s for _, s in missed if self._land.value(s, self._objective) < value)
        return list(islice(faster, NEAR_MISSES))

    def _repaired(self, state: State) -> Proposal | None:
        """What of ``state`` holds the gates, where none of what was looked at before did."""
        noise = self._gated.noise
        if noise is None or not self._gated.has_skipped_enough:
            return None
        before = self._best_held()
        repair = repaired(
            self._land, before, state, noise.extras, self._objective, self._gated.holds
        )
        useful = pruned(self._land, before, repair, self._objective)
        if self._is_new(useful) and self._progress.is_gain(self._optimistic(useful)):
            return self._proposal(REPAIRED, useful)
        is_first = before == self._land.state(self._land.space.least)
        return self._proposal(REPAIRED, repair) if is_first and self._is_new(repair) else None

    def _is_new(self, state: State) -> bool:
        return self._land.form(state) not in self._forms

    def _optimistic(self, state: State) -> float:
        """Predicted latency, two standard deviations below what is expected."""
        mean, deviation = self._latency.predict(state)
        return mean - 2 * deviation

    def _best_held(self) -> State:
        """The state of the fastest trial that holds; nothing quantized if there is none."""
        held = self._held()
        return min(held)[1] if held else self._land.state(self._land.space.least)

    def _held(self) -> list[tuple[float, State]]:
        """Latencies and states of the trials that hold the gates within the target."""
        return [
            (trial.ratio, state)
            for state, trial in zip(self._states, self._own, strict=True)
            if trial.ratio is not None and self._progress.feasible([trial])
        ]

    def _proposal(self, kind: str, state: State) -> Proposal:
        return Proposal(kind, self._land.choices(state), tuple(self._gated.passed_over))

    def _pass_over(self, skip: Skip) -> None:
        state = self._land.state(skip.choices)
        self._tried.add(state)
        self._forms.add(self._land.form(state))
        self._gated.pass_over(skip)
        if len(self._land.all_moves) <= LARGE:
            self._outdated = set(self._pools)

    def _seed(self, purpose: int) -> list[int]:
        """Every purpose draws from a seed of its own, however often others draw."""
        return [self._knowledge.seed, self._turn, purpose]

    def _look(self, *, per_site: bool) -> tuple[State, float] | None:
        """The best untried state and its optimistic latency; None if all found were tried."""
        pool = self._pools.get(per_site, {})
        if per_site in self._outdated:
            # Latencies are as they were: only ways on from what turned out too noisy are new.
            self._outdated.remove(per_site)
            last = self._gated.passed_over[-1]
            self._search(pool, [self._land.state(last.choices)], per_site=per_site)
        best = self._best_of(pool)
        if best is None and not pool and per_site in self._planned:
            self._pools[per_site] = pool
            self._follow(self._planned[per_site], pool, per_site=per_site)
            best = self._best_of(pool)
        if best is None:
            self._pools[per_site] = pool
            self._search(pool, self._starts, per_site=per_site)
            best = self._best_of(pool)
        return best

    def _search(self, pool: Pool, starts: Sequence[State], *, per_site: bool) -> None:
        """Add what is found from ``starts`` to ``pool``."""
        moves = self._land.all_moves if per_site else self._land.group_moves
        optima = self._pool_search.optima(self._objective, moves, starts)
        self._complete(pool, optima, per_site=per_site)

    def _follow(self, optima: Sequence[State], pool: Pool, *, per_site: bool) -> None:
        """Add to ``pool`` what is best now of ``optima`` that were planned, and near them."""
        values = self._pool_search.values(optima, self._objective)
        if values:
            self._complete(pool, values, per_site=per_site)

    def _complete(self, pool: Pool, optima: Pool, *, per_site: bool) -> None:
        """Add ``optima`` to ``pool``, what is around them, and the optimum of the predictions."""
        moves = self._land.all_moves if per_site else self._land.group_moves
        ends = list(optima)
        self._pool_search.look_around(optima, self._objective, moves)
        self._optima[per_site] = list(dict.fromkeys((*ends, *best_states(optima, PLANNED))))
        pool.update(optima)
        if not (per_site or self._explores or self._gated.noise is None):
            self._add_optimum(pool, self._gated.noise)

    @cached_property
    def _objective(self) -> Objective:
        draw = self._seed(DRAW) if self._explores else None
        return with_failures(self._latency.objective(draw), self._states, self._own)

    def _add_optimum(self, pool: Pool, noise: NoiseModel) -> None:
        """Add what is best under the gates by the predictions, which descents may miss."""
        if len(self._land.group_moves) > LARGE:
            return
        held = {state: value for state, value in pool.items() if self._pool_search.holds(state)}
        whole = [state for state in best_states(held, FINALISTS) if self._land.is_whole(state)]
        start = whole[0] if whole else self._land.state(self._land.space.least)
        optimum = solve(self._land, self._objective, noise, self._gated.limit, start)
        if optimum is None:
            return
        pool[optimum.state] = self._land.value(optimum.state, self._objective)
        if optimum.proven:
            self._optimum = optimum.state

    def _best_of(self, pool: Pool) -> tuple[State, float] | None:
        search = self._pool_search
        held = {state: value for state, value in pool.items() if search.holds(state)}
        finalists = best_states(held, FINALISTS)
        if not self._explores and self._is_misfit():
            # Descents know nothing of what latencies are off the sum of layers.
            finalists.sort(key=lambda state: (pool[state] + self._latency.error(state), state))
        best = next(filter(self._is_new, finalists), None)
        return None if best is None else (best, self._optimistic(best))

    @property
    def _pool_search(self) -> PoolSearch:
        return PoolSearch(
            self._land,
            self._gated.noise,
            self._gated.limit,
            explores=self._explores,
            turn=self._turn,
        )

    @cached_property
    def _starts(self) -> list[State]:
        trials = list(zip(self._states, self._own, strict=True))
        return starts(self._land, trials, self._progress, self._seed(START))

    @cached_property
    def _latency(self) -> LatencyModel:
        return self._knowledge.latency(self._own)

    def _is_useful(self, candidate: tuple[State, float] | None) -> TypeGuard[tuple[State, float]]:
        """Whether anything was found, for a target anything that may be faster than float."""
        if candidate is None or math.isinf(self._target):
            return candidate is not None
        return candidate[1] < FLOAT_MODEL.latency

    def _is_gain(self, candidate: tuple[State, float] | None) -> bool:
        return candidate is not None and self._progress.is_gain(candidate[1])
