"""The units of convolutions and matrix products."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import replace

from placer.graph import Edge, Graph, Node
from placer.graph.weights import weight_input
from placer.prediction.kernels.lines import is_single_line
from placer.prediction.kernels.norm_units import NormUnits
from placer.prediction.kernels.parts import (
    CONVS,
    CUT,
    EVEN_CHANNELS,
    TINY_CHANNELS,
    TRANSPOSED_CHANNELS,
    Unit,
    multiplies_weight,
    role_of,
)
from placer.prediction.kernels.reductions import WRITTEN_OUT, has_heads, product_shape
from placer.prediction.kernels.shared_operands import Joined
from placer.prediction.kernels.turned_operands import has_odd_rows
from placer.prediction.kernels.views import is_matrix_conv, readers_of
from placer.prediction.kernels.wiring import UnitGraph, is_volume

_ACTIVATIONS = ("Relu", "Sigmoid", "Mul", "HardSwish", "HardSigmoid", "Tanh", "LeakyRelu", "Gelu")

_HEADS_RANK = 4
# Beyond these, a row is not multiplied by a generated kernel (50 small graphs: 256 x 512 and
# 4096 x 384 are, 264 x 512 and 256 x 520 are not, nor is any of 252 rows and fewer).
_LARGE_WEIGHT, _LONG_ROW, _MANY_COLUMNS = 256 * 512, 256, 512


class ProductUnits:
    """Adds the units of products.

    ``unscaled``: names of those whose readers add the bias; ``multiplied``: of those whose operands
    are multiplied by a number, which no sum does.
    """

    def __init__(
        self,
        made: UnitGraph,
        norms: NormUnits,
        unscaled: Container[str],
        multiplied: Container[str],
    ) -> None:
        self._made, self._norms, self._unscaled = made, norms, unscaled
        self._multiplied = multiplied
        self._graph, self._form = made.graph, made.form
        self._padded: dict[object, Unit] = {}  # By what is padded.

    def add_convolution(self, node: Node) -> None:
        """A Conv or ConvTranspose: generated, or a product with what pads and scales."""
        if self._is_tiny(node):
            self._add_tiny(node)
            return
        edges, channels = self._made.edges(node), _channels(self._graph, node)
        groups = node.attributes.get("group", 1) if node.op == "Conv" else 1
        integers = node.op == "Conv" and self._made.reads_integers(node)
        single = integers and is_single_line(self._graph, node)
        depthwise = 1 < groups == channels
        # Before a depthwise Conv of three dimensions a kernel moves channels in float as well, and
        # its own kernel is generated (21 small graphs of windows and strides).
        volume = depthwise and not integers and is_volume(self._graph, node)
        uneven = channels % EVEN_CHANNELS != 0 if integers else channels % 2 != 0 and not depthwise
        padded = (uneven or volume or (integers and depthwise)) and not single
        if node.op == "ConvTranspose":
            padded = _pads_transposed(self._graph, node, edges[0] in self._form.scales)
        moved = self._moved_before(node, edges[0], padded, integers, depthwise)
        product = self._made.add(node, "product", edges, (self._made.sum_of(node),))
        product.integers = integers
        product.scales = integers and (single or self._made.has_one_scale(node))
        product.depthwise = depthwise
        product.grouped = volume or 1 < groups < channels
        if moved is not None:
            self._made.relink(product, edges[0], moved)
        self._finish(product, node)

    def _moved_before(
        self, node: Node, edge: Edge, padded: bool, integers: bool, depthwise: bool
    ) -> Unit | None:
        """The kernel that moves what a Conv reads along ``edge``, for its padding or of a norm."""
        if not padded and (integers or not self._norms.writes(edge.tensor)):
            return None
        read = (edge.tensor, self._form.scales.get(edge), integers, depthwise)
        shares = padded and node.op == "Conv"
        if shares and read in self._padded:
            # All Convs read what is padded for one, and the builder names the last (14 graphs).
            moved = self._padded[read]
            moved.node = node
            return moved
        made = (f"{node.inputs[0]}/{node.name}",)
        moved = self._made.add(node, "move", [edge], made, works=False)
        moved.names = None if padded else ()
        if shares:
            self._padded[read] = moved
        return moved

    def cuts_matrix(self, node: Node) -> Sequence[Node]:
        """The Split, or Slices of channels, of which one kernel makes all parts; empty if none.

        Of what a float 1x1 Conv wrote as a matrix. What a generated kernel alone reads and
        quantizes, it cuts out itself.
        """
        given = node.inputs[0]
        parts = [node] if node.op == "Split" else list(readers_of(self._graph, given))
        quantized = any(self._made.edges(part)[0] in self._form.scales for part in parts)
        if quantized or not self._is_matrix(given):
            return ()
        if node.op == "Slice" and (len(parts) == 1 or not all(map(self._cuts_channels, parts))):
            return ()
        readers = [self._graph.edges_of(tensor) for part in parts for tensor in part.outputs]
        known = all(any(self._reads_part(edge) for edge in edges) for edges in readers)
        return parts if known else ()

    def _cuts_channels(self, node: Node) -> bool:
        """Whether it is a Slice that takes channels and nothing else."""
        given, made = (
            self._graph.type_of(tensor).shape or (0, 0)
            for tensor in (node.inputs[0], node.outputs[0])
        )
        same = (given[:1], given[2:]) == (made[:1], made[2:])
        return node.op == "Slice" and same and given[1] != made[1]

    def _reads_part(self, edge: Edge) -> bool:
        """Whether a part must be there as such: in float, or as integers for a product."""
        reader = self._graph.by_name.get(edge.node)
        return edge not in self._form.scales or reader is None or reader.op in CONVS

    def _is_matrix(self, tensor: str) -> bool:
        """Whether a float 1x1 Conv wrote a tensor as a matrix, which is one of many channels.

        Sums with another map and Clip need a Conv's kernel.
        """
        node = self._graph.producer.get(tensor)
        while node is not None and node.op not in CONVS:
            given = [t for t in node.inputs if t not in self._graph.initializers]
            if node.op not in _ACTIVATIONS or any(
                e in self._form.scales for e in self._made.edges(node)
            ):
                return False
            node = self._graph.producer.get(given[0])
        if node is None or node.op != "Conv" or self._made.reads_integers(node):
            return False
        return is_matrix_conv(self._graph, node)

    def add_matrix_product(self, node: Node) -> None:
        """A MatMul or Gemm."""
        weighted = weight_input(self._graph, node) is not None
        if self._add_generated(node, weighted):
            return
        if node.op == "MatMul" and (not weighted or self._cuts_heads(node)):
            self._add_odd_product(node)
        else:
            self._add_prepared(node, weighted)

    def _add_generated(self, node: Node, weighted: bool) -> bool:
        """Sum over products in a generated kernel, of few rows or columns; whether it does so."""
        multiplied = node.name in self._multiplied
        if not weighted:
            if multiplied or not self._is_of_vector(node):
                return False
            self._made.add(node, "reduce", self._made.edges(node), tuple(node.outputs))
            return True
        shape = product_shape(self._graph, node)
        rows = math.prod(shape[:-1]) if shape else 0
        is_sum = rows == 1 and not multiplied and not self._is_prepared(node)
        if self._made.reads_integers(node) or not (is_sum or shape[-1:] == (1,)):
            return False
        product = self._made.add(node, "reduce", self._made.edges(node), tuple(node.outputs))
        if is_sum and len(node.inputs) > 2 and node.inputs[2]:
            product.outputs = (self._made.sum_of(node),)
            self._made.add_epilogue(node, product)
        return True

    def _add_prepared(self, node: Node, weighted: bool) -> None:
        """A prepared kernel, and what pads for it."""
        edges = self._made.edges(node)
        padded, odd = None, weighted and has_odd_rows(self._graph, node)
        if odd:
            padded = self._add_alone(node, edges[:1], ())
        elif weighted and self._pads_columns(node):
            made = (f"{node.inputs[0]}/{node.name}",)
            padded = self._made.add(node, "move", edges[:1], made, works=False)
        product = self._made.add(node, "product", edges, (self._made.sum_of(node),))
        rounded = weighted and self._reads_rounded(node)
        product.integers = rounded or self._made.reads_integers(node)
        product.scales = rounded or (product.integers and self._made.has_one_scale(node))
        product.dequantizes = weighted and self._dequantizes_weight(node)
        if padded is not None:
            self._made.relink(product, edges[0], padded)
        if odd and not product.leaves_sums:
            self._cut_rows(product, node)
        else:
            self._finish(product, node)

    def add_joined(self, joined: Joined) -> None:
        """Products that share an operand, and what joins their others."""
        first, other = joined.products[0], 1 - joined.shared
        made = f"{first.outputs[0]}/joined"
        self._made.shaped_as[made] = first.inputs[other]
        concat = replace(first, op="Concat", inputs=joined.joined, outputs=(made,))
        edges = [Edge(product.inputs[other], product.name, other) for product in joined.products]
        self._made.add(concat, "move", edges, (made,)).names = (first,)
        outputs = tuple(product.outputs[0] for product in joined.products)
        shared = Edge(first.inputs[joined.shared], first.name, joined.shared)
        product = self._made.add(first, "product", [Edge(made, first.name, other), shared], outputs)
        product.names = joined.products

    def _cut_rows(self, product: Unit, node: Node) -> None:
        """What reads padded rows cuts the padding off."""
        made = tuple(node.outputs)
        product.outputs = self._made.padded(made)
        cut = self._made.add(node, "move", [], made, works=False)
        cut.names = (node,)
        self._made.link(Edge(product.outputs[0], node.name, CUT), product, cut)

    def _cuts_heads(self, node: Node) -> bool:
        """Whether a kernel of its own takes off what pads a weight of several heads."""
        weight = weight_input(self._graph, node)
        heads = weight is not None and has_heads(self._graph, weight)
        return heads and not self._made.reads_integers(node)

    def _is_prepared(self, node: Node) -> bool:
        """Whether a prepared kernel multiplies a single row: by a large weight, or if it is joined.

        A generated kernel would compute its row, which none does that ends with a Concat. Weights
        of one row are one weight.
        """
        columns = sum(
            product_shape(self._graph, other)[-1]
            for other in readers_of(self._graph, node.inputs[0])
            if other is node or self._multiplies_floats(other, node.inputs[0])
        )
        length = (self._graph.type_of(node.inputs[0]).shape or (0,))[-1]
        if length >= _LONG_ROW and columns >= _MANY_COLUMNS and length * columns > _LARGE_WEIGHT:
            return True
        before = self._graph.producer.get(node.inputs[0])
        while before is not None and before.op in _ACTIVATIONS and len(before.inputs) == 1:
            before = self._graph.producer.get(before.inputs[0])
        return before is not None and before.op == "Concat"

    def _multiplies_floats(self, node: Node, row: str) -> bool:
        """Whether a product multiplies ``row`` by a weight in float."""
        if node.inputs[0] != row or not multiplies_weight(self._graph, node):
            return False
        return not self._made.reads_integers(node)

    def _reads_rounded(self, node: Node) -> bool:
        """Whether only the matrix has a pair, and the weight is float.

        The kernel reads integers all the same, and scales what it sums (12 small graphs).
        """
        given, weight = (Edge(node.inputs[index], node.name, index) for index in (0, 1))
        if weight.tensor not in self._graph.initializers or weight in self._form.scales:
            return False
        return given in self._form.scales and not self._made.is_float8(given)

    def _dequantizes_weight(self, node: Node) -> bool:
        """Whether only the weight has a pair, and nothing else reads it (27 small graphs)."""
        given, weight = (Edge(node.inputs[index], node.name, index) for index in (0, 1))
        if weight not in self._form.scales or given in self._form.scales:
            return False
        return len(self._graph.edges_of(weight.tensor)) == 1

    def _is_of_vector(self, node: Node) -> bool:
        """Whether it multiplies one matrix and one vector, both activations in float.

        Matrices that one column is multiplied by are one.
        """
        shape = product_shape(self._graph, node)
        single = 1 in shape[-2:] and math.prod(shape[:-2]) == 1
        if shape[-1:] == (1,):
            second = self._graph.type_of(node.inputs[1]).shape or (0,)
            single = math.prod(second) == second[-2:][0]
        return node.op == "MatMul" and single and not self._made.reads_integers(node)

    def _pads_columns(self, node: Node) -> bool:
        """Whether what splits or joins an odd number of columns pads them for a product."""
        writer = self._made.writer.get(node.inputs[0])
        columns = (self._graph.type_of(node.inputs[0]).shape or (0,))[-1]
        if writer is None or writer.node.op not in ("Split", "Concat"):
            return False
        return columns % 2 == 1 and not self._made.reads_integers(node)

    def _add_odd_product(self, node: Node) -> None:
        """A product of activations: odd rows and columns are padded by kernels of their own."""
        shapes = [self._graph.type_of(t).shape or (0, 0) for t in node.inputs]
        inner, columns = shapes[0][-1] % 2, shapes[1][-1] % 2
        inner = inner and shapes[0][-1] > WRITTEN_OUT
        edges = self._made.edges(node)
        moved = {}
        for edge in edges:
            if inner or (columns and edge.input_index == 1):
                moved[edge] = self._add_alone(node, [edge], ())
        made = tuple(node.outputs)
        product = self._made.add(
            node, "product", edges, self._made.padded(made) if columns else made
        )
        product.dequantizes = self._dequantizes_operand(node)
        product.integers = product.dequantizes or self._made.reads_integers(node)
        product.scales = product.integers
        for edge, move in moved.items():
            self._made.relink(product, edge, move)
        if columns:
            cut = self._add_alone(node, [], made)
            self._made.link(Edge(product.outputs[0], node.name, CUT), product, cut)

    def _dequantizes_operand(self, node: Node) -> bool:
        """Whether only one operand has a pair, which the kernel dequantizes.

        Of heads, in four dimensions, not the first one, which is made a float again by what
        quantizes it (50 small graphs).
        """
        first, second = (Edge(node.inputs[i], node.name, i) in self._form.scales for i in (0, 1))
        rank = len(self._graph.type_of(node.outputs[0]).shape or ())
        return first != second and (second or rank < _HEADS_RANK)

    def _add_alone(self, node: Node, edges: Sequence[Edge], made: tuple[str, ...]) -> Unit:
        unit = self._made.add(node, "move", edges, made, works=False)
        unit.names, unit.alone = (node,), True
        return unit

    def _finish(self, product: Unit, node: Node) -> None:
        apart = product.grouped or node.op == "Gemm"
        biased = apart and len(node.inputs) > 2 and bool(node.inputs[2])
        if (product.leaves_sums or biased) and node.name not in self._unscaled:
            self._made.add_epilogue(node, product)
        else:
            product.unpacks_weight = product.leaves_sums
            product.outputs = tuple(node.outputs)
            self._made.writer[node.outputs[0]] = product

    def _add_tiny(self, node: Node) -> None:
        """A Conv of few channels: each of them is an operand, but integers are summed over."""
        edges = self._made.edges(node)
        if not self._made.reads_integers(node):
            self._made.add(node, "pointwise", edges, tuple(node.outputs))
            return
        product = self._made.add(node, "reduce", edges, (self._made.sum_of(node),))
        readers = readers_of(self._graph, node.outputs[0])
        if [reader.op for reader in readers] == ["HardSigmoid"]:  # Its factor is the scale's.
            product.names = (node, *readers)
        self._made.add_epilogue(node, product)

    def _is_tiny(self, node: Node) -> bool:
        """Whether a generated kernel multiplies: few channels, pixel by pixel."""
        shape = self._graph.type_of(node.inputs[0]).shape or ()
        window = (self._graph.type_of(node.inputs[1]).shape or ())[2:]
        single = (1, 1) in (shape[2:], window)
        integers = self._made.reads_integers(node)
        if integers and shape[:1] != (1,):  # Of several samples prepared kernels sum integers.
            return False
        if node.attributes.get("group", 1) != 1 or integers:
            return shape[2:] == (1, 1) and shape[1] <= TINY_CHANNELS
        strided = set(node.attributes.get("strides", (1,))) != {1}
        tiny = node.op == "Conv" and len(shape) == 4 and single and not strided
        tiny = tiny and shape[1] <= TINY_CHANNELS
        return tiny and not self._adds_map(node)

    def _adds_map(self, node: Node) -> bool:
        """Whether only a sum with another map reads it, which a prepared kernel adds to it.

        Of two Convs that are added, the later one adds.
        """
        readers = readers_of(self._graph, node.outputs[0])
        shape = self._graph.type_of(node.outputs[0]).shape or ()
        if len(readers) != 1 or readers[0].op != "Add" or math.prod(shape[2:]) == 1:
            return False
        others = [t for t in readers[0].inputs if t != node.outputs[0]]
        if len(others) != 1 or others[0] in self._graph.initializers:
            return False
        other = self._graph.producer.get(others[0])
        later = other is not None and other.op in CONVS and other.index > node.index
        return self._graph.type_of(others[0]).shape == shape and not later


def _channels(graph: Graph, node: Node) -> int:
    shape = graph.type_of(node.inputs[0]).shape
    return shape[1] if shape is not None and len(shape) > 2 else EVEN_CHANNELS


def _pads_transposed(graph: Graph, node: Node, quantized: bool) -> bool:
    """Whether a kernel pads the channels that a ConvTranspose reads (see ``cut_maps``).

    Those of another ConvTranspose, after nodes element by element at most, are there padded, but
    for those that are ``quantized``.
    """
    shape = graph.type_of(node.inputs[0]).shape
    if shape is None or shape[1] % TRANSPOSED_CHANNELS == 0:
        return False
    if quantized:
        return True
    before = graph.producer.get(node.inputs[0])
    while before is not None and before.op != "ConvTranspose":
        given = [tensor for tensor in before.inputs if tensor not in graph.initializers]
        before = graph.producer.get(given[0]) if len(given) == 1 else None
        if before is not None and before.op != "ConvTranspose" and role_of(before) != "pointwise":
            before = None
    return before is None
