"""The units of attentions that are one kernel."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from placer.graph import Edge, Node
from placer.prediction.kernels.attention import (
    has_int8_kernel,
    is_padded,
    product_before,
    repeated,
)
from placer.prediction.kernels.factors import number
from placer.prediction.kernels.parts import CUT, Unit
from placer.prediction.kernels.scaled_pairs import is_absorbed
from placer.prediction.kernels.wiring import UnitGraph


class AttentionUnits:
    """Adds the units of attentions; ``of``: by name of a node, the attention it is part of.

    ``joint``: names of products of all operands without a bias, which write floats.
    """

    def __init__(
        self,
        made: UnitGraph,
        attentions: Mapping[str, tuple[Node, ...]],
        joint: Container[str],
    ) -> None:
        self._made, self._form, self._joint = made, made.form, joint
        self._graph = made.graph
        self.of: dict[str, tuple[Node, ...]] = {}
        self._all_of: dict[str, list[tuple[Node, ...]]] = {}  # Several for a mask.
        for nodes in map(self._without_quantized, attentions.values()):
            for node in nodes:
                self.of[node.name] = nodes
                self._all_of.setdefault(node.name, []).append(nodes)

    def _without_quantized(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """``nodes`` without what scales operands before they are quantized, or of INT8 products.

        And without what repeats keys and values where a pair is there, unless the kernel reads
        integers: what writes them repeats both then (23 small graphs).
        """
        quantized = {e.tensor for e in self._made.edges(nodes[0]) if e in self._form.scales}
        repeats = {node.name for node in repeated(self._graph, nodes)}
        rounded = any(
            edge in self._form.scales
            for node in (*repeated(self._graph, nodes), nodes[0], nodes[-1])
            for edge in self._made.edges(node)
            if edge.input_index == (node in (nodes[0], nodes[-1]))
        )
        apart = repeats if rounded and not self._is_of_integers(nodes) else set()
        return tuple(
            node
            for node in nodes
            if node.name not in apart
            and (node.name in repeats or quantized.isdisjoint(node.outputs))
            and not self._scales_integers(node, nodes[0])
        )

    def _is_of_integers(self, nodes: Sequence[Node]) -> bool:
        """Whether all operands of both products have a pair."""
        edges = [e for n in (nodes[0], nodes[-1]) for e in self._made.edges(n)]
        return all(edge in self._form.scales for edge in edges)

    def _scales_integers(self, node: Node, scores: Node) -> bool:
        """Whether it scales an operand that an INT8 product sums, whose scaling does it as well."""
        if not set(node.outputs) & set(scores.inputs):
            return False
        product = product_before(self._graph, node)
        if product is None or product.name in self._joint:
            return False
        return self._made.reads_integers(product)

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
        """Whether an attention is one kernel: in float, or all of it from INT8 to INT8.

        It is in float unless the first product multiplies integers or what Softmax makes has a
        pair. Pairs before that, as of masked scores or repeated keys, are inside the kernel, which
        rounds nothing there (35 small graphs). Other pairs of operands are made floats of by what
        writes these (15).
        """
        softmax = next(index for index, node in enumerate(nodes) if node.op == "Softmax")
        weights = {tensor for node in nodes[softmax:-1] for tensor in node.outputs}
        read = [e for node in nodes[softmax:] for e in self._made.edges(node)]
        inside = [e for e in read if e.tensor in weights]
        edges = [e for n in (nodes[0], nodes[-1]) for e in self._made.edges(n)]
        count = sum(edge in self._form.scales for edge in edges)
        if not count or count < len(edges):
            rounded = any(edge in self._form.scales for edge in inside)
            return not (rounded or self._made.reads_integers(nodes[0]))
        if any(edge in self._form.scales for edge in inside if edge not in edges):
            return False
        if self._are_scores_rounded(nodes[0]):
            return False
        written = self._graph.edges_of(nodes[-1].outputs[0])
        if not (self._made.is_float8(edges[0]) or has_int8_kernel(self._graph, nodes[0])):
            return False
        return all(e in self._form.scales for e in written)

    def _are_scores_rounded(self, scores: Node) -> bool:
        """Whether a product of integers quantizes what it sums, be it times a number.

        A pair behind a mask, or on the mask, is inside the kernel (15 small graphs).
        """
        behind: Node | None = scores
        while behind is not None:
            edges = self._graph.edges_of(behind.outputs[0])
            if any(edge in self._form.scales for edge in edges):
                return True
            behind = self._graph.sole_reader(behind.outputs[0])
            if behind is not None and number(self._graph, behind) is None:
                return False
        return False

    def named(self, node: Node) -> tuple[Node, ...]:
        """The nodes that the attention's kernel is called after: all but numbers in scales."""
        scales = self._form.scales
        return tuple(n for n in self.of[node.name] if not is_absorbed(self._graph, n, scales))

    def _add_attention(self, nodes: Sequence[Node]) -> None:
        written = {t for node in nodes for t in node.outputs}
        edges = [e for n in nodes for e in self._made.edges(n) if e.tensor not in written]
        pads = is_padded(self._graph, nodes[0])
        scales = [node for node in nodes if set(node.outputs) & set(nodes[0].inputs)]
        ends = {e for node in (nodes[0], nodes[-1], *scales) for e in self._made.edges(node)}
        moved: dict[Edge, Unit] = {}
        for edge in edges:
            if pads and edge in ends:
                moved[edge] = self._made.add(nodes[-1], "move", [edge], (), works=False)
                moved[edge].names = nodes
        made = tuple(nodes[-1].outputs)
        unit = self._made.add(
            nodes[-1], "product", edges, self._made.padded(made) if pads else made
        )
        unit.integers = self._made.reads_integers(nodes[0])
        for edge, move in moved.items():
            self._made.relink(unit, edge, move)
        if pads:
            cut = self._made.add(nodes[-1], "move", [], made, works=False)
            self._made.link(Edge(unit.outputs[0], nodes[-1].name, CUT), unit, cut)
            cut.names = nodes
