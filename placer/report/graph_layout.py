"""Draw a graph in layers, top down, wrapped into strips that stand side by side.

Sugiyama's method: longest-path layers, edges over several layers routed through a place in each of
them, order by barycentres. Places within a layer are the closest to the means of their neighbours
that keep their distance: isotonic regression by pooling adjacent violators (Ayer et al. 1955).
Networks are long and narrow, so the drawing is cut between layers where few edges cross.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

SWEEPS = 8
# An edge over more layers is drawn as a jump: routed, it would only push all else apart.
LONGEST_ROUTE = 24
GAP = 1.6  # Between strips.
ROUTE_WIDTH = 0.5  # What a routed edge takes up in a layer; a vertex takes 1.


class Point(NamedTuple):
    """Place in the drawing; ``y`` grows downwards, by 1 a layer."""

    x: float
    y: float


@dataclass(frozen=True)
class Layout:
    """Places of vertices and the ways of edges, in the order given.

    ``jumps``: numbers of edges that lead into another strip or over many layers; their routes are
    their two ends.
    """

    points: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    jumps: frozenset[int]


def layered_layout(count: int, edges: Sequence[tuple[int, int]], aspect: float) -> Layout:
    """Lay out vertices ``0`` to ``count - 1``, of which every edge leads to a later one.

    ``aspect``: width over height of the drawing, in distances between neighbours, that the number
    of strips is chosen for. The same graph is always drawn the same.
    """
    if not count:
        return Layout((), (), frozenset())
    layers = _layers(count, edges)
    net = _routed(layers, edges)
    net.order()
    x = net.places()
    cuts = _cuts(net, x, aspect)
    return _wrapped(net, x, cuts, edges)


def _layers(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Longest-path layers; what has no predecessor comes right before what first reads it."""
    layer = [0] * count
    readers: dict[int, list[int]] = defaultdict(list)
    heads = set()
    for tail, head in sorted(edges):
        readers[tail].append(head)
        heads.add(head)
        layer[head] = max(layer[head], layer[tail] + 1)
    for vertex in range(count):
        if vertex not in heads and readers[vertex]:
            layer[vertex] = min(layer[reader] for reader in readers[vertex]) - 1
    first = min(layer)
    return [number - first for number in layer]


@dataclass
class _Net:
    """Vertices and the places of routed edges, by layer, with links between adjacent layers."""

    layer: list[int]
    rows: list[list[int]]
    real: int
    chains: Mapping[int, tuple[int, ...]]  # By edge number: tail, places, head.
    above: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    below: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def order(self) -> None:
        """Sort the rows by the mean place of their neighbours, down and up in turn."""
        place = {v: float(i) for row in self.rows for i, v in enumerate(row)}
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            links = self.above if down else self.below
            for row in self.rows if down else reversed(self.rows):
                row.sort(key=lambda v: (_mean((place[n] for n in links[v]), place[v]), place[v]))
                place.update({v: float(i) for i, v in enumerate(row)})

    def places(self) -> list[float]:
        """Horizontal places that keep the rows' order and distances."""
        x = [0.0] * len(self.layer)
        for row in self.rows:
            for vertex, offset in zip(row, self.offsets(row), strict=True):
                x[vertex] = offset
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            links = self.above if down else self.below
            for row in self.rows if down else reversed(self.rows):
                wanted = [_mean((x[n] for n in links[v]), x[v]) for v in row]
                offsets = self.offsets(row)
                shifted = _isotonic([w - o for w, o in zip(wanted, offsets, strict=True)])
                for vertex, value, offset in zip(row, shifted, offsets, strict=True):
                    x[vertex] = value + offset
        return x

    def offsets(self, row: Sequence[int]) -> list[float]:
        """The least places of a row, the first at 0."""
        places, widths = [0.0], [1.0 if v < self.real else ROUTE_WIDTH for v in row]
        for left, right in itertools.pairwise(widths):
            places.append(places[-1] + (left + right) / 2)
        return places


