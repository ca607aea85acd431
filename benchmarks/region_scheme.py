"""The region-by-region search that NVIDIA Model Optimizer describes, re-created to compare with.

Sources: its guide (https://nvidia.github.io/Model-Optimizer/guides/9_autotune.html) and the package
nvidia-modelopt 0.47.0, ``modelopt/onnx/quantization/autotune``. Written anew from these, no code
was taken over. What corresponds to what:

=============================  ====================================================================
here                           there
=============================  ====================================================================
``Region``, ``find_regions``   ``Region``, ``CombinedRegionSearch`` (region_search.py): chains and
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
- Failed builds, the timing cache, the pattern cache of other runs and resuming have no counterpart.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from placer.graph import Edge, Graph, Node
from placer.search.records import TrialRecord
from placer.search.samplers import Proposal
from placer.search.space import Group, Space

SCHEMES = 30
TOP_PART, TOP_LEAST = 0.1, 10
MOST_MUTATIONS, MOST_ATTEMPTS = 3, 100
REACH = 10  # Steps to look ahead for where branches join.
PROBE_AFTER_JOIN = 3
SPLIT_FROM, LARGEST_CHAIN, MOST_BOUNDARIES = 10, 10, 3

_LINEAR = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_BOUNDARY = _LINEAR | {
    "AveragePool",
    "MaxPool",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Resize",
}
_COMMUTATIVE = frozenset(
    "Add Mul And Or Xor Equal Max Min Sum Mean BitwiseAnd BitwiseOr BitwiseXor".split()
)
# Operators that never get a pair: of logic, of shapes and copies, reductions.
_SKIPPED = frozenset(
    "Not And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitShift IsNaN IsInf Sign Abs Equal Greater "
    "GreaterOrEqual Less LessOrEqual Where All Any Unique NonZero ReduceMax ReduceMin ReduceMean "
    "ReduceProd ReduceSum TopK Flatten Transpose Concat Split Squeeze Expand ReverseSequence "
    "Reshape Tile Gather Slice GatherElements GatherND ScatterElements ScatterND OneHot Compress "
    "Scatter ExpandDims Unsqueeze View Pad Cast Ceil Clip Identity Range Shape".split()
)
_SMALLEST = 8  # Elements of a tensor that may get a pair.


@dataclass(eq=False)
class Region:
    """Nodes by index, or child regions, with the tensors that enter and leave."""

    nodes: set[int]
    level: int = 0
    children: list[Region] = field(default_factory=list)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def members(self) -> set[int]:
        """Its nodes and those of its children."""
        return self.nodes.union(*(child.members for child in self.children))

    @property
    def in_order(self) -> list[Region]:
        """Children in the order that patterns count them."""
        return sorted(self.children, key=lambda child: (-child.level, len(child.members)))


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


class _Finder:
    """Looks for regions of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = graph.nodes
        self.users: dict[str, list[int]] = {}
        for node in graph.nodes:
            for tensor in filter(None, node.inputs):
                self.users.setdefault(tensor, []).append(node.index)
        self._reach = [self._reachable(node.index) for node in graph.nodes]

    def find(self) -> list[Region]:
        """All regions, leaves before composites."""
        top = [self._refine(region) for region in self._partition()]
        everything = [region for outer in top for region in (outer, *outer.children)]
        return sorted(everything, key=lambda region: bool(region.children))

    def bounded(self, region: Region, *, constants: bool = False) -> Region:
        """Set the tensors at the boundary of ``region``."""
        members = region.members
        read = {t for n in members for t in self.nodes[n].inputs if t}
        if not constants:
            read -= self.graph.initializers.keys()
        written = {t for n in members for t in self.nodes[n].outputs if t}
        left = {t for t in written if self._leaves(t, members)}
        region.inputs, region.outputs = tuple(sorted(read - written)), tuple(sorted(left))
        return region

    def _leaves(self, tensor: str, members: set[int]) -> bool:
        users = self.users.get(tensor, [])
        outside = any(user not in members for user in users)
        return outside or not users or tensor in self.graph.outputs

    def _reachable(self, start: int) -> dict[int, int]:
        found: dict[int, int] = {start: 0}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            if found[node] < REACH:
                for user in self._users_of(node):
                    if user not in found:
                        found[user] = found[node] + 1
                        queue.append(user)
        return found

    def _users_of(self, node: int) -> list[int]:
        return [user for t in self.nodes[node].outputs for user in self.users.get(t, ())]

    def _diverges(self, node: int) -> bool:
        return any(len(self.users.get(t, ())) > 1 for t in self.nodes[node].outputs)

    def _partition(self) -> Iterator[Region]:
        """Chains up to where they branch, and branches up to behind where they join."""
        visited: set[int] = set()
        for start in range(len(self.nodes)):
            if start in visited:
                continue
            if not self._diverges(start):
                nodes = self._chain(start, None)
            else:
                join, between = self._join(start)
                far = max((self._reach[start].get(n, 0) for n in between), default=0)
                if join is None or far >= REACH:
                    nodes = [start]
                else:
                    # As there, the node that branches is left out.
                    nodes = [*sorted(between - {start}), *self._chain(join, PROBE_AFTER_JOIN)]
            visited.update(nodes)
            yield self.bounded(Region(set(nodes)))

    def _chain(self, start: int, limit: int | None) -> list[int]:
        """Nodes from ``start`` on until one branches; may run into other regions, as there."""
        found: list[int] = []
        queue = deque([start])
        while queue and (limit is None or len(found) < limit):
            node = queue.popleft()
            found.append(node)
            if not self._diverges(node):
                queue.extend(self._users_of(node))
        return found

    def _join(self, start: int) -> tuple[int | None, set[int]]:
        """Where all branches of ``start`` meet first with no way around, and what is between."""
        branches = [self._reach[user] for user in dict.fromkeys(self._users_of(start))]
        if len(branches) <= 1:
            return None, set()
        common = set.intersection(*(set(branch) for branch in branches)) - {start}
        valid = [node for node in sorted(common) if self._closes(start, node)]
        if not valid:
            return None, set()
        join = min(valid, key=lambda node: max(branch[node] for branch in branches))
        between = {n for n in self._reach[start] if n != join and join in self._reach[n]}
        return join, between

    def _closes(self, start: int, join: int) -> bool:
        inside = self._reach[start].keys() - self._reach[join].keys()
        return all(join in self._reach[n] or self._reach[n].keys() <= inside for n in inside)

    def _refine(self, region: Region) -> Region:
        """Split a large region into a composite of joins and short chains."""
        if len(region.members) < SPLIT_FROM:
            return region
        parts = [part for outer in self._joins_within(region) for part in self._split(outer)]
        parts = [self.bounded(part, constants=True) for part in parts]
        if len(parts) == 1:
            return self.bounded(parts[0])
        parts.sort(key=lambda part: signature(part, self.graph))
        return self.bounded(Region(set(), region.level, parts))

    def _joins_within(self, region: Region) -> list[Region]:
        found: list[Region] = []
        taken: set[int] = set()
        for node in self._downstream(region):
            if node in taken or not self._diverges(node):
                continue
            join, between = self._join(node)
            if join is not None and join in region.nodes:
                found.append(self.bounded(Region(between & region.nodes, region.level + 1)))
                taken |= between & region.nodes
        rest = region.nodes - taken
        if rest:
            found.append(self.bounded(Region(rest, region.level + 1)))
        return found

    def _downstream(self, region: Region) -> Iterator[int]:
        """Nodes of ``region`` in order of data flow from its inputs."""
        queue, seen = deque(region.inputs), set(region.inputs)
        while queue:
            for node in self.users.get(queue.popleft(), ()):
                if node in region.nodes:
                    yield node
                    new = [t for t in self.nodes[node].outputs if t and t not in seen]
                    seen.update(new)
                    queue.extend(new)

    def _split(self, region: Region) -> list[Region]:
        """Merge nodes with the node that alone reads them while regions stay small."""
        owner = {n: Region({n}, region.level + 1) for n in region.nodes}
        alone = dict(owner)  # The region that each node began; it keeps its output.
        merged: set[int] = set()
        for node in self._downstream(region):
            if node in merged:
                continue
            targets = self._targets(node, region)
            if targets is None or targets in merged:
                continue
            own, other = alone[node], alone[targets]
            both = own.nodes | other.nodes
            if sum(self.nodes[n].op in _BOUNDARY for n in both) > MOST_BOUNDARIES:
                continue
            if max(len(own.nodes), len(other.nodes)) < LARGEST_CHAIN:
                other.nodes |= own.nodes
                merged.add(node)
        return [self.bounded(alone[n]) for n in sorted(region.nodes - merged)]

    def _targets(self, node: int, region: Region) -> int | None:
        """The one node of ``region`` that reads every output of ``node``."""
        found: set[int] = set()
        for tensor in filter(None, self.nodes[node].outputs):
            users = [user for user in self.users.get(tensor, ()) if user in region.nodes]
            if len(set(users)) != 1:
                return None
            found.update(users)
        return found.pop() if len(found) == 1 else None


