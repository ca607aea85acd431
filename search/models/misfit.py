"""The misfit: how far latencies of whole candidates are from the sum of their layers' costs.

Layers slow each other down, engines fuse and reformat what no rule predicts: then no costs of
layers explain all latencies. What is left over is taken as a Gaussian process over placements
(Rasmussen & Williams, Gaussian Processes (2006), 2.7 and 5.4.1). Either placements that differ in
few groups are off alike, or what each two neighbouring groups do to each other adds up, so that two
placements are off alike as far as neighbours have the same layouts in both, wherever else they
differ, or what is quantized by one rule is off alike, so that placements are which quantize as much
by each rule. Which of these it is, or which two at once, how far placements are off, and in how
many groups they may differ is what makes the measured latencies most probable. The two may be of
one kind; their variances add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from placer.search.landscape.landscape import Landscape, Moves, State
from placer.search.models.bayesian_linear import Summed

# What is chosen from: standard deviations, in units of the float model's latency, and numbers of
# groups over which their correlation falls by e, or the sum over neighbours or over rules.
DEVIATIONS, LENGTH_SCALES = (0.003, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32), (2.0, 6.0, 20.0)
NEIGHBOURS, RULES = 0.0, -1.0
# By how much the logarithm of the evidence must be better than without a part of the misfit, and
# how many parts there may be.
EVIDENT, PARTS = 2.0, 2


class Correlation:
    """The correlation of the errors of placements."""

    def __init__(self, landscape: Landscape, states: Sequence[State]) -> None:
        """``states``: those measured."""
        sizes = np.array([len(members) for members in landscape.members], dtype=int)
        self._starts = np.cumsum(sizes) - sizes
        self._groups = np.repeat(np.arange(len(sizes)), sizes)
        # A group of which some sites differ counts in part.
        self._weights = np.repeat(1 / np.maximum(sizes, 1), sizes)
        self._states = np.array(states, dtype=int).reshape(len(states), len(landscape.sites))
        # In a vast model there are too many neighbours to compare for every placement.
        pairs = () if landscape.is_vast else landscape.neighbours
        self._first, self._second = np.array(pairs, dtype=int).reshape(-1, 2).T
        self._factors = np.random.default_rng(0).integers(1 << 63, size=len(self._weights)) | 1
        self._beside = self._layouts_beside(self._states)
        # By site and rule, what part of the rule's groups the site is.
        rules = [group.sites[0].match.rule.id for group in landscape.space.groups]
        of_group = np.unique(rules, return_inverse=True)[1].reshape(-1)
        is_of = np.eye(of_group.max(initial=-1) + 1)[of_group]
        self._by_rule = (is_of / is_of.sum(axis=0))[self._groups] * self._weights[:, None]
        self._floats = np.array(landscape.state(landscape.space.floats), dtype=int)
        self._shares = self._shares_of(self._states)
        self.length_scales = (*LENGTH_SCALES, *([NEIGHBOURS] if pairs else []), RULES)
        self._among: dict[float, np.ndarray] = {}

    def among(self, length_scale: float) -> np.ndarray:
        """Of the measured ones to each other, shape (m, m)."""
        if length_scale not in self._among:
            self._among[length_scale] = self._of_each_other(length_scale)
        return self._among[length_scale]

    def _of_each_other(self, length_scale: float) -> np.ndarray:
        if length_scale == NEIGHBOURS:
            return np.array([self.to(state, length_scale) for state in self._states])
        if length_scale == RULES:
            return np.array([self._alike_by_rule(shares) for shares in self._shares])
        return np.exp(-self._distances / length_scale)

    @cached_property
    def _distances(self) -> np.ndarray:
        """In how many groups the measured ones differ, shape (m, m)."""
        return np.array([(self._states != state) @ self._weights for state in self._states])

    def to(self, layouts: np.ndarray, length_scale: float) -> np.ndarray:
        """Of a state, the ``layouts`` of sites, to each of the measured ones, shape (m,)."""
        if length_scale == NEIGHBOURS:
            same = self._beside == self._layouts_beside(layouts[None])
            return np.asarray(np.count_nonzero(same, axis=1) / len(self._first))
        if length_scale == RULES:
            return self._alike_by_rule(self._shares_of(layouts))
        return np.asarray(np.exp(-((self._states != layouts) @ self._weights) / length_scale))

    def after(self, layouts: np.ndarray, moves: Moves, length_scale: float) -> np.ndarray:
        """``to`` of what each of ``moves`` makes of a state, shape (moves, m).

        Only what a move changes is compared anew.
        """
        if length_scale == NEIGHBOURS:
            return self._after_by_neighbours(layouts, moves)
        if length_scale == RULES:
            return self._after_by_rules(layouts, moves)
        measured = self._states[:, moves.sites]
        differs = (measured != moves.layouts).astype(int) - (measured != layouts[moves.sites])
        further = moves.sums(differs * self._weights[moves.sites])
        before = (self._states != layouts) @ self._weights
        return np.asarray(np.exp(-(before[:, None] + further) / length_scale).T)

    def _after_by_neighbours(self, layouts: np.ndarray, moves: Moves) -> np.ndarray:
        shifts = np.zeros((len(moves), len(self._starts)), dtype=int)
        by_site = (moves.layouts - layouts[moves.sites]) * self._factors[moves.sites]
        np.add.at(shifts, (moves.of_sites, self._groups[moves.sites]), by_site)
        changed = shifts != 0
        move, pair = np.nonzero(changed[:, self._first] | changed[:, self._second])
        first, second = self._first[pair], self._second[pair]
        groups = self._by_group(layouts[None])[0] + shifts
        beside = groups[move, first] * 3 + groups[move, second]
        was = self._beside == self._layouts_beside(layouts[None])
        gained = (self._beside[:, pair] == beside).astype(int) - was[:, pair]
        same = np.tile(np.count_nonzero(was, axis=1), (len(moves), 1))
        np.add.at(same, move, gained.T)
        return np.asarray(same / len(self._first))

    def _after_by_rules(self, layouts: np.ndarray, moves: Moves) -> np.ndarray:
        floats, sites = self._floats[moves.sites], moves.sites
        shifts = (moves.layouts != floats).astype(int) - (layouts[sites] != floats)
        by_move = np.zeros((len(moves), self._by_rule.shape[1]))
        np.add.at(by_move, moves.of_sites, shifts[:, None] * self._by_rule[sites])
        shares = self._shares_of(layouts)
        alike = np.tile(self._alike_by_rule(shares), (len(moves), 1))
        # A move changes few rules: rule by rule, no array of moves, measured ones and rules.
        for shift, share, measured in zip(by_move.T, shares, self._shares.T, strict=True):
            changed = np.flatnonzero(shift)
            after = np.abs(measured - (share + shift[changed])[:, None])
            alike[changed] -= (after - np.abs(measured - share)) / len(shares)
        return alike

    def _shares_of(self, states: np.ndarray) -> np.ndarray:
        """What part of the groups of each rule is not float, shape (..., rules)."""
        return np.asarray((states != self._floats) @ self._by_rule)

    def _alike_by_rule(self, shares: np.ndarray) -> np.ndarray:
        """Of a state with these ``shares``, by rule, to the measured ones, shape (m,).

        By each rule errors are those of a walk from share to share, whose steps are as likely up
        as down; so half of a rule's groups is expected to be half as far off as all of them.
        """
        if not len(shares):
            return np.ones(len(self._shares))
        return np.asarray(1 - np.abs(self._shares - shares).mean(axis=-1))

    def _layouts_beside(self, states: np.ndarray) -> np.ndarray:
        """A number for the layouts of each two neighbours, shape (len(states), pairs)."""
        if not len(self._first):
            return np.zeros((len(states), 0), dtype=int)
        groups = self._by_group(states)
        return np.asarray(groups[:, self._first] * 3 + groups[:, self._second])

    def _by_group(self, states: np.ndarray) -> np.ndarray:
        """A number for the layouts of each group, shape (len(states), groups)."""
        return np.asarray(np.add.reduceat((states + 1) * self._factors, self._starts, axis=1))


@dataclass(frozen=True, eq=False)
class Misfit:
    """Errors of predicted latencies, the sum of independent ``parts``; none where none is evident.

    Of each part its standard deviation and the number of groups over which its correlation falls
    by e, or ``NEIGHBOURS`` or ``RULES`` if it is a sum over these.
    """

    correlation: Correlation
    parts: tuple[tuple[float, float], ...] = ()

    @property
    def deviation(self) -> float:
        """Their standard deviation."""
        return math.hypot(*(deviation for deviation, _ in self.parts))

    def among(self) -> np.ndarray:
        """Covariance of the errors of the measured placements, shape (m, m)."""
        return self._sum(self.correlation.among)

    def covariance_with(self, layouts: np.ndarray) -> np.ndarray:
        """Covariance of the error of a state, the ``layouts`` of sites, with those of the measured
        ones, shape (m,).
        """
        return self._sum(partial(self.correlation.to, layouts))

    def after(self, layouts: np.ndarray, moves: Moves) -> np.ndarray:
        """The same of what each of ``moves`` makes of that state, shape (moves, m)."""
        return self._sum(partial(self.correlation.after, layouts, moves))

    def _sum(self, correlation: Callable[[float], np.ndarray]) -> np.ndarray:
        """Of covariances; of the first form without any part, which are 0."""
        parts = self.parts or ((0.0, LENGTH_SCALES[0]),)
        return np.asarray(sum(deviation**2 * correlation(scale) for deviation, scale in parts))

    def draw(self, seed: Sequence[int]) -> np.ndarray | float:
        """Errors of the measured placements as they may be before any is measured."""
        if not self.parts:
            return 0.0
        covariance = self.among()
        covariance += 1e-9 * np.eye(len(covariance))
        rng = np.random.default_rng([*seed, 1])
        return np.asarray(np.linalg.cholesky(covariance) @ rng.standard_normal(len(covariance)))


def learn_misfit(exact: Summed, correlation: Correlation) -> Misfit:
    """The misfit under which what was measured is most probable; no part that is not evident.

    ``exact``: latencies as sums of costs, with errors of measurement alone.
    """
    best, most = Misfit(correlation), exact.log_evidence()
    for _ in range(PARTS):
        known = replace(exact, errors=exact.errors + best.among())
        found = [
            (evidence, (deviation, scale))
            for scale in correlation.length_scales
            for evidence, deviation in zip(
                known.log_evidences(correlation.among(scale), np.square(DEVIATIONS)).tolist(),
                DEVIATIONS,
                strict=True,
            )
        ]
        evidence, part = max(found)
        if evidence <= most + EVIDENT:
            break
        best, most = Misfit(correlation, (*best.parts, part)), evidence
    return best
