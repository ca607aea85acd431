"""Nodes that move or sum elements across rows, which no kernel that normalizes rows computes.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of GPT-2, Swin and DETR, and
of 30 small graphs that norm the rows of queries and keys and join rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container

from placer.graph import Graph, Node
from placer.graph.kept import kept
from placer.graph.transposes import order_of
from placer.prediction.kernels.flattened import batches
from placer.prediction.kernels.parts import (
    CONVS,
    PRODUCTS,
    REDUCE,
    VIEWS,
    multiplies_weight,
    role_of,
)
from placer.prediction.kernels.reductions import reduction_axes
from placer.prediction.kernels.views import (
    FROM_MAP,
    keeps_all,
    only_reader,
    readers_of,
    turns_to_map,
)

_SUMS = (*CONVS, *PRODUCTS)
_MOVES_ROWS = (
    *("Slice", "Split", "Gather", "Pad", "Concat", "Expand", "Tile", "Resize"),
    *("DepthToSpace", "SpaceToDepth"),
)
_SCALES = ("Clip", "Max", "Add", "Sqrt", "Expand", "Div", "Mul", "Reciprocal")


class Rows:
    """Rows of one placement.

    ``free``: see ``views.free_nodes``; ``is_attention``: whether a product is part of an attention
    in one kernel, for which rows are stored head by head; ``are_heads``: whether all that products
    make of a tensor are operands of attentions, which are read where they were written.
    """

    def __init__(
        self,
        graph: Graph,
        free: Container[str],
        is_attention: Callable[[Node], bool],
        are_heads: Callable[[str], bool],
    ) -> None:
        self._graph, self._free, self._is_attention = graph, free, is_attention
        self._are_heads = are_heads

    def are_split(self, norm: Node) -> bool:
        """Whether what follows a LayerNormalization moves or sums elements across its rows.

        One kernel then takes mean and variance, another scales and does what follows.
        """
        if norm.op != "LayerNormalization":
            return False
        return (
            self._is_normed_again(norm) or self._are_moved_behind(norm) or self.are_modulated(norm)
        )

    def are_modulated(self, norm: Node) -> bool:
        """Whether rows are scaled or shifted by one that another generated kernel sums up.

        So it is in networks for diffusion, where a product of the step's row writes it. As many
        rows as columns, or more, are scaled where they are normed if the row is there before, or a
        product writes them (150 small graphs of 8 to 512 rows). ``norm``: or the mean of squares,
        for which there must be more rows.
        """
        given = norm.inputs[0]
        shape = self._graph.type_of(given).shape or (0,)
        region = [norm]
        for node in region:
            behind = readers_of(self._graph, node.outputs[0])
            known = [r for r in behind if role_of(r) == "pointwise" and r.op not in _SUMS]
            region += [reader for reader in known if reader not in region]
        squared = self._graph.producer.get(given)
        if norm.op == "ReduceMean" and squared is not None:
            given = squared.inputs[0]
        read = {tensor for node in region[1:] for tensor in node.inputs} - {given}
        sums = [_summed_row(self._graph, tensor, shape[-1]) for tensor in sorted(read)]
        if math.prod(shape[:-1]) < shape[-1] + (norm.op == "ReduceMean"):
            return any(summed is not None for summed in sums)
        writer = self._graph.producer.get(given)
        product = writer is not None and writer.op in PRODUCTS
        later = any(summed is not None and summed.index > norm.index for summed in sums)
        return later and not product

    def are_scaled_and_moved(self, summed: Node) -> bool:
        """Whether rows are divided by what is ``summed`` of each, or the like, and moved then."""
        shape = self._graph.type_of(summed.inputs[0]).shape
        waiting, seen = [summed], {summed.name}
        while waiting:
            for reader in readers_of(self._graph, waiting.pop().outputs[0]):
                scales = self._graph.type_of(reader.outputs[0]).shape == shape
                if reader.op not in _SCALES or reader.name in seen:
                    continue
                seen.add(reader.name)
                if scales and reader.op != "Expand":
                    behind = readers_of(self._graph, reader.outputs[0])
                    return bool(behind) and all(self._moves(node, reader) for node in behind)
                waiting.append(reader)
        return False

    def _moves(self, node: Node, scaled: Node) -> bool:
        """Whether it moves what ``scaled`` makes, or it is moved after what it computes of it."""
        computes = self._computes(node, {scaled.name}, scaled.index)
        return self.are_moved(node) or (computes and self._are_moved_behind(node))

    def _are_moved_behind(self, first: Node) -> bool:
        """Whether rows are moved as ``first`` makes them or after nodes element by element.

        Nodes that wait for what is computed later are in its kernel, and those that read a product
        in the product's (50 small graphs).
        """
        region, names = [first], {first.name}
        for node in region:
            readers = readers_of(self._graph, node.outputs[0])
            if any(self.are_moved(reader) for reader in readers):
                return True
            behind = [r for r in readers if self._computes(r, names, first.index)]
            region += behind
            names.update(reader.name for reader in behind)
        return False

    def _computes(self, node: Node, names: Container[str], position: int) -> bool:
        """Whether it computes element by element of nodes of ``names`` and of what was before."""
        if node.name in names or role_of(node) != "pointwise" or node.op in _SUMS:
            return False
        writers = [self._graph.producer.get(tensor) for tensor in node.inputs]
        return all(w is None or w.name in names or self._is_there(w, position) for w in writers)

    def _is_there(self, node: Node, position: int) -> bool:
        """Whether no product computes it, but what comes before ``position``.

        Or nodes element by element of that, or of graph inputs.
        """
        waiting, seen = [node], {node.name}
        while waiting:
            node = waiting.pop()
            if node.op in _SUMS:
                return False
            if node.index < position:
                continue
            if node.index == position or role_of(node) != "pointwise":
                return False
            made = [self._graph.producer[t] for t in node.inputs if t in self._graph.producer]
            waiting += [before for before in made if before.name not in seen]
            seen.update(before.name for before in made)
        return True

    def are_moved(self, node: Node) -> bool:
        """Whether ``node`` moves or sums elements across the rows that it reads."""
        if node.name in self._free:
            return False
        readers = readers_of(self._graph, node.outputs[0])
        if node.op in VIEWS or (
            keeps_all(self._graph, node) and not turns_to_map(self._graph, node)
        ):
            return any(self.are_moved(reader) for reader in readers)
        if node.op == "Transpose":
            return not readers or not all(self._reads_columns(reader) for reader in readers)
        if node.op == "MatMul" and (self._is_attention(node) or self._makes_heads(node)):
            return True
        if node.op == "ReduceMean":
            return not self._is_of_rows(node)
        return node.op in _MOVES_ROWS or _is_row_product(self._graph, node)

    def _makes_heads(self, product: Node) -> bool:
        """Whether it makes heads of several samples, whose rows are stored turned for that.

        Evidence: 48 small graphs of one and two samples, with LayerNormalization and means of
        squares.
        """
        rows = (self._graph.type_of(product.inputs[0]).shape or ())[:-2]
        return math.prod(rows) > 1 and self._are_heads(product.inputs[0])

    def _is_of_rows(self, mean: Node) -> bool:
        rank = len(self._graph.type_of(mean.inputs[0]).shape or ())
        return reduction_axes(self._graph, mean) == (rank - 1,)

    def _reads_columns(self, node: Node) -> bool:
        """Whether it reads rows and columns alike, as a product of single matrices does."""
        if node.op != "MatMul" or self._is_attention(node):
            return False
        return batches(self._graph, node) == 0

    def _is_normed_again(self, norm: Node) -> bool:
        """Whether it norms a Conv's map, channels last, and another norm its rows as tokens."""
        before, after = self._graph.producer.get(norm.inputs[0]), only_reader(self._graph, norm)
        if before is None or before.op != "Transpose" or after is None or after.op != "Reshape":
            return False
        map_writer = self._graph.producer.get(before.inputs[0])
        if order_of(self._graph, before) != FROM_MAP or map_writer is None:
            return False
        readers = readers_of(self._graph, after.outputs[0])
        return map_writer.op in CONVS and any(r.op == "LayerNormalization" for r in readers)


@kept
def _summed_row(graph: Graph, tensor: str, width: int) -> Node | None:
    """The means or the product of one row that a row of ``width`` is made of."""
    shape = graph.type_of(tensor).shape or (0,)
    if shape[-1] != width or math.prod(shape) != width:
        return None
    waiting, seen = [tensor], {tensor}
    while waiting:
        node = graph.producer.get(waiting.pop())
        if node is None:
            continue
        if node.op in REDUCE or _is_row_product(graph, node):
            return node
        if role_of(node) in ("pointwise", "move") and node.op not in _SUMS:
            waiting += [given for given in node.inputs if given not in seen]
            seen.update(node.inputs)
    return None


def _is_row_product(graph: Graph, node: Node) -> bool:
    """Whether it multiplies a single row by a weight."""
    if not multiplies_weight(graph, node):
        return False
    shape = graph.type_of(node.outputs[0]).shape or (0, 0)
    return math.prod(shape[:-1]) == 1
