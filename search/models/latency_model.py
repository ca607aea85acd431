"""What measured candidates say about the latency of others.

The latency of a candidate is the sum of its predicted layers' costs plus a small correction for
each group's layout, where predictions are wrong. All are unknown: a normal distribution over them
starts from what a layer has to do and is conditioned on every layer time that the engine's profiler
tells and on every measured latency (``placer.search.models.bayesian_linear``). What layers of one
kind have in common is an unknown too, from which follow the costs of layers that no measured
candidate has. Latencies and costs are in units of the float model's latency.
"""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from placer.prediction.times.work import Work
from placer.search.landscape.landscape import Landscape, Moves, Objective, State
from placer.search.landscape.layer_signatures import Signature
from placer.search.landscape.moves import layouts_of
from placer.search.models.bayesian_linear import Gaussian, Measured, Summed, Sums
from placer.search.models.misfit import Correlation, learn_misfit
from placer.search.models.profiles import agreed

# The prior of a layer's time, up to a common factor: launch, 8-bit operations at twice the rate of
# others, bytes moved. Assumed; only ratios matter, and measurements replace them.
LAUNCH_S = 2e-6
OPS_PER_S = 5e13
BYTES_PER_S = 5e11
# Relative standard deviations: of all layers alike, of those of one kind, of each.
COMMON, KIND, OWN = 0.3, 0.5, 0.5
# Of a correction, relative to the float cost of the nodes that the group decides on: where the rule
# says what fuses, and where it does not.
CORRECTION, UNPREDICTED = 0.15, 1.0
# Of a layer's profiled time, relative and in units of the float model's latency; of one that comes
# from other models' profiles.
PROFILE, PROFILE_FLOOR, REMEMBERED = 0.05, 3e-4, 0.2
TOTAL_FLOOR = 1e-3


@dataclass(frozen=True, eq=False)
class Observation:
    """A measured candidate.

    ``deviation``: standard deviation of ``ratio``. ``layers``: measured times by signature number,
    as shares of the float model's latency; empty without a profile.
    """

    state: State
    ratio: float
    deviation: float
    layers: Mapping[int, float]


