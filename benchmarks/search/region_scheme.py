"""The region-by-region search that NVIDIA Model Optimizer describes, re-created to compare with.

Sources: its guide (https://nvidia.github.io/Model-Optimizer/guides/9_autotune.html) and the package
nvidia-modelopt 0.47.0, ``modelopt/onnx/quantization/autotune``. Written anew from these, no code
was taken over. What corresponds to what:

=============================  ====================================================================
here                           there
=============================  ====================================================================
``Region``, ``RegionFinder``   ``Region``, ``CombinedRegionSearch`` (region_search.py): chains and
                               branches that join again, from 10 nodes on split into composites;
                               leaves before composites
``signature``                  ``RegionPattern``: operators, attributes, sources of commutative
                               operators; no shapes
``Point``, ``points``          the three kinds of insertion points (insertion_points.py): inputs of
                               nodes, inputs of child regions, outputs of the region
``RegionProposer._propose``    ``generate`` (autotuner_base.py): the empty scheme first, then one of
                               the best 10 (or tenth) mutated: per kind of point add, remove or
                               both, 1 to 3 points, anew up to 100 times until it is a new scheme
``RegionProposer._edges``      ``get_resolved_insertion_points``: best scheme of each profiled
                               pattern and the current one, later regions replace what earlier said
``SCHEMES``                    schemes per region: 30 in the workflow's signature and in the guide's
                               examples and time estimates; its command line takes 50
order                          all schemes of a pattern, then its best is kept and the next is tuned
``baseline``                   ``--qdq_baseline``: in each pattern, points on tensors on which an
                               imported model has pairs are tried first; patterns not tuned yet keep
                               theirs, if all regions of such a pattern agree
=============================  ====================================================================

Regions, patterns and insertion points were held against the package's on 13 models of
``search_models`` and are the same; so is the order of regions where its sorting of the graph leaves
the nodes in their order.

Where it differs, always in its favour but for the first:

- Candidates are placements of the groups that all searches here decide on. The edges that a scheme
  quantizes become for each group the layout that differs from them in the fewest edges. Only edges
  that some insertion point can quantize count, so that what it cannot say (a pair before a Concat
  or between ConvTranspose and activation) is no obstacle: of equal layouts, the one that shares
  most scales is taken, because there all scales are 0.1 and thus equal, then the pack's default.
- Insertion points on edges that no undecided layout quantizes are left out: they never help.
- A placement that was tried already costs no trial; there every scheme is built.
- A pair on the input of a region takes the weights of its Conv along, as one on a node does there;
  there they stay float and the Conv too.
- There latency alone counts, and a gate is not known. Here a scheme that misses one is worse than
  all that meet it, and the worse the more it does; a failed build is the worst.
- The timing cache, the pattern cache of other runs and resuming have no counterpart.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from benchmarks.search.regions import LINEAR_OPS, Region, RegionFinder, signature
from placer.graph import Edge, Graph, Node
from placer.search.records import TrialRecord
from placer.search.samplers import Proposal
from placer.search.space import Choices, Group, Space

SCHEMES = 30
TOP_PART, TOP_LEAST = 0.1, 10
MOST_MUTATIONS, MOST_ATTEMPTS = 3, 100
_LEAST_DISTANCE = 4  # Points in which imported schemes of a pattern differ.

# Operators that never get a pair: of logic, of shapes and copies, reductions.
_SKIPPED = frozenset(
    "Not And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitShift IsNaN IsInf Sign Abs Equal Greater "
    "GreaterOrEqual Less LessOrEqual Where All Any Unique NonZero ReduceMax ReduceMin ReduceMean "
    "ReduceProd ReduceSum TopK Flatten Transpose Concat Split Squeeze Expand ReverseSequence "
    "Reshape Tile Gather Slice GatherElements GatherND ScatterElements ScatterND OneHot Compress "
    "Scatter ExpandDims Unsqueeze View Pad Cast Ceil Clip Identity Range Shape".split()
)
_SMALLEST = 8  # Elements of a tensor that may get a pair.


@dataclass(frozen=True)
class Point:
    """Where a pattern may get a pair, relative to the region.

    ``kind``: ``node`` (node, input), ``child`` (child, input), ``out`` (node, output) or
    ``child-out`` (child, output).
    """

    kind: str
    owner: int
    index: int


Scheme = frozenset[Point]
Cost = tuple[float, float]  # By how much gates are missed, latency.


class _Points:
    """Insertion points of regions and the edges they stand for."""

    def __init__(self, graph: Graph, users: dict[str, list[int]]) -> None:
        self._graph = graph
        self._users = users

    def of(self, region: Region) -> list[Point]:
        """All points of ``region``."""
        nodes = [self._graph.nodes[n] for n in sorted(region.nodes)]
        found = [
            Point("node", i, j)
            for i, node in enumerate(nodes)
            for j, tensor in enumerate(node.inputs)
            if tensor and not self._is_skipped(tensor, node)
        ]
        leaving = set(region.outputs)
        for i, child in enumerate(region.in_order):
            members = [self._graph.nodes[n] for n in sorted(child.members)]
            for j, tensor in enumerate(child.inputs):
                if not any(self._is_skipped(tensor, node) for node in members):
                    found.append(Point("child", i, j))
            found += [Point("child-out", i, j) for j, t in enumerate(child.outputs) if t in leaving]
        found += [
            Point("out", i, j)
            for i, node in enumerate(nodes)
            for j, tensor in enumerate(node.outputs)
            if tensor in leaving
        ]
        return found

    def edges(self, region: Region, point: Point) -> set[Edge]:
        """The edges that a pair at ``point`` quantizes."""
        if point.kind == "node":
            node = self._graph.nodes[sorted(region.nodes)[point.owner]]
            return self._with_weights({Edge(node.inputs[point.index], node.name, point.index)})
        if point.kind == "out":
            node = self._graph.nodes[sorted(region.nodes)[point.owner]]
            return self._everywhere(node.outputs[point.index])
        child = region.in_order[point.owner]
        tensors = child.inputs if point.kind == "child" else child.outputs
        return self._everywhere(tensors[point.index])

    def _everywhere(self, tensor: str) -> set[Edge]:
        readers = [self._graph.nodes[n] for n in self._users.get(tensor, ())]
        return self._with_weights(
            {
                Edge(tensor, node.name, i)
                for node in readers
                for i, own in enumerate(node.inputs)
                if own == tensor and not self._is_skipped(tensor, node)
            }
        )

    def _with_weights(self, edges: set[Edge]) -> set[Edge]:
        nodes = {self._graph.by_name[edge.node] for edge in edges if edge.input_index == 0}
        linear = {Edge(n.inputs[1], n.name, 1) for n in nodes if n.op in LINEAR_OPS}
        return edges | linear

    def _is_skipped(self, tensor: str, node: Node) -> bool:
        """Whether ``tensor`` never gets a pair before ``node``."""
        places = [i for i, own in enumerate(node.inputs) if own == tensor]
        if not places:
            return False
        first = places[-1]
        if node.op in _SKIPPED or (node.op in LINEAR_OPS and first >= 1):
            return True
        if node.op in ("BatchNormalization", "Resize") and first >= 1:
            return True
        if node.op in ("Relu", "Softmax", "BatchNormalization") and self._fuses(node):
            return True
        known = self._graph.type_of(tensor)
        is_small = known.shape is not None and math.prod(known.shape) < _SMALLEST
        return not known.is_float or is_small

    def _fuses(self, node: Node) -> bool:
        """Whether the node follows a convolution, perhaps behind a BatchNormalization."""
        before = self._graph.producer.get(node.inputs[0])
        if before is not None and before.op == "BatchNormalization" and node.op != before.op:
            before = self._graph.producer.get(before.inputs[0])
        return before is not None and before.op in ("Conv", "ConvTranspose")


@dataclass(frozen=True, eq=False)
class _Pattern:
    """Regions of one structure: the points worth trying and the edges of each."""

    points: tuple[Point, ...]
    regions: tuple[tuple[int, dict[Point, set[Edge]], set[Edge]], ...]

    def schemes_on(self, tensors: set[str]) -> list[Scheme]:
        """What the regions have on ``tensors``, if any; too like an earlier one it is left out."""
        found: list[Scheme] = []
        for _, by_point, _ in self.regions:
            scheme = frozenset(
                point
                for point in self.points
                if any(edge.tensor in tensors for edge in by_point.get(point, ()))
            )
            if tensors and all(len(scheme ^ own) >= _LEAST_DISTANCE for own in found):
                found.append(scheme)
        return found


class RegionProposer:
    """Tunes one pattern of regions after the other, starting from the float model.

    Keeps its own state, so it is told of every trial in turn. ``baseline``: choices of a quantized
    model that is imported.
    """

    def __init__(
        self, space: Space, seed: int, schemes: int = SCHEMES, baseline: Choices | None = None
    ) -> None:
        self._space = space
        self._random = random.Random(seed)
        self._schemes = schemes
        self._patterns = _patterns(space)
        self._reachable = {e for p in self._patterns for _, _, reach in p.regions for e in reach}
        quantized: set[str] = set()
        if baseline is not None:
            quantized = _quantized_tensors(space, baseline)
        self._imported = {pattern: pattern.schemes_on(quantized) for pattern in self._patterns}
        self._search = self._tune_all()
        self._waiting: dict[str, str] | None = next(self._search)

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``placer.search.samplers.Proposer``; None once all patterns are tuned."""
        known = {trial.placement_id: _cost(trial) for trial in trials}
        while self._waiting is not None:
            cost = known.get(self._space.placement(self._waiting).id)
            if cost is None:
                return Proposal("region", self._waiting)
            self._waiting = self._advance(cost)
        return None

    def _advance(self, cost: Cost) -> dict[str, str] | None:
        try:
            return self._search.send(cost)
        except StopIteration:
            return None

    def _tune_all(self) -> Generator[dict[str, str], Cost, None]:
        """Yields choices and is sent their cost."""
        yield dict(self._space.floats)
        agreed = {p: own[0] for p, own in self._imported.items() if len(own) == 1}
        best: dict[_Pattern, Scheme] = dict(agreed)
        for pattern in self._patterns:
            measured: dict[Scheme, Cost] = {}
            for _ in range(self._schemes):
                scheme = self._propose(pattern, measured)
                if scheme is None:
                    break
                measured[scheme] = yield self._choices({**best, pattern: scheme})
            best[pattern] = min(measured, key=lambda own: measured[own])

    def _propose(self, pattern: _Pattern, measured: dict[Scheme, Cost]) -> Scheme | None:
        for scheme in self._imported[pattern]:
            if scheme not in measured:
                return scheme
        if not measured:
            return frozenset()
        count = max(int(len(measured) * TOP_PART), min(TOP_LEAST, len(measured)))
        top = sorted(measured, key=lambda own: measured[own])[:count]
        for _ in range(MOST_ATTEMPTS):
            scheme = self._mutate(self._random.choice(top), pattern.points)
            if scheme not in measured:
                return scheme
        return None

    def _mutate(self, base: Scheme, points: Sequence[Point]) -> Scheme:
        """Change the points of each kind independently."""
        found: set[Point] = set()
        for kinds in (("node",), ("child",), ("out", "child-out")):
            own = [point for point in points if point.kind in kinds]
            chosen = [point for point in own if point in base]
            action = self._random.choice(("add", "remove", "both"))
            absent = [point for point in own if point not in base]
            if action != "remove" and absent:
                chosen += self._random.sample(absent, self._count(len(absent)))
            if action != "add" and chosen:
                gone = self._random.sample(chosen, self._count(len(chosen)))
                chosen = [point for point in chosen if point not in gone]
            found.update(chosen)
        return frozenset(found)

    def _count(self, available: int) -> int:
        return self._random.randint(1, min(MOST_MUTATIONS, available))

    def _choices(self, schemes: dict[_Pattern, Scheme]) -> dict[str, str]:
        edges = self._edges(schemes)
        return {group.name: _nearest(group, edges, self._reachable) for group in self._space.groups}

    def _edges(self, schemes: dict[_Pattern, Scheme]) -> set[Edge]:
        """What all schemes quantize; in order of regions, each replaces what is in its reach."""
        regions = sorted(
            ((own, scheme) for pattern, scheme in schemes.items() for own in pattern.regions),
            key=lambda item: item[0][0],
        )
        edges: set[Edge] = set()
        for (_, by_point, reach), scheme in regions:
            edges -= reach
            edges.update(edge for point in scheme for edge in by_point.get(point, ()))
        return edges


