"""What changes of the best trial promise, where predictions or the gates are uncertain."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property

import numpy as np

from placer.search.landscape.landscape import Move, Moves, State, apply
from placer.search.out_of_time import OutOfTime
from placer.search.proposals.further import on_descents
from placer.search.proposals.gated import Gated
from placer.search.proposals.near_best import Predicted, Promising, most_promising, near_best
from placer.search.proposals.outlook import Outlook
from placer.search.proposals.pool_search import FINALISTS, LARGE, PoolSearch
from placer.search.proposals.pools import pool_search
from placer.search.proposals.progress import RESOLUTION
from placer.search.proposals.tried import Tried
from placer.search.records import Skip

# Before the search ends, changes are tried of which so much gain is expected: parts of the float
# model's latency. Under a gate so many that may hold are measured for one trial.
HOPED_SKIPS, LEAST_HOPE = 24, 1e-4
# What is predicted to miss the gates is tried only if at least so much gain is expected of it. So
# many such changes of one placement are looked at, those with the most gain.
LEAST_RISKED, RISKED = 0.02, 16
# Descents of predictions that include errors begin at so many of the best trials, and at so many
# placements in all.
BEST_STARTS, MOST_STARTS = 3, 8


class AroundBest:
    """The surroundings of the best trial that holds; there has to be one."""

    def __init__(self, tried: Tried, outlook: Outlook, gated: Gated, *, per_site: bool) -> None:
        """``per_site``: whether groups may be split."""
        self._tried, self._outlook, self._gated = tried, outlook, gated
        self._land = outlook.landscape
        self._per_site = per_site
        # Of changes of the best trial: what is passed over for its noise changes no latency.
        self._known: dict[Move, Predicted] = {}

    def promising(self) -> State | None:
        """The change of which most gain is expected, with what latencies are off predictions.

        Of groups, or what is further off, where no change of them promises a gain. Where there is
        none and groups may be split, of sites. None once all were tried or miss a gate.
        """
        best = min(self._tried.held())
        changed = self._near(best, self._land.group_moves)
        if changed is None or changed[0] < LEAST_HOPE:
            latency = self._outlook.latency
            further = most_promising(latency, best[0], self._further, self._is_allowed)
            changed = max(filter(None, (changed, further)), default=None)
        if changed is None and self._per_site:
            changed = self._near(best, self._land.all_moves)
        return None if changed is None else changed[1]

    def unsure(self) -> State | None:
        """The change of groups of which most gain is expected, though none is predicted.

        Candidates are what is the fastest by expected costs. More may be expected of what is a
        little slower and far less known.
        """
        changed = self._near(min(self._tried.held()), self._land.group_moves)
        return None if changed is None or changed[0] < LEAST_HOPE else changed[1]

    def risked(self, gain: float) -> State | None:
        """The change of one group that is predicted to miss the gates by little and to gain much.

        More is expected of it than ``gain``, that of what is predicted to hold: of a layer that
        takes half of the time and about all the noise that gates allow, the gain counts, even if
        it is as likely to miss them as not. Changes of the best placement, of nothing quantized
        and of what missed the gates narrowly.
        """
        best, noise = min(self._tried.held()), self._gated.noise
        if noise is None:
            return None
        land, latency, moves = self._land, self._outlook.latency, self._land.group_moves
        objective, promising = self._outlook.objective, list[Promising]()
        near = [] if len(moves) > LARGE else self._tried.near_misses(objective)
        for start in dict.fromkeys((best[1], land.state(land.space.least), *near)):
            gains, changes = land.gains(start, objective, moves)
            enough = gains + land.value(start, objective) < land.value(best[1], objective) - gain
            order = np.argsort(gains, kind="stable")
            new = [i for i in order.tolist() if changes[i] and enough[i]]
            states = (apply(start, [moves.moves[i]]) for i in new[:RISKED])
            for state in (s for s in states if not self._search.holds(s)):
                expected = best[0] - latency.predict(state)[0]
                promising.append((expected * self._gated.chance(state, best[1]), state))
        worth = sorted((own for own in promising if own[0] > max(gain, LEAST_RISKED)), reverse=True)
        return next((state for _, state in worth if self._tried.is_new(state)), None)

    def hoped(self, pass_over: Callable[[Skip], None]) -> State | None:
        """The change of which most gain is expected, be it predicted to hold or not.

        What a sum of noises is off by decides which of the placements at the limit hold it, and one
        measurement of noise tells. Expectation of the gain under the constraint: Schonlau, Welch
        and Jones 1998, Global versus local search in constrained optimization of computer models.
        ``pass_over``: told of what is measured to miss the gates.
        """
        best, gains = min(self._tried.held())[1], self._gains()

        def expected(state: State) -> float:
            return gains[state] * self._gated.chance(state, best)

        new = [s for s, gain in gains.items() if gain > RESOLUTION and self._tried.is_new(s)]
        new = sorted(new, key=expected, reverse=True)[:FINALISTS]
        with suppress(OutOfTime):
            while new and len(self._gated.passed_over) < HOPED_SKIPS:
                state = max(new, key=expected)
                new = [other for other in new if other != state and self._tried.is_new(other)]
                if expected(state) < LEAST_HOPE:
                    return None
                skip = self._gated.too_noisy(state)
                if skip is None:
                    return state
                pass_over(skip)
        return None

    def _near(self, best: tuple[float, State], moves: Moves) -> Promising | None:
        latency, allowed, likely = self._outlook.latency, self._is_allowed, self._is_likely
        return near_best(self._land, latency, best, moves, allowed, likely, self._known)

    @cached_property
    def _further(self) -> list[State]:
        """What may be promising further from the best; nothing in a large landscape."""
        moves, latency = self._land.group_moves, self._outlook.latency
        best = [state for _, state in sorted(self._tried.held())[:BEST_STARTS]]
        starts = [] if len(moves) > LARGE else [*best, *self._outlook.starts]
        starts = list(dict.fromkeys(starts))
        return on_descents(self._land, latency, starts[:MOST_STARTS], moves, self._search.holds)

    def _gains(self) -> dict[State, float]:
        """What changes of the best may gain, and of those that missed the gates narrowly."""
        objective, best = self._outlook.objective, self._tried.best_held()
        moves = self._land.all_moves if self._per_site else self._land.group_moves
        value, gains = self._land.value(best, objective), dict[State, float]()
        for state in (best, *self._tried.near_misses(objective)):
            found = self._search.exchanges(state, objective, moves, value)
            gains.update((other, value - least) for other, least in found.items())
        return gains

    def _is_allowed(self, state: State) -> bool:
        # Whether it is new takes longer to tell.
        return self._search.holds(state) and self._tried.is_new(state)

    def _is_likely(self, state: State) -> bool:
        return not self._tried.has(state) and self._search.holds(state)

    @property
    def _search(self) -> PoolSearch:
        return pool_search(self._outlook, self._gated)
