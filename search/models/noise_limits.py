"""Limits of noise that the gates imply, and probes that find the sites it comes from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress

from placer.search.landscape.landscape import Landscape, Move, State, apply
from placer.search.models.noise_model import NoiseObservation, learn_limit
from placer.search.out_of_time import OutOfTime
from placer.search.records import TrialRecord

# Blocks of sites of less noise than this part of what gates allow are not looked into.
WORTH_PROBING = 0.1
# How many blocks are measured at most, at first and for each trial. No option: the noisiest blocks
# are measured first, and a time limit ends measurements whatever the number.
PROBES, PROBES_PER_TRIAL = 64, 8


def allowed_noise(trials: Sequence[TrialRecord], given: float | None) -> float:
    """The noise power that gates allow, infinite while none was missed.

    ``given``: what the gates say of it themselves; None if it is learned.
    """
    outcomes = [(trial.noise, trial.violation <= 0) for trial in trials if trial.noise is not None]
    if given is None:
        return learn_limit(outcomes)
    return given if any(noise > given for noise, _ in outcomes) else math.inf


class Probes:
    """Measures the noise of blocks of sites, halving those that matter.

    Blocks have their default layouts. Of a group that matters its other layouts are measured, too:
    they may be far quieter than the edges that they quantize let one expect, as where a layer
    writes a few channels that are much larger than the others.
    """

    def __init__(
        self,
        landscape: Landscape,
        measure: Callable[[State], float],
        limit: float,
        *,
        per_site: bool,
        budget: int,
    ) -> None:
        """``measure``: the noise power of a state. ``per_site``: whether groups may be split.

        ``budget``: how many blocks may be measured, those known from earlier included.
        """
        self._land = landscape
        self._measure = measure
        self._limit = limit
        self._per_site = per_site
        self._budget = budget
        self._floats = self._land.state(self._land.space.floats)
        self._defaults = self._land.state(self._land.space.defaults)
        self._group = {s: i for i, members in enumerate(self._land.members) for s in members}
        # The changes of each group, by its sites.
        self._moves: dict[tuple[int, ...], list[Move]] = {group: [] for group in self._land.members}
        for move in self._land.group_moves.moves:
            self._moves[tuple(site for site, _ in move)].append(move)

    def observations(self) -> list[NoiseObservation]:
        """Measure all blocks down to those not worth looking into, parts of the noisiest first.

        Those that are known where no time is left to measure others.
        """
        sites = tuple(
            i for i, (a, b) in enumerate(zip(self._floats, self._defaults, strict=True)) if a != b
        )
        observed: list[NoiseObservation] = []
        with suppress(OutOfTime):
            self._measure_parts(sites, observed)
        return observed

    def _measure_parts(self, sites: tuple[int, ...], observed: list[NoiseObservation]) -> None:
        """Add the parts of ``sites`` to ``observed``, and theirs in turn."""
        waiting = [(math.inf, self._parts(sites))]
        while waiting:
            noise, parts = waiting.pop()
            if noise < WORTH_PROBING * self._limit or len(observed) + len(parts) > self._budget:
                break
            for part in parts:
                state = apply(self._floats, [part])
                power = self._measure(state)
                observed.append(NoiseObservation(state, power))
                if all(self._defaults[site] == layout for site, layout in part):
                    waiting.append((power, self._parts(tuple(site for site, _ in part))))
            waiting.sort()

    def _parts(self, sites: tuple[int, ...]) -> list[Move]:
        """Halves of a block by default; before those of a whole group, its other layouts."""
        halves = [tuple((s, self._defaults[s]) for s in part) for part in self._blocks(sites)]
        if not sites or sites != self._land.members[self._group[sites[0]]]:
            return halves
        seen = {self._floats[sites[0]], self._defaults[sites[0]]}
        return [*(m for m in self._moves[sites] if m[0][1] not in seen), *halves]

    def _blocks(self, sites: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Halves of a block, between groups if it has several."""
        group = self._group
        groups = sorted({group[site] for site in sites})
        if len(groups) > 1:
            first = set(groups[: len(groups) // 2])
            parts = (
                [site for site in sites if group[site] in first],
                [site for site in sites if group[site] not in first],
            )
        elif len(sites) > 1 and self._per_site:
            parts = (list(sites[: len(sites) // 2]), list(sites[len(sites) // 2 :]))
        else:
            return []
        return [tuple(part) for part in parts]
