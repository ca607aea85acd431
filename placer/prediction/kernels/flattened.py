"""Which tensors are the rows of several batches as one matrix.

A product of a weight computes all rows as one matrix where its kernel does more than multiply, and
what reads it goes on with the matrix as long as it can: what computes row by row of other
matrices is part of such a kernel, anything else makes batches of it first.

Evidence: 60 small graphs of 1 to 16 batches that the builder of TensorRT-RTX 1.7.1 built for sm89,
and timm's MobileViT.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from placer.graph import Graph, Node
from placer.graph.kept import kept
from placer.graph.weights import weight_input
from placer.prediction.kernels.parts import CONVS, Unit
from placer.prediction.layers.motion import NormalForm

_MANY = 2
MATRIX_RANK = 3  # Norms of rows of maps are not taken as matrices.
# What is not computed of a matrix but of its batches.
OF_BATCHES = frozenset({"Sigmoid", "Tanh"})


class Flattened:
    """The matrices of one placement; ``groups``: units by number of their kernel."""

    def __init__(self, graph: Graph, form: NormalForm, groups: Mapping[int, list[Unit]]) -> None:
        self._graph, self._form, self._groups = graph, form, groups

    def is_written(self, unit: Unit) -> bool:
        """Whether a product's kernel writes what ``unit`` makes as one matrix of all batches."""
        product = self._groups[unit.group][0]
        return unit.role != "product" and self._is_of_matrix(product)

    def is_matrix(self, unit: Unit | None) -> bool:
        """Whether what ``unit`` makes is there as a matrix for a kernel that adds it."""
        if unit is None or any(edge in self._form.scales for edge, _ in unit.reads):
            return False
        if unit.role == "product":
            return self._is_of_matrix(unit) and len(self._groups[unit.group]) > 1
        if self._is_norm(unit):
            return True
        writers = [writer for _, writer in unit.reads]
        if not _is_row_by_row(unit) or any(map(_is_of_batches, writers)):
            return False
        rank = len(self._graph.type_of(unit.node.outputs[0]).shape or ())
        of_rows = (
            any if rank <= MATRIX_RANK else all
        )  # Maps that are added to rows make a map of them.
        return of_rows(self._is_made_of_rows(writer) for writer in writers)

    def keeps_matrix(self, unit: Unit) -> bool:
        """Whether ``unit`` goes on with the matrices that it reads."""
        if self._is_norm(unit) or not _is_row_by_row(unit):
            return self._is_norm(unit)
        if len(unit.reads) == 1:
            return self._is_made_of_rows(unit.reads[0][1])
        return all(self.is_matrix(writer) for _, writer in unit.reads)

    def _is_made_of_rows(self, unit: Unit | None) -> bool:
        return unit is not None and (self._is_of_matrix(unit) or self.is_matrix(unit))

    def _is_norm(self, unit: Unit) -> bool:
        if unit.node.op != "LayerNormalization" or unit.role not in ("reduce", "pointwise"):
            return False
        return len(self._graph.type_of(unit.node.outputs[0]).shape or ()) <= MATRIX_RANK

    def _is_of_matrix(self, unit: Unit) -> bool:
        product = unit.role == "product" and not (unit.integers or unit.turned)
        return product and batches(self._graph, unit.node) == 1


def _is_row_by_row(unit: Unit) -> bool:
    return unit.role == "pointwise" and unit.node.op not in OF_BATCHES


def _is_of_batches(unit: Unit | None) -> bool:
    return unit is not None and unit.node.op in OF_BATCHES


def _has_batches(graph: Graph, product: Node) -> bool:
    first, second = (graph.type_of(tensor).shape or () for tensor in product.inputs[:2])
    if max(len(first), len(second)) > MATRIX_RANK:
        return True
    return math.prod(first[:-2]) > math.prod(second[:-2])


@kept
def batches(graph: Graph, product: Node) -> int:
    """How many dimensions before the rows a product has.

    Without any, or with a single one of 1, its kernel does all that follows, with one what is
    computed of its rows alone, as they are a single matrix there, and with more Relu at most. A 1
    before one dimension counts for nothing, any other does (ten small graphs of two to four
    dimensions). Products of activations have many with more than three dimensions, or if the second
    operand has fewer batches than the first (50 small graphs of two to four dimensions).
    """
    if product.op in CONVS:
        return 0
    if weight_input(graph, product) is None:
        return _MANY if _has_batches(graph, product) else 0
    before = (graph.type_of(product.outputs[0]).shape or ())[:-2]
    if before == (1,) or (len(before) == 2 and before[0] == 1 < before[1]):
        before = before[1:]
    return len(before)