class LatencyModel:
    """The costs of one model's layers after some observations."""

    def __init__(
        self,
        landscape: Landscape,
        observations: Sequence[Observation],
        remembered: Mapping[str, float],
        *,
        float_latency: float = 1.0,
    ) -> None:
        """Condition on ``observations``; ``remembered``: costs by signature id, as shares.

        ``float_latency``: of the float model in the landscape's base precision.
        """
        self._landscape = landscape
        self._remembered = remembered
        self._extras: np.ndarray | None = None
        floats = landscape.state(landscape.space.floats)
        states = [floats, *(observation.state for observation in observations)]
        self._rows = _Rows(landscape, states, float_latency)
        prior = self._rows.prior
        known = {
            i: remembered[signature.id]
            for i, signature in enumerate(self._rows.observed)
            if signature.id in remembered
        }
        means = self._rows.layers(observations, floats)
        self._first = _single(self._rows.before(), known, prior, REMEMBERED)
        self._second = _single(self._first.posterior, means, prior, PROFILE)
        deviations = [TOTAL_FLOOR, *(max(o.deviation, TOTAL_FLOOR) for o in observations)]
        counted = [self._rows.counted(landscape.counts(state)) for state in states]
        rows = map(self._rows.row, map(layouts_of, states), counted)
        exact = Summed(
            Sums(self._second.posterior, np.array([row.counts for row in rows])),
            np.array([float_latency, *(o.ratio for o in observations)]),
            np.diag(np.square(deviations)),
        )
        self.misfit = learn_misfit(exact, Correlation(landscape, states))
        self._third = replace(exact, errors=exact.errors + self.misfit.among())

    def with_extras(self, extras: np.ndarray) -> LatencyModel:
        """The same where layouts cost ``extras`` besides, shape (sites, most layouts of any)."""
        model = copy.copy(self)
        model._extras = extras
        return model

    def objective(self, draw: Sequence[int] | None = None) -> Objective:
        """Expected costs, or with ``draw``, a seed, costs drawn from what is possible."""
        unknowns = self._third.mean if draw is None else self._sample(draw)
        costs = _Costs(self._rows, unknowns, self._remembered, draw)
        extras = self._rows.corrections.extras(unknowns)
        return Objective(costs, extras if self._extras is None else extras + self._extras)

    def _sample(self, seed: Sequence[int]) -> np.ndarray:
        """Draw all unknowns: from before the observations, corrected by what they say.

        Each is drawn from a seed of its own, so that a resumed study draws alike: in which order
        signatures were met differs from process to process.
        """
        drawn = self._rows.draw(seed)
        before = self._second.corrected(self._first.corrected(drawn))
        return self._third.corrected(before, self.misfit.draw(seed))

    def error(self, state: State) -> float:
        """By how much the latency of ``state`` is expected to be off the sum of its layers."""
        return self._third.error(self.misfit.covariance_with(layouts_of(state)))

    def errors_after(self, state: State, moves: Moves) -> np.ndarray:
        """The same of what each of ``moves`` makes of ``state``, shape (moves,)."""
        return self._third.further_errors(self.misfit.after(layouts_of(state), moves))

    def predict(self, state: State) -> tuple[float, float]:
        """Expected latency of ``state`` and its standard deviation, of the float model's."""
        return self._predict(layouts_of(state), self._rows.counted(self._landscape.counts(state)))

    def predict_changes(self, state: State, moves: Moves) -> list[tuple[float, float]]:
        """The same of what each of ``moves`` makes of ``state``, by what it does to layers."""
        counts, deltas = self._landscape.counts(state), self._landscape.deltas(state, moves)
        before, own, predicted = self._rows.counted(counts), layouts_of(state), []
        for move in moves.moves:
            layouts, delta = own.copy(), deltas.get(move, {})
            for site, layout in move:
                layouts[site] = layout
            changed = {n: counts.get(n, 0) + change for n, change in delta.items()}
            predicted.append(self._predict(layouts, self._rows.counted(changed, before)))
        return predicted

    def _predict(self, layouts: np.ndarray, layers: _Counted) -> tuple[float, float]:
        """``layouts``: of each site."""
        row = self._rows.row(layouts, layers)
        covariance = self.misfit.covariance_with(layouts)
        mean = row.constant + float(row.counts @ self._third.mean) + self._third.error(covariance)
        if self._extras is not None:
            mean += float(self._extras[np.arange(len(layouts)), layouts].sum())
        deviation = self._third.deviation(row.counts, covariance, self.misfit.deviation**2)
        return mean, float(np.hypot(deviation, row.deviation))


def _mean(values: Sequence[float]) -> float:
    """As ``numpy.mean``, which takes three times as long for a few values."""
    return float(np.add.reduce(np.array(values)) / len(values))


def _single(
    before: Gaussian, shares: Mapping[int, float], prior: np.ndarray, relative: float
) -> Measured:
    """Condition on shares of single layers, whose errors have a ``relative`` deviation."""
    index, values = np.array([*shares], dtype=int), np.array([*shares.values()])
    scale = prior[index]
    return Measured(before, index, values / scale, (relative * values + PROFILE_FLOOR) / scale)


class _Counted(NamedTuple):
    """The layers of a state.

    ``observed``: prior costs by unknown, of those whose signature is one. ``others``: how many
    there are of each other signature, by number.
    """

    observed: np.ndarray
    others: Mapping[int, int]


class _Row(NamedTuple):
    """The latency of a state, ``counts @ unknowns + constant``, and what else is uncertain."""

    counts: np.ndarray
    constant: float
    deviation: float


