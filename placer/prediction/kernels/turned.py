"""Kernels that end at a transpose of a map, or of rows to a map.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of about 150 small graphs and
of networks for diffusion and SegFormer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from placer.graph.transposes import order_of
from placer.prediction.kernels.groups import Groups
from placer.prediction.kernels.lines import IN_PARTS
from placer.prediction.kernels.parts import (
    EPILOGUE,
    MAP_RANK,
    NORMS,
    Unit,
    is_concat,
    resizes,
    sums_few,
)
from placer.prediction.kernels.reductions import is_large, sums_places
from placer.prediction.kernels.views import SWAPPED, TO_MAP, leaves_turned

# Rows of more elements are turned to a map by a kernel of their own before it is added to another
# (16,384 are not, 17,408 are).
_LARGE_ROWS = 16 * 1024


class Turned:
    """What is turned among the generated units of one placement."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._graph, self._form = groups.made.graph, groups.made.form

    def ends(self, writer: Unit, unit: Unit) -> bool:
        """Whether ``unit`` is in another kernel than ``writer``, which it reads."""
        if writer.node.op == "Transpose" and self._is_turned_alone(writer, unit):
            return True
        if is_concat(unit) and self._is_joined_with_resized(writer, unit):
            return True
        if self._flattens_for_norm(unit) or self._gates_turned(writer, unit):
            return True
        if self._rounds_for_parts(writer, unit) or self._is_summed(writer, unit):
            return True
        if resizes(unit) and writer.role == "pointwise" and self._turns_product(writer):
            return True
        return self._ends_norm(writer) and unit.role == "pointwise" and not self._ends_with(unit)

    def _is_summed(self, writer: Unit, unit: Unit) -> bool:
        """Whether ``unit`` sums over what another kernel computed in parts of a rounded map."""
        return unit.role == "reduce" and any(
            before is not None and self._rounds_for_parts(before, writer)
            for _, before in writer.reads
        )

    def _rounds_for_parts(self, writer: Unit, unit: Unit) -> bool:
        """Whether an INT8 Conv's sums are rounded for what is computed in parts of a large map.

        That reads its operand several times and turns the map for sums over its places; without a
        pair, if the sums read it rounded, and of smaller maps, all is one kernel (80 small graphs).
        """
        if unit.node.op not in IN_PARTS or writer.works:
            return False
        scaled = any(before is not None and before.leaves_sums for _, before in writer.reads)
        rounded = scaled and any(edge in self._form.scales for edge, _ in unit.reads)
        made = unit.outputs[0]
        return (
            rounded
            and is_large(self._graph, made)
            and any(
                sums_places(self._graph, reader.node)
                for edge, reader in unit.readers
                if edge not in self._form.scales
            )
        )

    def is_map(self, writer: Unit, unit: Unit) -> bool:
        """Whether one node alone makes a float map for ``unit``, whose kernel turns a large one.

        Or several make it of what is read rounded and as it is (50 small graphs).
        """
        kernel = self._groups.of(writer)
        if len(self._graph.type_of(unit.node.inputs[0]).shape or ()) != MAP_RANK:
            return False
        rounds = self._groups.those(writer, self._rounds)
        alone = len(kernel) == 1 and (not rounds or writer.node.op in IN_PARTS)
        if not alone and not (rounds and self._is_read_twice(kernel)):
            return False
        if any(
            u.role == "reduce" or w.leaves_sums for u in kernel for _, w in u.reads if w is not None
        ):
            return False
        floats = not any(edge in self._form.scales for edge, _ in unit.reads)
        return floats and (writer.role == "pointwise" or resizes(writer))

    def _rounds(self, unit: Unit) -> bool:
        """Whether it reads a pair."""
        return any(edge in self._form.scales for edge, _ in unit.reads)

    def _is_read_twice(self, kernel: Sequence[Unit]) -> bool:
        """Whether a tensor is read rounded and as it is."""
        read = [edge for unit in kernel for edge, _ in unit.reads]
        rounded = {edge.tensor for edge in read if edge in self._form.scales}
        return any(e.tensor in rounded for e in read if e not in self._form.scales)

    def _is_turned_alone(self, turned: Unit, unit: Unit) -> bool:
        """Whether another kernel than the one that turns rows to a map does what is next.

        Maps that are resized, and large ones that are added to others (70 small graphs).
        """
        kernel, order = self._groups.of(turned), order_of(self._graph, turned.node)
        if order not in (SWAPPED, TO_MAP) or any(u.node.op in NORMS for u in kernel):
            return False
        if any(w is not None and w.leaves_sums for u in kernel for _, w in u.reads):
            return False
        reads = unit
        if unit.node.op == "Reshape" and len(unit.readers) == 1:
            ((_, reads),) = unit.readers
        if resizes(reads):
            return True
        size = math.prod(self._graph.type_of(turned.node.outputs[0]).shape or (0,))
        if reads is unit or size <= _LARGE_ROWS:
            return False
        joined = is_concat(reads) and self._is_joined_with_resized(unit, reads)
        return reads.node.op == "Add" or joined

    def _is_joined_with_resized(self, writer: Unit, joined: Unit) -> bool:
        """Whether it is a large map made of tokens, in float, beside parts of which one is resized.

        The kernel that joins them resizes (eight small graphs and SegFormers).
        """
        turned = writer
        if turned.node.op == "Reshape" and turned.reads[0][1] is not None:
            turned = turned.reads[0][1]
        size = math.prod(self._graph.type_of(turned.node.outputs[0]).shape or (0,))
        if order_of(self._graph, turned.node) != SWAPPED or size <= _LARGE_ROWS:
            return False
        if any(edge in self._form.scales for edge, _ in joined.reads):
            return False
        return any(part is not None and resizes(part) for _, part in joined.reads)

    def _turns_product(self, unit: Unit) -> bool:
        """Whether its kernel makes a map of the rows that a product writes, and computes of it.

        The builder resizes it in another one (attentions of networks for diffusion, six small
        graphs).
        """
        read = (w for u in self._groups.of(unit) for _, w in u.reads if w is not None)
        return any(w.role == "product" and leaves_turned(self._graph, w.node) for w in read)

    def _flattens_for_norm(self, unit: Unit) -> bool:
        """Whether it flattens a map for a GroupNorm, whose first kernel does so."""
        return unit.node.op == "Reshape" and any(
            other.role == "norm"
            for _, reader in unit.readers
            if reader.names is not None and reader.role == "move"
            for _, other in reader.readers
        )

    def _gates_turned(self, writer: Unit, unit: Unit) -> bool:
        """Whether it turns a large map back for a Conv, by which ``writer``'s gate multiplies it.

        Generated kernels have turned it for its means; that a prepared one writes is as it was.
        """
        if unit.node.op != "Mul" or not self._groups.those(writer, sums_few):
            return False
        scales = self._form.scales
        if not any(r.role == "product" and e not in scales for e, r in unit.readers):
            return False
        return any(
            other is not None
            and other.group != writer.group
            and edge not in scales
            and is_large(self._graph, edge.tensor)
            and any(
                u.role != "product" and u.node.op not in EPILOGUE for u in self._groups.of(other)
            )
            for edge, other in unit.reads
        )

    def _ends_norm(self, unit: Unit) -> bool:
        """Whether it scales what a kernel for InstanceNorm made of groups, and turns a large map.

        What follows is another kernel, see ``_ends_with`` (20 small graphs).
        """
        norms = [w for _, w in unit.reads if w is not None and w.role == "norm"]
        scales = unit.role == "pointwise" and not unit.works and bool(norms)
        return scales and is_large(self._graph, unit.outputs[0])

    def _ends_with(self, unit: Unit) -> bool:
        """Whether a kernel that turns a large map ends with ``unit``: Relu, or quantizes."""
        behind = [unit]
        for other in behind:
            behind += [r for _, r in other.readers if r.role == "pointwise" and r not in behind]
        quantized = any(edge in self._form.scales for u in behind for edge, _ in u.readers)
        return unit.node.op == "Relu" or quantized
