"""Latencies that are not the sum of layers' costs, in several shapes.

The latencies of ``search_models`` (predicted layers, a roofline, a hidden factor for each layer)
are multiplied by ``exp(level * z)``. ``z`` follows from how each group is quantized in the
motion-normal form: what is one to the engine takes one time. All random numbers are the same for
every search. Profiles tell the times of layers without that factor, as real ones do where layers
slow each other down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from benchmarks.search.models import Latency, Measured, Problem, neighbours, seed_of
from placer.prediction.times.gpus import load_gpu
from placer.quantization import Placement
from placer.search.landscape.layer_signatures import PredictedLayers
from placer.search.space import Group

# The spread of layers' hidden factors.
HIDDEN = 0.25
# Groups in a row that act together, at least and at most.
BLOCK = (2, 6)
# Degrees of freedom of the factor that each placement has of its own: with three, its tails are
# heavy and its variance is finite.
FREEDOM = 3

# How each group is quantized; empty where it is not.
States = Sequence[str]


class Shape:
    """What ``z`` is made of: a sum of parts, each of some groups' states."""

    def __init__(self, problem: Problem, key: Sequence[object]) -> None:
        """``key``: what the random numbers follow from."""
        self.groups = problem.space.groups
        self.near = neighbours(problem.space)
        self._key = key
        self._drawn: dict[tuple[object, ...], float] = {}

    def rng(self, *parts: object) -> np.random.Generator:
        """Random numbers that depend on nothing but ``parts``."""
        return np.random.default_rng(seed_of(*self._key, *parts))

    def normal(self, *parts: object) -> float:
        """A standard normal number that depends on nothing but ``parts``."""
        if parts not in self._drawn:
            self._drawn[parts] = float(self.rng(*parts).standard_normal())
        return self._drawn[parts]

    def blocks(self) -> Iterator[range]:
        """All groups in blocks of random sizes, in the order of the network."""
        rng, start = self.rng("sizes"), 0
        while start < len(self.groups):
            end = min(start + int(rng.integers(BLOCK[0], BLOCK[1] + 1)), len(self.groups))
            yield range(start, end)
            start = end


def pairs(shape: Shape) -> Callable[[States], float]:
    """Each two groups that are near each other have a number for how both are quantized."""
    count = range(len(shape.groups))
    near = [(i, j) for i, j in combinations(count, 2) if j in shape.near[i]]

    def value(states: States) -> float:
        own = (shape.normal(i, j, states[i], states[j]) for i, j in near if states[i] or states[j])
        return sum(own) / math.sqrt(max(1, len(near)))

    return value


def blocks(shape: Shape) -> Callable[[States], float]:
    """Each 2 to 6 groups in a row have a number for how all of them are quantized."""
    own_blocks = list(shape.blocks())

    def value(states: States) -> float:
        own = [tuple(states[i] for i in block) for block in own_blocks]
        numbers = (shape.normal(i, *block) for i, block in enumerate(own) if any(block))
        return sum(numbers) / math.sqrt(len(own_blocks))

    return value


def distant(shape: Shape) -> Callable[[States], float]:
    """Two groups that are far apart cost more where just one of them is quantized."""
    count = range(len(shape.groups))
    far = [(i, j) for i, j in combinations(count, 2) if j not in shape.near[i]]
    picked = shape.rng("far").permutation(len(far))[: len(count)]
    chosen = [far[int(index)] for index in picked]

    def value(states: States) -> float:
        apart = ((i, j) for i, j in chosen if bool(states[i]) != bool(states[j]))
        return sum(abs(shape.normal(i, j)) for i, j in apart) / math.sqrt(max(1, len(chosen)))

    return value


def cliffs(shape: Shape) -> Callable[[States], float]:
    """Random sets of groups change the latency once so many of them are quantized."""
    rng, count = shape.rng("sets"), len(shape.groups)
    sets = []
    for _ in range(max(4, count // 4)):
        size = int(rng.integers(2, max(3, count // 2) + 1))
        members = rng.permutation(count)[:size].tolist()
        sets.append((members, int(rng.integers(1, size + 1))))

    def value(states: States) -> float:
        above = (sum(bool(states[i]) for i in own) >= least for own, least in sets)
        numbers = (shape.normal(index) for index, over in enumerate(above) if over)
        return sum(numbers) / math.sqrt(len(sets))

    return value


def operators(shape: Shape) -> Callable[[States], float]:
    """What quantizing groups of one kind of operator gains is off alike, its sign included."""
    kinds = [kind(group) for group in shape.groups]

    def value(states: States) -> float:
        # A kind that is quantized everywhere changes it by one of these numbers.
        own = (name for name, state in zip(kinds, states, strict=True) if state)
        return sum(shape.normal(name) / kinds.count(name) for name in own)

    return value


def rough(shape: Shape) -> Callable[[States], float]:
    """Each placement is slower by a factor of its own, with heavy tails."""

    def value(states: States) -> float:
        if not any(states):
            return 0.0
        deviation = math.sqrt(FREEDOM / (FREEDOM - 2))
        return abs(float(shape.rng("whole", *states).standard_t(FREEDOM))) / deviation

    return value


def mixture(shape: Shape) -> Callable[[States], float]:
    """``pairs``, ``operators`` and ``cliffs`` at once, as much of each."""
    parts = [pairs(shape), operators(shape), cliffs(shape)]

    def value(states: States) -> float:
        return sum(part(states) for part in parts) / math.sqrt(len(parts))

    return value


def kind(group: Group) -> str:
    """The operator types of one of its sites."""
    return " ".join(sorted(node.op for node in group.sites[0].match.nodes.values()))


SHAPES: Mapping[str, Callable[[Shape], Callable[[States], float]]] = {
    "pairs": pairs,
    "blocks": blocks,
    "distant": distant,
    "cliffs": cliffs,
    "operators": operators,
    "rough": rough,
    "mixture": mixture,
}


class MisfitLatency(Latency):
    """Latencies that are off the sum of layers by about ``level``."""

    def __init__(self, problem: Problem, gpu: str, level: float, world: int, shape: str) -> None:
        """``shape``: a key of ``SHAPES``. ``world``: which random numbers they are off by."""
        super().__init__(problem, load_gpu(gpu), HIDDEN)
        self._level = level
        # Under this key the first shape was drawn before there were others.
        key = ("pair" if shape == "pairs" else shape, gpu, *([world] if world else []))
        self._z = SHAPES[shape](Shape(problem, key))
        self._groups = len(problem.space.groups)
        self._owner = {
            node.name: index
            for index, group in enumerate(problem.space.groups)
            for site in group.sites
            for node in site.match.nodes.values()
        }

    def measure(self, placement: Placement) -> Measured:
        """See ``Latency``; layers take the time that they take without neighbours."""
        plain = super().measure(placement)
        return Measured(plain.ratio * self._factor(placement), plain.layers)

    def ratio(self, placement: Placement) -> float:
        """See ``Latency``."""
        return super().ratio(placement) * self._factor(placement)

    def _factor(self, placement: Placement) -> float:
        return math.exp(self._level * self._z(self._states(self._layers.predict(placement))))

    def _states(self, layers: PredictedLayers) -> list[str]:
        """How each group is quantized after motion; empty where it is not."""
        found: list[list[str]] = [[] for _ in range(self._groups)]
        for edges in layers.prediction.form.canonical():
            for edge, second in edges:
                if edge.node in self._owner:
                    key = f"{edge.node}:{edge.input_index}{'+' if second else ''}"
                    found[self._owner[edge.node]].append(key)
        return [" ".join(sorted(own)) for own in found]