class _Rows:
    """The unknowns: relative costs of the signatures that observed states have, then what all and
    what those of one kind have in common, then corrections.

    ``signatures``: all, by number. ``observed``: those that are unknowns, by their ids. ``index``:
    their place by number. ``prior``: their costs before any measurement.
    """

    def __init__(self, landscape: Landscape, states: Sequence[State], float_latency: float) -> None:
        self._landscape = landscape
        self.signatures = signatures = landscape.layers.signatures
        counts = [landscape.counts(state) for state in states]
        numbers = sorted({n for count in counts for n in count}, key=lambda n: signatures[n].id)
        self.observed = tuple(signatures[n] for n in numbers)
        self.index = {n: i for i, n in enumerate(numbers)}
        floats = math.fsum(assumed_cost(signatures[n].work) * c for n, c in counts[0].items())
        self._scale = float_latency / floats
        self.prior = np.array([self.cost_of(signature) for signature in self.observed])
        kinds = sorted({signature.kind for signature in self.observed})
        self.common = len(numbers)
        self.kinds = {kind: self.common + 1 + i for i, kind in enumerate(kinds)}
        self.corrections = _Corrections(
            landscape, self._float_costs(), self.common + 1 + len(kinds)
        )

    def cost_of(self, signature: Signature) -> float:
        """The cost before any measurement, in units of the float model's."""
        return self._scale * assumed_cost(signature.work)

    def before(self) -> Gaussian:
        """The distribution before any measurement."""
        causes = np.eye(1 + len(self.kinds)) * np.array([COMMON, *[KIND] * len(self.kinds)])
        kinds = [self.kinds[signature.kind] - self.common for signature in self.observed]
        corrections = self.corrections.deviations
        none = np.zeros((len(corrections), len(causes)))
        return Gaussian(
            mean=np.concatenate([np.ones(len(kinds)), np.zeros(len(causes) + len(corrections))]),
            factors=np.vstack([causes[kinds] + causes[0], causes, none]),
            own=np.concatenate(
                [np.full(len(kinds), OWN**2), np.zeros(len(causes)), corrections**2]
            ),
        )

    def layers(self, observations: Sequence[Observation], floats: State) -> dict[int, float]:
        """What profiles say of costs, by unknown. ``floats``: the state of the float model."""
        seen = [observation for observation in observations if observation.layers]
        profiles = [{self.index[n]: share for n, share in own.layers.items()} for own in seen]
        states = [observation.state for observation in seen]
        counts = [
            {self.index[n]: count for n, count in self._landscape.counts(state).items()}
            for state in states
        ]
        found: dict[int, list[float]] = {}
        for profile in agreed(profiles, counts, [state == floats for state in states]):
            for unknown, share in profile.items():
                found.setdefault(unknown, []).append(share)
        return {unknown: _mean(shares) for unknown, shares in sorted(found.items())}

    def draw(self, seed: Sequence[int]) -> np.ndarray:
        """Unknowns drawn from before any measurement, each by a seed of its own."""
        causes = [COMMON * _normal(seed, "common")]
        causes += [KIND * _normal(seed, kind) for kind in self.kinds]
        deviations = np.array([OWN * _normal(seed, signature.id) for signature in self.observed])
        kinds = np.array([causes[self.kinds[s.kind] - self.common] for s in self.observed])
        rng = np.random.default_rng(list(seed))
        corrections = self.corrections.deviations * rng.standard_normal(
            len(self.corrections.deviations)
        )
        return np.concatenate([1 + causes[0] + kinds + deviations, causes, corrections])

    def counted(self, layers: Mapping[int, int], before: _Counted | None = None) -> _Counted:
        """``layers`` by signature number; those of ``before``, where it is given, but for these."""
        observed = np.zeros(self.corrections.end) if before is None else before.observed.copy()
        others = {} if before is None else dict(before.others)
        for number, count in layers.items():
            if number in self.index:
                observed[self.index[number]] = count * self.prior[self.index[number]]
            else:
                others[number] = count
        return _Counted(observed, others)

    def row(self, layouts: np.ndarray, layers: _Counted) -> _Row:
        """How the latency of a state, the ``layouts`` of sites, depends on the unknowns."""
        counts = layers.observed.copy()
        constant, variance = 0.0, 0.0
        others = [(self.signatures[number], count) for number, count in layers.others.items()]
        # In an order that does not depend on when which signature was met: sums are rounded.
        for signature, count in sorted(others, key=lambda item: item[0].id):
            cost = count * self.cost_of(signature)
            constant += cost
            counts[self.common] += cost
            variance += (OWN * cost) ** 2
            if signature.kind in self.kinds:
                counts[self.kinds[signature.kind]] += cost
            else:
                variance += (KIND * cost) ** 2
        self.corrections.add(counts, layouts)
        return _Row(counts, constant, variance**0.5)

    def _float_costs(self) -> list[float]:
        """The prior cost of each group's nodes in the float model."""
        shares, signatures = self._landscape.float_shares, self.signatures
        numbers = {number for of_group in shares for number, _ in of_group}
        cost_of = {number: self.cost_of(signatures[number]) for number in numbers}
        return [sum(cost_of[number] / count for number, count in group) for group in shares]


