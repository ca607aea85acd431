"""Descents to states of least predicted latency within a limit of predicted noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations

import numpy as np

from placer.search.landscape.descent import Near, descend
from placer.search.landscape.landscape import Landscape, Move, Moves, Objective, State, apply
from placer.search.landscape.moves import sites_of
from placer.search.models.noise_model import NoiseModel
from placer.search.proposals.fill import filled, price_at_limit
from placer.search.proposals.starts import RESTARTS

# Prices of noise to search with: parts of the float model's latency for all noise that gates allow.
PRICES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
# Of the states found, so many are looked at one by one, fewer of those in a vast landscape, and
# where none can turn out too noisy there, so many that are new.
FINALISTS, FEW_FINALISTS, FEWEST_FINALISTS = 64, 16, 2
# Predicted noise up to this part of the limit is worth a look.
BORDER = 1.2
# Of all changes, so many of each kind are looked at in pairs, the fewer in a vast landscape.
EXCHANGES, FEW_EXCHANGES = 100, 32
# With more changes than this to choose from, most parts of the model are too far from each other to
# need many starting points: descents begin at the best placement and one other, where gates bind in
# turn, and go on from price to price.
LARGE = 600
MAX_EXCHANGES = 40
# In a vast landscape so many descents at most look for the price, which rises by this factor at
# least as long as it is too low.
DESCENTS, DEARER = 4, 1.5

Pool = dict[State, float]
IsNew = Callable[[State], bool]


class PoolSearch:
    """Collects states that may hold the gates, with their objective."""

    def __init__(
        self,
        landscape: Landscape,
        noise: NoiseModel | None,
        limit: float,
        *,
        explores: bool,
        turn: int,
    ) -> None:
        """``noise``: None while gates do not bind. ``limit``: the noise power that they allow.

        ``explores``: whether to look a little beyond it. ``turn``: number of the proposal; large
        models take another starting point in every turn.
        """
        self._land = landscape
        self._noise = noise
        self._limit = limit
        self._explores = explores
        self._turn = turn
        self._is_large = len(landscape.all_moves) > LARGE

    def optima(self, objective: Objective, moves: Moves, starts: Sequence[State]) -> Pool:
        """Local optima from ``starts``, the best known first."""
        pool: Pool = {}
        noise = self._noise
        if noise is not None and self._land.is_vast:
            for state in self._at_limit(self._start(starts), objective, moves, noise):
                self._add(pool, state, objective)
            return pool
        too_noisy = 0.0  # The highest price so far at which what was found was too noisy.
        for start, prices in self._descents(starts, priced=noise is not None):
            if max(prices) < too_noisy:
                continue
            state = start
            for price in prices:
                priced = objective if noise is None else self._priced(objective, price, noise)
                state = descend(self._land, state, priced, moves, roughly=self._is_rough)
                self._add(pool, state, objective)
                if prices[0] > prices[-1] and not self.holds(state):
                    too_noisy = price  # With cheaper noise it is noisier still.
                    break
        return pool

    @property
    def _is_vast_and_free(self) -> bool:
        """Whether gates do not bind in a vast landscape."""
        return self._noise is None and self._land.is_vast

    @property
    def _is_rough(self) -> bool:
        """Whether descents are: a draw moves hundreds of groups of a vast landscape at once, each
        of which is met among layouts that no other placement has.
        """
        return self._explores and self._is_vast_and_free

    def values(self, states: Sequence[State], objective: Objective) -> Pool:
        """Those of ``states`` that may hold the gates."""
        pool: Pool = {}
        for state in states:
            self._add(pool, state, objective)
        return pool

    def look_around(
        self, pool: Pool, objective: Objective, moves: Moves, is_new: IsNew | None = None
    ) -> None:
        """Add what is better or little worse than the best of ``pool``.

        ``is_new``: whether a state is untried, given where the first such state will be proposed.
        In a vast landscape without gates, worse states are then added only if none of ``pool`` is
        new; for a draw nothing is looked for once one is.
        """
        noise = self._noise
        if is_new is not None and self._is_rough and any(map(is_new, pool)):
            return
        for state in best_states(pool, 2):
            if noise is None:
                better = descend(self._land, state, objective, moves)
            elif self._land.is_vast:
                better = filled(self._land, state, objective, moves, noise, self._limit)
            else:
                better = self._exchange(state, objective, moves, noise)
            self._add(pool, better, objective)
        if is_new is not None and self._is_vast_and_free:
            if not any(map(is_new, pool)):
                state = best_states(pool, 1)[0]
                pool.update(self._new_beside(state, pool[state], objective, moves, is_new))
            return
        for state in best_states(pool, 2):
            for other, value in self._beside(state, pool[state], objective, moves).items():
                pool.setdefault(other, value)

    def _new_beside(
        self, state: State, value: float, objective: Objective, moves: Moves, is_new: IsNew
    ) -> Pool:
        """Some new ones that differ by one change; the best of those whose effect is known.

        Else the best of all. Next to an optimum nearly all changes are losses or nothing, which
        their guesses do not tell: thousands would be asked about.
        """
        near, beside = Near(self._land, state, objective, moves), Pool()
        for index, gain in chain(near.known_in_order(), near.in_order()):
            other = apply(state, [moves.moves[index]])
            if other not in beside and is_new(other):
                beside[other] = value + gain
            if len(beside) == FEWEST_FINALISTS:
                break
        return beside

    def _beside(self, state: State, value: float, objective: Objective, moves: Moves) -> Pool:
        """What is best of all that differs by one change."""
        near, beside = Near(self._land, state, objective, moves), Pool()
        left = FEW_FINALISTS if self._land.is_vast else FINALISTS
        for index, gain in near.in_order():
            other = apply(state, [moves.moves[index]])
            if self.holds(other):
                beside.setdefault(other, value + gain)
                left -= 1
            if not left:
                break
        return beside

    def exchanges(self, state: State, objective: Objective, moves: Moves, most: float) -> Pool:
        """What one change of ``state`` or two may lead to that is less than ``most``.

        Whether or not it holds the limit.
        """
        if self._noise is None:
            return {}
        promising = self._promising(state, objective, moves, self._noise)
        room = most - self._land.value(state, objective)
        single = [(gain, [move]) for gain, _, move in promising if gain < room]
        pairs = [
            (gain + other_gain, [move, other])
            for (gain, _, move), (other_gain, _, other) in combinations(promising, 2)
            if gain + other_gain < room and not sites_of(move) & sites_of(other)
        ]
        states = [apply(state, change) for _, change in sorted((*single, *pairs))]
        return {other: self._land.value(other, objective) for other in dict.fromkeys(states)}

    def _descents(
        self, starts: Sequence[State], *, priced: bool
    ) -> Iterator[tuple[State, tuple[float, ...]]]:
        """Where to begin, and the prices of noise at which to go on from there in turn."""
        if self._is_large:
            if priced:
                yield self._start(starts), PRICES[::-2]
            elif self._land.is_vast:
                yield self._start(starts), PRICES[:1]
            else:
                yield from ((start, PRICES[:1]) for start in (starts[0], self._other(starts)))
            return
        if not priced:
            yield from ((start, PRICES[:1]) for start in starts)
            return
        # From price to price little changes: noise becomes cheaper, or dearer.
        yield from zip(starts, (PRICES[::-1], PRICES), strict=False)
        for price in (PRICES[0], PRICES[3]):
            yield from ((start, (price,)) for start in starts[2:])

    def _start(self, starts: Sequence[State]) -> State:
        """Where to begin in a vast landscape, or in a large one in which noise has a price."""
        return (starts[0], self._other(starts))[self._turn // 2 % 2]

    def _other(self, starts: Sequence[State]) -> State:
        """Another start than the best placement, in turn.

        From extremes much has to be asked about in a vast landscape that is of no use later.
        """
        near = (*starts[1:2], *starts[-RESTARTS:])
        others = near if self._land.is_vast else starts[1:]
        return others[self._turn % len(others)]

    def _at_limit(
        self, start: State, objective: Objective, moves: Moves, noise: NoiseModel
    ) -> Iterator[State]:
        """Where descents end at the price at which noise is expected to hold the limit.

        As long as it does not, at the price that follows from there.
        """
        state, price = start, 0.0
        for _ in range(DESCENTS):
            expected = price_at_limit(self._land, state, objective, noise, self._limit)
            price = max(expected, price * DEARER)
            state = descend(self._land, state, self._priced(objective, price, noise), moves)
            yield state
            if self.holds(state):
                return

    def _add(self, pool: Pool, state: State, objective: Objective) -> None:
        if self.holds(state):
            pool[state] = self._land.value(state, objective)

    def _exchange(
        self, state: State, objective: Objective, moves: Moves, noise: NoiseModel
    ) -> State:
        """Improve within the noise limit by one change, or by two that trade noise for latency."""
        for _ in range(MAX_EXCHANGES):
            room = self._limit - noise.predict(state)
            chosen = _best_exchange(self._promising(state, objective, moves, noise), room)
            after = apply(state, chosen)
            if not chosen or self._land.value(after, objective) >= self._land.value(
                state, objective
            ):
                return state
            state = after
        return state

    def _promising(
        self, state: State, objective: Objective, moves: Moves, noise: NoiseModel
    ) -> list[tuple[float, float, Move]]:
        """The changes that gain most latency or free most noise, the best first."""
        near = Near(self._land, state, objective, moves)
        noises = moves.change(noise.extras, state)
        changing = np.flatnonzero(moves.changing(state))
        count = FEW_EXCHANGES if self._land.is_vast else EXCHANGES
        while True:
            gains = near.gains()
            best = {
                int(i)
                for key in (gains, noises)
                for i in changing[np.argsort(key[changing], kind="stable")[:count]]
            }
            if not near.asks(np.array(sorted(best), dtype=int)):
                return sorted((float(gains[i]), float(noises[i]), moves.moves[i]) for i in best)

    def _priced(self, objective: Objective, price: float, noise: NoiseModel) -> Objective:
        return Objective(objective.costs, objective.extras + price / self._limit * noise.extras)

    def holds(self, state: State) -> bool:
        """Whether ``state`` is predicted to hold the limit."""
        # What may only just miss is looked at where the search explores: noise adds up roughly.
        limit = self._limit * (BORDER if self._explores else 1.0)
        return self._noise is None or self._noise.predict(state) <= limit


def best_states(pool: Pool, count: int) -> list[State]:
    """The states of the least objective."""
    return sorted(pool, key=lambda state: (pool[state], state))[:count]


def _best_exchange(candidates: Sequence[tuple[float, float, Move]], room: float) -> list[Move]:
    """The change, or the two of unlike sites, that gain most within ``room`` for more noise."""
    best: tuple[float, list[Move]] = (-1e-9, [])
    for i, (gain, noise, move) in enumerate(candidates):
        if gain < best[0] and noise <= room:
            best = (gain, [move])
        for other_gain, other_noise, other in candidates[i + 1 :]:
            if gain + other_gain >= best[0]:
                break  # Sorted by gain: no later one does better.
            if noise + other_noise <= room and not sites_of(move) & sites_of(other):
                best = (gain + other_gain, [move, other])
    return best[1]
