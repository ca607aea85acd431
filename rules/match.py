"""One occurrence of a rule's pattern in a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placer.graph import Edge, Graph, Node
from placer.rules.schema import Rule


@dataclass(frozen=True, eq=False, slots=True)
class Match:
    """One occurrence of a rule's pattern.

    ``nodes``: graph node per pattern node; absent optional nodes are left out. Of a row of nodes
    those behind the first are called ``name 2`` and so on.
    ``tensors``: graph tensors per tensor name; one, or any number for variadic names, or none
    for an absent optional input.
    ``ports``: input indices at which a pattern node reads a tensor name.
    """

    rule: Rule
    nodes: Mapping[str, Node]
    tensors: Mapping[str, tuple[str, ...]]
    ports: Mapping[tuple[str, str], tuple[int, ...]]

    @property
    def anchor(self) -> Node:
        """The graph node bound to the pattern's first node."""
        return self.nodes[next(iter(self.rule.pattern))]

    def row(self, name: str) -> tuple[Node, ...]:
        """The graph nodes of a pattern node: one, none if it is absent, or those of a row."""
        nodes = list[Node]()
        while (node := self.nodes.get(row_name(name, len(nodes)))) is not None:
            nodes.append(node)
        return tuple(nodes)

    def edges(self, reference: str, graph: Graph) -> tuple[Edge, ...]:
        """Resolve ``node.tensor`` or ``tensor.*`` to edges; absent nodes give none."""
        owner, _, name = reference.partition(".")
        if name == "*":
            every = [e for tensor in self.tensors.get(owner, ()) for e in graph.edges_of(tensor)]
            return tuple(e for e in every if not inside_subgraph(e, graph))
        node = self.nodes.get(owner)
        if node is None:
            return ()
        return tuple([graph.edge_at(node, i) for i in self.ports[owner, name]])


def row_name(name: str, position: int) -> str:
    """What the node at a position of a row is called in ``Match.nodes``."""
    return f"{name} {position + 1}" if position else name


def inside_subgraph(edge: Edge, graph: Graph) -> bool:
    """Whether a subgraph of the node reads the tensor, not the node itself."""
    if edge.is_graph_output:
        return False
    return edge.input_index >= len(graph.by_name[edge.node].inputs)