class _Costs(dict[int, float]):
    """Costs by signature number; of layers that no observed state has, as their kind tells."""

    def __init__(
        self,
        rows: _Rows,
        unknowns: np.ndarray,
        remembered: Mapping[str, float],
        seed: Sequence[int] | None,
    ) -> None:
        costs = np.maximum(unknowns[: rows.common], 0.0) * rows.prior
        super().__init__((number, float(costs[i])) for number, i in rows.index.items())
        self._rows, self._unknowns = rows, unknowns
        self._remembered, self._seed = remembered, seed

    def __missing__(self, number: int) -> float:
        signature = self._rows.signatures[number]
        kind = self._rows.kinds.get(signature.kind)
        relative = 1 + self._unknowns[self._rows.common] + OWN * self._normal(signature.id)
        relative += KIND * self._normal(signature.kind) if kind is None else self._unknowns[kind]
        cost = self._rows.cost_of(signature) * relative
        if signature.id in self._remembered:
            share = self._remembered[signature.id]
            noise = (REMEMBERED * share + PROFILE_FLOOR) ** 2
            variance = OWN**2 + (KIND**2 + COMMON**2 if kind is None else 0.0)
            open_part = noise / (noise + variance * self._rows.cost_of(signature) ** 2)
            cost = open_part * cost + (1 - open_part) * share
        self[number] = max(float(cost), 0.0)
        return self[number]

    def _normal(self, key: str) -> float:
        return 0.0 if self._seed is None else _normal(self._seed, key)


class _Corrections:
    """One unknown per group and layout other than the group's float one, from ``start`` on."""

    def __init__(self, landscape: Landscape, float_costs: Sequence[float], start: int) -> None:
        """``float_costs``: of each group's nodes in the float model."""
        others = landscape.other_layouts
        # By site and layout, -1 where there is none; by site how many are in its group.
        self._columns = np.where(others.columns < 0, -1, start + others.columns)
        self._members = others.members
        factors = np.where(others.fuses, CORRECTION, UNPREDICTED)
        self.deviations = np.array(float_costs)[others.groups] * factors
        self.end = start + len(factors)

    def add(self, row: np.ndarray, layouts: np.ndarray) -> None:
        """Add to ``row`` the share of each group's sites that has the layout."""
        columns = self._columns[np.arange(len(layouts)), layouts]
        has = columns >= 0
        row += np.bincount(columns[has], 1 / self._members[has], self.end)

    def extras(self, unknowns: np.ndarray) -> np.ndarray:
        """What the corrections add by site and layout, shape (sites, most layouts of any)."""
        shares = unknowns[self._columns] / self._members[:, None]
        return np.asarray(np.where(self._columns >= 0, shares, 0.0))


def _normal(seed: Sequence[int], key: str) -> float:
    """A standard normal number that depends on nothing but its seed and ``key``."""
    return float(np.random.default_rng([*seed, zlib.crc32(key.encode())]).standard_normal())


def assumed_cost(work: Work | None) -> float:
    """Seconds, up to a common factor; next to nothing for a layer that does nothing (None)."""
    if work is None:
        return LAUNCH_S * 1e-3
    quantized = work.dtype in ("int8", "uint8", "float8e4m3fn")
    rate = OPS_PER_S * (2 if quantized else 1)
    return LAUNCH_S + work.ops / rate + work.bytes / BYTES_PER_S