def find_regions(graph: Graph) -> list[Region]:
    """Regions of ``graph``, leaves before composites; some nodes are in several."""
    return _Finder(graph).find()


def signature(region: Region, graph: Graph) -> str:
    """Structure of a region; regions of one signature share a scheme."""
    nodes = "->".join(_describe(graph.nodes[n], graph, region.nodes) for n in sorted(region.nodes))
    if not region.children:
        return nodes
    return f"({nodes}|{'+'.join(signature(child, graph) for child in region.in_order)})"


def _describe(node: Node, graph: Graph, inside: set[int]) -> str:
    attributes = ",".join(f"{k}={v}" for k, v in sorted(node.attributes.items()))
    sources = ""
    if node.op in _COMMUTATIVE and len(node.inputs) > 1:
        producers = [graph.producer.get(tensor) for tensor in node.inputs]
        sources = ",".join(
            sorted("" if p is None else f"{p.index in inside}:{p.op}" for p in producers)
        )
    return f"{node.op}[{attributes}]<{sources}>"


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
        linear = {Edge(n.inputs[1], n.name, 1) for n in nodes if n.op in _LINEAR}
        return edges | linear

    def _is_skipped(self, tensor: str, node: Node) -> bool:
        """Whether ``tensor`` never gets a pair before ``node``."""
        places = [i for i, own in enumerate(node.inputs) if own == tensor]
        if not places:
            return False
        first = places[-1]
        if node.op in _SKIPPED or (node.op in _LINEAR and first >= 1):
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