def _cost(trial: TrialRecord) -> Cost:
    """What is least where a scheme is best."""
    return (math.inf, math.inf) if trial.ratio is None else (trial.violation, trial.ratio)


def _patterns(space: Space) -> list[_Pattern]:
    """Patterns in the order they are tuned, with the points that a decided layout may use."""
    graph = space.graph
    finder = RegionFinder(graph)
    points = _Points(graph, finder.users)
    decided = {
        edge
        for group in space.groups
        for site in group.sites
        for layout in site.layouts.values()
        for edge in layout.quantize
    }
    alike: dict[str, list[tuple[int, Region]]] = {}
    for number, region in enumerate(finder.find()):
        alike.setdefault(signature(region, graph), []).append((number, region))
    found = []
    for regions in alike.values():
        resolved = []
        for number, region in regions:
            by_point = {point: points.edges(region, point) for point in points.of(region)}
            reach = set().union(*by_point.values())
            resolved.append((number, by_point, reach))
        useful = [
            p for p in resolved[0][1] if any(o.get(p, set()) & decided for _, o, _ in resolved)
        ]
        if useful:
            found.append(_Pattern(tuple(useful), tuple(resolved)))
    return found


def _quantized_tensors(space: Space, choices: Choices) -> set[str]:
    """Activations that a placement quantizes."""
    return {
        edge.tensor
        for group in space.groups
        for site in group.sites
        for edge in site.layouts[choices[group.name]].quantize
        if edge.tensor not in space.graph.initializers
    }


def _nearest(group: Group, edges: set[Edge], reachable: set[Edge]) -> str:
    """The layout that differs least from ``edges`` where they could differ."""

    def rank(name: str) -> tuple[int, int, bool, int]:
        distance = shared = count = 0
        for site in group.sites:
            own = site.layouts[name].quantize
            decided = {edge for layout in site.layouts.values() for edge in layout.quantize}
            distance += len((own ^ (edges & decided)) & reachable)
            shared += sum(len(tensors) for tensors in site.layouts[name].shared)
            count += len(own)
        return distance, -shared, name != group.default, count

    return min(group.layouts, key=rank)