def _routed(layer: Sequence[int], edges: Sequence[tuple[int, int]]) -> _Net:
    layer = list(layer)
    real = len(layer)
    chains: dict[int, tuple[int, ...]] = {}
    for number, (tail, head) in enumerate(edges):
        span = layer[head] - layer[tail]
        if span <= LONGEST_ROUTE:
            first = len(layer)
            layer += range(layer[tail] + 1, layer[head])
            chains[number] = (tail, *range(first, len(layer)), head)
    rows: list[list[int]] = [[] for _ in range(max(layer) + 1)]
    for vertex, row in enumerate(layer):
        rows[row].append(vertex)
    net = _Net(layer, rows, real, chains)
    for chain in chains.values():
        for tail, head in itertools.pairwise(chain):
            net.above[head].append(tail)
            net.below[tail].append(head)
    return net


def _mean(values: Iterable[float], otherwise: float) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else otherwise


def _isotonic(values: Sequence[float]) -> list[float]:
    """The closest values that never decrease."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        mean, size = value, 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean = (mean * size + other * count) / (size + count)
            size += count
        blocks.append((mean, size))
    return [mean for mean, size in blocks for _ in range(size)]


def _cuts(net: _Net, x: Sequence[float], aspect: float) -> list[int]:
    """First rows of the strips, with whose number the drawing comes closest to ``aspect``."""
    rows = len(net.rows)
    crossing = [0] * (rows + 1)
    for chain in net.chains.values():
        for vertex in chain[1:]:
            crossing[net.layer[vertex]] += 1
    best, chosen = float("inf"), [0]
    for strips in range(1, rows + 1):
        cuts = _few_crossings(crossing, rows, strips)
        height = max(b - a for a, b in zip(cuts, [*cuts[1:], rows], strict=True))
        width = sum(_width(net, x, cuts))
        # By how much too wide or too high, whichever it is.
        error = max(width / (aspect * height), aspect * height / width)
        if error < best:
            best, chosen = error, cuts
        if width > aspect * height:
            break
    return chosen


def _few_crossings(crossing: Sequence[int], rows: int, strips: int) -> list[int]:
    cuts = [0]
    slack = rows // (strips * 6)
    for number in range(1, strips):
        ideal = number * rows // strips
        near = [row for row in range(ideal - slack, ideal + slack + 1) if cuts[-1] < row < rows]
        cuts.append(min(near, key=lambda row: (crossing[row], abs(row - ideal))))
    return cuts


def _width(net: _Net, x: Sequence[float], cuts: Sequence[int]) -> list[float]:
    widths = []
    for first, end in zip(cuts, [*cuts[1:], len(net.rows)], strict=True):
        places = [x[v] for row in net.rows[first:end] for v in row]
        widths.append(max(places) - min(places) + GAP)
    return widths


def _wrapped(
    net: _Net, x: Sequence[float], cuts: Sequence[int], edges: Sequence[tuple[int, int]]
) -> Layout:
    points = [Point(0.0, 0.0)] * len(net.layer)
    strip_of: dict[int, int] = {}
    left = 0.0
    ends = [*cuts[1:], len(net.rows)]
    for strip, (first, end) in enumerate(zip(cuts, ends, strict=True)):
        members = [v for row in net.rows[first:end] for v in row]
        start = min(x[v] for v in members)
        for vertex in members:
            points[vertex] = Point(left + x[vertex] - start, net.layer[vertex] - first)
            strip_of[vertex] = strip
        left += max(x[v] for v in members) - start + GAP
    routes, jumps = [], set()
    for number, (tail, head) in enumerate(edges):
        if number in net.chains and strip_of[tail] == strip_of[head]:
            routes.append(tuple(points[v] for v in net.chains[number]))
        else:
            routes.append((points[tail], points[head]))
            jumps.add(number)
    return Layout(tuple(points[: net.real]), tuple(routes), frozenset(jumps))
