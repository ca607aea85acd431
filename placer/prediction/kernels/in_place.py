"""Operands of attentions that are read where a product wrote them.

A product without a bias writes queries, keys or values, or several of them side by side, and what
splits and turns them to heads is only how the attention reads them. Products of one tensor are one
kernel, so none of what they write is read so if a bias is added to a part of it; and all that they
write for must be as wide, which keys of text that blocks of several widths read are not. Heads that
are too narrow for an attention in one kernel are read so as well.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 70 small graphs of
attentions to themselves and to others, with and without biases, and Whisper and ViTs.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator

from placer.graph import Node
from placer.graph.weights import weight_input
from placer.prediction.kernels.attention_units import AttentionUnits
from placer.prediction.kernels.factors import number
from placer.prediction.kernels.views import is_powered, readers_of
from placer.prediction.kernels.wiring import UnitGraph

_CUTS = frozenset({"Split", "Slice", "Gather"})
_MOVES = frozenset({"Reshape", "Transpose", "Split", "Squeeze", "Unsqueeze"})


class InPlace:
    """What moves operands of the attentions of one placement and costs nothing.

    ``joint``: names of products of all operands without a bias, which write floats.
    """

    def __init__(self, made: UnitGraph, attentions: AttentionUnits, joint: Container[str]) -> None:
        self._made, self._attentions, self._products = made, attentions, joint
        self._graph, self._form = made.graph, made.form
        self._joint: dict[str, bool] = {}  # By what is multiplied by weights.

    def has(self, node: Node) -> bool:
        """Whether ``node`` is one of those, or a number that operands are multiplied by.

        What turns an operand that is computed with before it is multiplied is not.
        """
        if not self._moves(node):  # Others may have no inputs.
            return False
        writer = self._made.writer.get(self._made.edges(node)[0].tensor)
        if writer is None or not self._is_joined(writer.node) or writer.role != "product":
            return False
        given = writer.node.inputs[0]
        if given not in self._joint:
            self._joint[given] = self._is_cut_alike(given)
        shaped = node.op != "Transpose" and number(self._graph, node) is None
        return self._joint[given] and (shaped or all(self._operands(node.outputs[0])))

    def are_made_of(self, tensor: str) -> bool:
        """Whether all that reads ``tensor`` are products whose parts are read so."""
        edges = self._graph.edges_of(tensor)
        readers = readers_of(self._graph, tensor)
        known = bool(readers) and all(map(self._is_joined, readers))
        if not known or any(edge.is_graph_output for edge in edges):
            return False
        return self._is_cut_alike(tensor)

    def _is_cut_alike(self, given: str) -> bool:
        """Whether all that products with weights make of ``given`` is only moved, and as wide."""
        widths: set[float] = set()
        for product in filter(self._is_joined, readers_of(self._graph, given)):
            if is_powered(self._graph, product) and not self._made.reads_integers(product):
                continue
            made = product.outputs[0]
            if not (self._is_turned(made) and self._is_only_moved(made)):
                return False
            rows = max(1, math.prod((self._graph.type_of(made).shape or (0,))[:-1]))
            sizes = (math.prod(self._graph.type_of(t).shape or (0,)) for t in self._parts(made))
            widths.update(size / rows for size in sizes)
        return len(widths) == 1

    def _parts(self, tensor: str) -> Iterator[str]:
        """The heads that are turned of ``tensor``, for which a Split or the like cuts it."""
        for node in readers_of(self._graph, tensor):
            if node.op == "Transpose":
                for made in node.outputs:
                    cut = [n for n in readers_of(self._graph, made) if self._cuts_heads(n)]
                    yield from (t for n in cut for t in n.outputs) if cut else (made,)
            else:
                for made in node.outputs:
                    yield from self._parts(made)

    def _cuts_heads(self, node: Node) -> bool:
        """Whether it takes some of what was turned, and all channels of each head."""
        if node.op not in _CUTS:
            return False
        given, made = (
            self._graph.type_of(t).shape or (0,) for t in (node.inputs[0], node.outputs[0])
        )
        return given[-1:] == made[-1:]

    def _is_turned(self, tensor: str) -> bool:
        """Whether whatever computes of heads reads them behind a Transpose (15 small graphs)."""
        readers = readers_of(self._graph, tensor)
        return all(
            self._moves(node)
            and (node.op == "Transpose" or all(map(self._is_turned, node.outputs)))
            for node in readers
        )

    def _is_only_moved(self, tensor: str) -> bool:
        """Whether a tensor is not quantized before it is multiplied."""
        edges = self._graph.edges_of(tensor)
        moves = [self._graph.by_name[edge.node] for edge in edges if edge.node]
        moves = [node for node in moves if self._moves(node)]
        return not any(edge in self._form.scales for edge in edges) and all(
            self._is_only_moved(made) for node in moves for made in node.outputs
        )

    def _is_joined(self, node: Node) -> bool:
        """Whether it is a product with a weight whose kernel alone writes what it makes."""
        if node.op != "MatMul" or weight_input(self._graph, node) is None:
            return False
        floats = node.name in self._products or not self._made.reads_integers(node)
        return floats or self._made.has_one_scale(node)

    def _operands(self, tensor: str) -> Iterator[str]:
        """The operands of products that are made of ``tensor``; empty for any other reader."""
        edges = self._graph.edges_of(tensor)
        if not edges:
            yield ""
        for edge in edges:
            node = self._graph.by_name.get(edge.node)
            if node is None or edge in self._form.scales:
                yield ""
            elif self._moves(node):
                for made in node.outputs:
                    yield from self._operands(made)
            else:
                yield tensor if self._multiplies(node) else ""

    def _multiplies(self, node: Node) -> bool:
        """Whether it multiplies heads: an attention in one kernel, or a product of activations."""
        nodes = self._attentions.of.get(node.name, ())
        if self._attentions.has(node):
            return node in (nodes[0], nodes[-1]) or number(self._graph, node) is not None
        if node.op != "MatMul" or any(e in self._form.scales for e in self._made.edges(node)):
            return False
        return not any(tensor in self._graph.initializers for tensor in node.inputs)

    def _moves(self, node: Node) -> bool:
        if self._attentions.has(node):
            return False
        if node.op == "Gather":
            return len(self._graph.type_of(node.inputs[1]).shape or ()) == 0
        columns = node.op == "Slice" and self._cuts_columns(node)
        return columns or node.op in _MOVES or number(self._graph, node) is not None

    def _cuts_columns(self, node: Node) -> bool:
        """Whether it is a Slice that cuts out columns of a product for queries, keys or values."""
        product = self._graph.producer.get(node.inputs[0])
        return product is not None and product.name in self._products
