"""What measured candidates say about the latency of others.

The latency of a candidate is the sum of its predicted layers' costs plus a small correction for
each group's layout, where predictions are wrong. All are unknown: a normal distribution over them
starts from what a layer has to do and is conditioned on every measured latency and on every layer
time that the engine's profiler tells (``placer.search.linear``). Latencies and costs are in units
of the float model's latency.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placer.roofline import Work
from placer.search.landscape import Landscape, Objective, State
from placer.search.linear import Gaussian

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
    ) -> None:
        """Condition on ``observations``; ``remembered``: costs by signature id, as shares."""
        self._landscape = landscape
        floats = landscape.predict(landscape.state(landscape.space.floats))
        for observation in observations:
            landscape.predict(observation.state)  # Numbers its signatures.
        self._signatures = tuple(landscape.layers.signatures)
        self._prior = np.array([_prior_cost(s.work) for s in self._signatures])
        self._prior /= sum(self._prior[n] * count for n, count in floats.counts().items())
        float_cost = {
            node.name: float(self._prior[landscape.layers.number(layer)]) / len(layer.nodes)
            for layer in floats.layers
            for node in layer.nodes
        }
        self._columns = _Corrections(landscape, float_cost)
        self._start = self._before()
        self._seen = self._all(observations, remembered)
        self._gaussian = self._start.given(*self._seen)

    def objective(self, draw: Sequence[int] | None = None) -> Objective:
        """Expected costs, or with ``draw``, a seed, costs drawn from what is possible."""
        unknowns = self._gaussian.mean if draw is None else self._sample(draw)
        costs = unknowns[: len(self._prior)] * self._prior
        costs = np.maximum(costs, 0.0)
        return Objective(costs, self._columns.extras(unknowns[len(self._prior) :]))

    def _sample(self, seed: Sequence[int]) -> np.ndarray:
        """Draw all unknowns, each from a seed of its own, so that a resumed study draws alike.

        In which order, and how many, signatures were met differs from process to process. A draw
        from before the observations is corrected by what they say (Matheron's rule; Wilson et al.
        2020, Efficiently Sampling Functions from Gaussian Process Posteriors), taken as exact.
        """
        own = np.array([_normal(seed, signature.id) for signature in self._signatures])
        kinds = {s.kind: _normal(seed, s.kind) for s in self._signatures}
        kind = np.array([kinds[signature.kind] for signature in self._signatures])
        costs = 1 + COMMON * _normal(seed, "common") + KIND * kind + OWN * own
        rng = np.random.default_rng(list(seed))
        corrections = self._columns.deviations * rng.standard_normal(self._columns.size)
        drawn = np.concatenate([costs, corrections])
        rows, values, deviations = self._seen
        corrected: np.ndarray = drawn + self._start.gain(rows, deviations) @ (values - rows @ drawn)
        return corrected

    def predict(self, state: State) -> tuple[float, float]:
        """Expected latency of ``state`` and its standard deviation, of the float model's."""
        row = self._row(state)
        return float(row @ self._gaussian.mean), self._gaussian.deviation(row)

    def _before(self) -> Gaussian:
        """The distribution before any measurement."""
        kinds = np.array([signature.kind for signature in self._signatures])
        same = (kinds[:, None] == kinds[None, :]).astype(float)
        costs = COMMON**2 + KIND**2 * same + OWN**2 * np.eye(len(kinds))
        corrections = self._columns.deviations**2
        size = len(kinds) + len(corrections)
        covariance = np.zeros((size, size))
        covariance[: len(kinds), : len(kinds)] = costs
        covariance[range(len(kinds), size), range(len(kinds), size)] = corrections
        mean = np.concatenate([np.ones(len(kinds)), np.zeros(len(corrections))])
        return Gaussian(mean, covariance)

    def _single(
        self, shares: Mapping[int, tuple[float, float]]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Observations of single layers: share and relative deviation by signature number."""
        size = len(self._prior) + self._columns.size
        rows = np.zeros((len(shares), size))
        values, deviations = np.zeros(len(shares)), np.zeros(len(shares))
        for i, (number, (share, relative)) in enumerate(shares.items()):
            rows[i, number] = self._prior[number]
            values[i] = share
            deviations[i] = relative * share + PROFILE_FLOOR
        return rows, values, deviations

    def _all(
        self, observations: Sequence[Observation], remembered: Mapping[str, float]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All that is known: rows of counts, what they sum up to, and its deviations."""
        known = self._single(
            {
                number: (remembered[signature.id], REMEMBERED)
                for number, signature in enumerate(self._signatures)
                if signature.id in remembered
            }
        )
        profiled: dict[int, list[float]] = {}
        for observation in observations:
            for number, share in observation.layers.items():
                profiled.setdefault(number, []).append(share)
        single = self._single(
            {n: (float(np.mean(own)), PROFILE) for n, own in sorted(profiled.items())}
        )
        float_state = self._landscape.state(self._landscape.space.floats)
        rows = [self._row(float_state), *(self._row(o.state) for o in observations)]
        values = [1.0, *(o.ratio for o in observations)]
        deviations = [TOTAL_FLOOR, *(max(o.deviation, TOTAL_FLOOR) for o in observations)]
        return (
            np.vstack([known[0], single[0], rows]),
            np.concatenate([known[1], single[1], values]),
            np.concatenate([known[2], single[2], deviations]),
        )

    def _row(self, state: State) -> np.ndarray:
        row = np.zeros(len(self._prior) + self._columns.size)
        for number, count in self._landscape.predict(state).counts().items():
            if number < len(self._prior):
                row[number] = count * self._prior[number]
        row[len(self._prior) :] = self._columns.row(state)
        return row


class _Corrections:
    """One unknown per group and layout other than the group's float one."""

    def __init__(self, landscape: Landscape, float_cost: Mapping[str, float]) -> None:
        self._landscape = landscape
        groups = landscape.space.groups
        self._columns: dict[tuple[int, int], int] = {}
        deviations = []
        for index, group in enumerate(groups):
            nodes = {node.name for site in group.sites for node in site.match.nodes.values()}
            cost = sum(float_cost.get(node, 0.0) for node in nodes)
            for number, layout in enumerate(group.layouts):
                if layout != landscape.space.floats[group.name]:
                    self._columns[index, number] = len(self._columns)
                    fuses = group.sites[0].match.rule.layouts[layout].fuses
                    deviations.append(cost * (CORRECTION if fuses else UNPREDICTED))
        self.deviations = np.array(deviations)

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return len(self._columns)

    def row(self, state: State) -> np.ndarray:
        """Share of each group's sites that has the layout, shape (size,)."""
        row = np.zeros(self.size)
        for index, members in enumerate(self._landscape.members):
            for site in members:
                column = self._columns.get((index, state[site]))
                if column is not None:
                    row[column] += 1 / len(members)
        return row

    def extras(self, unknowns: np.ndarray) -> list[np.ndarray]:
        """By site and layout, what the corrections add."""
        found = []
        for index, members in enumerate(self._landscape.members):
            layouts = range(len(self._landscape.names[members[0]]))
            columns = [self._columns.get((index, layout)) for layout in layouts]
            own = np.array([0.0 if c is None else unknowns[c] / len(members) for c in columns])
            found += [own] * len(members)
        return found


def _normal(seed: Sequence[int], key: str) -> float:
    """A standard normal number that hangs on nothing but its seed and ``key``."""
    return float(np.random.default_rng([*seed, zlib.crc32(key.encode())]).standard_normal())


def _prior_cost(work: Work | None) -> float:
    """Seconds, up to a common factor; next to nothing for a layer that does nothing."""
    if work is None:
        return LAUNCH_S * 1e-3
    quantized = work.dtype in ("int8", "uint8", "float8e4m3fn")
    rate = OPS_PER_S * (2 if quantized else 1)
    return LAUNCH_S + work.ops / rate + work.bytes / BYTES_PER_S
