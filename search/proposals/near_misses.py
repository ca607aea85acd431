"""What holds the gates among changes of fast placements that miss them, by measuring its noise.

Sums of noises say little of placements that quantize much: noise saturates, what follows a site
amplifies it, and a change that should add noise may as well take some away. Many changes cost next
to no latency, and some of them hold a gate that the placement misses narrowly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placer.search.landscape.landscape import Landscape, State, apply
from placer.search.models.agreement import Agreement
from placer.search.models.latency_model import LatencyModel
from placer.search.models.noise_model import LEAST, NoiseModel
from placer.search.proposals.near_best import predicted

# So many placements are measured for one proposal.
MEASUREMENTS = 12
# Standard deviation of the logarithm of a change's noise against what is expected of it, before any
# was measured, and the weight of that in changes.
SPREAD, WEIGHT = 0.25, 2.0
# A change is measured if so much gain is expected of it, in parts of the float model's latency, and
# tried if it holds the gates with this chance.
LEAST_GAIN, LEAST_CHANCE = 1e-3, 0.5
# Of the changes of a placement so many are looked at, those with the least predicted latency.
LOOKED_AT = 64


@dataclass(frozen=True, eq=False)
class NearMisses:
    """Looks for what is fast among changes of single groups, and changes of these in turn.

    ``measure``: the noise power of a state on a few samples, which relates to that on all by
    ``few``. ``is_new``: whether a state is untried. ``limit``: noise power that the gates allow.
    """

    landscape: Landscape
    latency: LatencyModel
    noise: NoiseModel
    measure: Callable[[State], float]
    is_new: Callable[[State], bool]
    few: Agreement
    limit: float

    def best(self, starts: Mapping[State, float], most: float) -> State | None:
        """What promises most gain over the latency ``most``; None if nothing is likely to hold.

        ``starts``: where to begin, with the noise of their trials.
        """
        noises, waiting = dict(starts), dict[State, tuple[float, float]]()
        for start in starts:
            self._add_changes(start, noises, waiting, most)
        errors, gains = list[float](), dict[State, float]()
        while len(errors) < MEASUREMENTS:
            spread = _spread(errors, self.few.deviation)
            around = math.hypot(spread, self.few.deviation)
            expected = {
                state: (most - latency) * self._chance(mean, around)
                for state, (latency, mean) in waiting.items()
            }
            state = max(expected, key=expected.__getitem__, default=None)
            if state is None or expected[state] < LEAST_GAIN:
                break
            latency, mean = waiting.pop(state)
            if not self.is_new(state):
                continue
            errors.append(math.log(max(self.few.factor * self.measure(state), LEAST) / mean))
            # The quietest of several owes that to the samples in part, which trials do not repeat.
            part = spread**2 / (spread**2 + self.few.deviation**2)
            noises[state] = mean * math.exp(part * errors[-1])
            chance = self._chance(noises[state], math.sqrt(part) * self.few.deviation)
            if chance >= LEAST_CHANCE:
                gains[state] = (most - latency) * chance
            self._add_changes(state, noises, waiting, most)
        return max(gains, key=gains.__getitem__, default=None)

    def _add_changes(
        self,
        base: State,
        noises: Mapping[State, float],
        waiting: dict[State, tuple[float, float]],
        most: float,
    ) -> None:
        """Add latency and expected noise of changes of ``base`` that are faster than ``most``."""
        land, moves = self.landscape, self.landscape.group_moves
        gains, changes = land.gains(base, self.latency.objective(), moves)
        useful = changes & land.alters(base, moves)
        order = [i for i in np.argsort(gains, kind="stable").tolist() if useful[i]]
        looked_at = [moves.moves[index] for index in order[:LOOKED_AT]]
        before = self.noise.predict(base)
        for move, (latency, _) in predicted(land, self.latency, base, looked_at).items():
            state = apply(base, [move])
            if latency < most and state not in noises and state not in waiting:
                mean = noises[base] + self.noise.predict(state) - before
                waiting[state] = latency, max(mean, noises[base] / 4, LEAST)

    def _chance(self, noise: float, deviation: float) -> float:
        """How likely the gates hold where the logarithm of ``noise`` has this ``deviation``."""
        room = math.log(self.limit / max(noise, LEAST))
        return 0.5 * (1 + math.erf(room / (math.sqrt(2) * deviation)))


def _spread(errors: Sequence[float], deviation: float) -> float:
    """Standard deviation of changes' noise: what ``errors`` have beyond that of few samples."""
    squares = math.fsum(max(0.0, error**2 - deviation**2) for error in errors)
    return math.sqrt((WEIGHT * SPREAD**2 + squares) / (WEIGHT + len(errors)))
