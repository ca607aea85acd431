"""The units of attentions that are one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placer.graph import Edge, Node
from placer.graph.weights import weight_input
from placer.prediction.kernels.attention import NARROW, is_padded
from placer.prediction.kernels.factors import number
from placer.prediction.kernels.parts import CUT, Unit
from placer.prediction.kernels.views import readers_of
from placer.prediction.kernels.wiring import UnitGraph


class AttentionUnits:
    """Adds the units of attentions; ``of``: by name of a node, the attention it is part of."""

    def __init__(self, made: UnitGraph, attentions: Mapping[str, tuple[Node, ...]]) -> None:
        self._made, self._form = made, made.form
        self._graph = made.graph
        self.of = {n.name: nodes for nodes in attentions.values() for n in nodes}
        self._all_of: dict[str, list[tuple[Node, ...]]] = {}  # Several for a mask.
        for nodes in attentions.values():
            for node in nodes:
                self._all_of.setdefault(node.name, []).append(nodes)

    def add(self, node: Node) -> bool:
        """Add the units of an attention when its last node comes; False if ``node`` is of none."""
        if not self.has(node):
            return False
        if node is self.of[node.name][-1]:
            self._add_attention(self.of[node.name])
        return True

    def has(self, node: Node) -> bool:
        """Whether ``node`` is part of an attention that is one kernel."""
        return node.name in self.of and all(map(self._is_whole, self._all_of[node.name]))

    def _is_whole(self, nodes: Sequence[Node]) -> bool:
        """Whether an attention is one kernel: in float, or all of it from INT8 to INT8."""
        edges = [e for n in (nodes[0], nodes[-1]) for e in self._made.edges(n)]
        count = sum(edge in self._form.scales for edge in edges)
        written = self._graph.edges_of(nodes[-1].outputs[0])
        return not count or (count == len(edges) and all(e in self._form.scales for e in written))

    def _add_attention(self, nodes: Sequence[Node]) -> None:
        written = {t for node in nodes for t in node.outputs}
        edges = [e for n in nodes for e in self._made.edges(n) if e.tensor not in written]
        pads = is_padded(self._graph, nodes[0])
        ends = {edge for node in (nodes[0], nodes[-1]) for edge in self._made.edges(node)}
        moved: dict[Edge, Unit] = {}
        for edge in edges:
            if pads and edge in ends:
                moved[edge] = self._made.add(nodes[-1], "move", [edge], (), works=False)
                moved[edge].names = nodes
        made = tuple(nodes[-1].outputs)
        unit = self._made.add(
            nodes[-1], "product", edges, self._made.padded(made) if pads else made
        )
        unit.integers = any(edge in self._form.scales for edge in edges)
        for edge, move in moved.items():
            self._made.relink(unit, edge, move)
        if pads:
            cut = self._made.add(nodes[-1], "move", [], made, works=False)
            self._made.link(Edge(unit.outputs[0], nodes[-1].name, CUT), unit, cut)
            cut.names = nodes

    def reads_in_place(self, node: Node) -> bool:
        """Whether an attention reads what a product writes, without a bias, where it lies.

        It multiplies it by a number as well, but repeats no heads, and queries and keys are both
        read so or neither is (six small graphs, and Whisper, whose keys alone have no bias). What
        a joint product of unequal parts writes is cut out first, as keys of text that blocks of
        several widths read.
        """
        if not self._is_read_in_place(node):  # Others may have no inputs.
            return False
        writer = self._made.writer.get(node.inputs[0])
        if writer is None or writer.integers:
            return False
        if writer.role != "product" or writer.node.op != "MatMul" or writer.node.name in self.of:
            return False
        if not self._is_of_equal_parts(writer.node):
            return False
        while self._is_read_in_place(node):
            readers = self._graph.edges_of(node.outputs[0])
            if len(readers) != 1 or not readers[0].node or readers[0] in self._form.scales:
                return False
            node = self._graph.by_name[readers[0].node]
        if node.name not in self.of:
            return self._multiplies_in_place(node)
        if not self.has(node):
            return False
        scores, mix = self.of[node.name][0], self.of[node.name][-1]
        return node is mix or (node is scores and all(map(self._lies_in_place, scores.inputs)))

    def _multiplies_in_place(self, node: Node) -> bool:
        """Whether a float product of heads, too narrow for an attention, does so: scores or not."""
        if node.op != "MatMul" or any(edge in self._form.scales for edge in self._made.edges(node)):
            return False
        if any(tensor in self._graph.initializers for tensor in node.inputs):
            return False
        width = (self._graph.type_of(node.inputs[1]).shape or (0, 0))[-2:]
        first = self._graph.producer.get(node.inputs[0])
        if first is not None and first.op == "Softmax":
            return width[1] <= NARROW
        return width[0] <= NARROW and all(map(self._lies_in_place, node.inputs))

    def _is_of_equal_parts(self, product: Node) -> bool:
        """Whether all products of its first operand with weights make as many columns."""
        made = [
            (self._graph.type_of(node.outputs[0]).shape or (0,))[-1]
            for node in readers_of(self._graph, product.inputs[0])
            if node.op == "MatMul" and weight_input(self._graph, node) is not None
        ]
        return len(set(made)) <= 1

    def _lies_in_place(self, tensor: str) -> bool:
        """Whether queries or keys are what a product writes, or are no activation."""
        node = self._graph.producer.get(tensor)
        while node is not None and self._is_read_in_place(node):
            node = self._graph.producer.get(node.inputs[0])
        return node is None or (node.op == "MatMul" and node.name not in self.of)

    def _is_read_in_place(self, node: Node) -> bool:
        if node.name in self.of:
            return False
        return node.op in ("Reshape", "Transpose") or number(self._graph, node) is not None
