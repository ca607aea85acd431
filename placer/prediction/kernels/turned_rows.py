"""Rows that a product writes and that become a map again.

A generated kernel then adds the bias and the rows of the map that were there before, and turns the
sum; the product's kernel only multiplies. Evidence: layers that the builder of TensorRT-RTX 1.7.1
logs for sm89, of 70 small graphs of residuals on maps of 16 to 784 places, and TinyViT.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from placer.prediction.kernels.parts import CONVS, Unit, is_turned
from placer.prediction.kernels.units import Units
from placer.prediction.kernels.views import FEW, turned_product, turns_to_map


class TurnedRows:
    """Rows of the units of one placement."""

    def __init__(self, made: Units) -> None:
        self._graph, self._views = made.graph, made.views

    def are_only_turned(self, unit: Unit, region: Sequence[Unit]) -> bool:
        """Whether what ``unit`` computes of a product's rows is only transposed, and added before.

        ``region``: the product and what its kernel computes. But what adds other rows than those of
        a map, or transposed ones, is computed before.
        """
        shape = self._graph.type_of(unit.node.outputs[0]).shape or ()
        rows = unit.role == "pointwise" and region[0].node.op not in CONVS and len(shape) == 3
        if rows and turned_product(self._graph, unit.node.outputs[0]) is region[0].node:
            return True
        return rows and self._adds_turned(unit, region) and self._leads_to_map(unit)

    def _leads_to_map(self, unit: Unit) -> bool:
        """Whether it is only transposed, or reshaped and added to other rows of a map before."""
        readers = [reader for _, reader in unit.readers]
        if {reader.node.op for reader in readers} == {"Transpose"}:
            if unit.role != "pointwise":
                return all(turns_to_map(self._graph, r.node) for r in readers)
            return unit.node.op == "Add" or not any(map(_computes_on, readers))
        if len(readers) != 1:
            return False
        if readers[0].node.op == "Reshape":
            behind = [reader.node.op for _, reader in readers[0].readers]
            known = unit.node.op == "Add" and behind in (["Add"], ["Transpose"])
            return known and self._leads_to_map(readers[0])
        adds = readers[0].node.op == "Add" and self._adds_turned(readers[0], [unit])
        return adds and len(readers[0].reads) > 1 and self._leads_to_map(readers[0])

    def _adds_turned(self, unit: Unit, region: Sequence[Unit]) -> bool:
        """Whether all else that it reads are rows of a map; few of them not if computed further."""
        shape = self._graph.type_of(unit.node.outputs[0]).shape or (0,)
        few = math.prod(shape[:-1]) <= FEW
        others = [(edge, w) for edge, w in unit.reads if w is not None and w not in region]
        return all(
            self._is_of_map(edge.tensor) or (is_turned(w) and (w.role == "move" or not few))
            for edge, w in others
        )

    def _is_of_map(self, tensor: str) -> bool:
        """Whether it is a view of a map whose channels are stored last."""
        return any(node.op == "Transpose" for node in self._views.get(tensor, ()))


def _computes_on(turn: Unit) -> bool:
    """Whether turned rows are computed or summed as they are, and no map is made of them."""
    return any(reader.role in ("pointwise", "reduce", "cast") for _, reader in turn.readers)
