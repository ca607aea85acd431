"""Regions of a graph as NVIDIA Model Optimizer's region search has them (see ``region_scheme``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from placer.graph import Graph, Node

REACH = 10  # Steps to look ahead for where branches join.
PROBE_AFTER_JOIN = 3
SPLIT_FROM, LARGEST_CHAIN, MOST_BOUNDARIES = 10, 10, 3

LINEAR_OPS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_BOUNDARY = LINEAR_OPS | {
    "AveragePool",
    "MaxPool",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Resize",
}
_COMMUTATIVE = frozenset(
    "Add Mul And Or Xor Equal Max Min Sum Mean BitwiseAnd BitwiseOr BitwiseXor".split()
)


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


class RegionFinder:
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
        """All regions, leaves before composites; some nodes are in several."""
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