class RegionProposer:
    """Tunes one pattern of regions after the other, starting from the float model.

    Keeps its own state, so it is told of every trial in turn.
    """

    def __init__(self, space: Space, seed: int, schemes: int = SCHEMES) -> None:
        self._space = space
        self._random = random.Random(seed)
        self._schemes = schemes
        self._patterns = _patterns(space)
        self._reachable = {e for p in self._patterns for _, _, reach in p.regions for e in reach}
        self._search = self._tune_all()
        self._waiting: dict[str, str] | None = next(self._search)

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``placer.search.samplers.Proposer``; None once all patterns are tuned."""
        known = {trial.placement_id: trial.ratio for trial in trials}
        while self._waiting is not None:
            ratio = known.get(self._space.placement(self._waiting).id)
            if ratio is None:
                return Proposal("region", self._waiting)
            self._waiting = self._advance(ratio)
        return None

    def _advance(self, ratio: float) -> dict[str, str] | None:
        try:
            return self._search.send(ratio)
        except StopIteration:
            return None

    def _tune_all(self) -> Generator[dict[str, str], float, None]:
        """Yields choices and is sent their latency."""
        yield dict(self._space.floats)
        best: dict[_Pattern, Scheme] = {}
        for pattern in self._patterns:
            measured: dict[Scheme, float] = {}
            for _ in range(self._schemes):
                scheme = self._propose(pattern, measured)
                if scheme is None:
                    break
                measured[scheme] = yield self._choices({**best, pattern: scheme})
            best[pattern] = min(measured, key=lambda own: measured[own])

    def _propose(self, pattern: _Pattern, measured: dict[Scheme, float]) -> Scheme | None:
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


def _patterns(space: Space) -> list[_Pattern]:
    """Patterns in the order they are tuned, with the points that a decided layout may use."""
    graph = space.graph
    finder = _Finder(graph)
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
