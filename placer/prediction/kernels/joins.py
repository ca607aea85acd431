"""Concats whose parts are written where they belong in the first place: they are no kernels."""

from __future__ import annotations

import math
from collections.abc import Container

from placer.prediction.kernels.groups import Groups
from placer.prediction.kernels.parts import MAP_RANK, Unit, is_concat


class Joins:
    """The Concats of one placement."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._graph, self._form = groups.made.graph, groups.made.form
        self._settled: dict[Unit, bool] | None = None  # What is in place, once all is grouped.

    def settle(self) -> None:
        """Let what is found in place be known, as no unit changes its kernel any more."""
        self._settled = {}

    def is_part(self, writer: Unit, tensors: Container[str]) -> bool:
        """Whether any of ``tensors``, which ``writer`` makes, is a part of joined floats."""
        return any(
            self.joins_floats(reader) for edge, reader in writer.readers if edge.tensor in tensors
        )

    def joins_floats(self, unit: Unit) -> bool:
        """Whether it is a Concat of floats whose parts are written where they belong."""
        if not is_concat(unit) or unit.in_place:
            return False
        quantized = any(edge in self._form.scales for edge, _ in (*unit.reads, *unit.readers))
        return not quantized and self.is_in_place(unit)

    def is_in_place(self, unit: Unit) -> bool:
        """Whether a Concat is nothing but what is written into one tensor in the first place."""
        if unit.in_place or not is_concat(unit):
            return unit.in_place
        if self._settled is None:
            return self._joins_in_place(unit)
        if unit not in self._settled:
            self._settled[unit] = self._joins_in_place(unit)
        return self._settled[unit]

    def _joins_in_place(self, unit: Unit) -> bool:
        """Whether a Concat is no kernel.

        It is one where only generated kernels read a map that it joins (80 small graphs), or any
        reads rows; where one of its inputs is moved or normed besides or joined twice, by another
        Concat too, or where all are made of graph inputs and sums of INT8 products, or computed by
        the kernels of Convs in three steps and more (60 small graphs). ``Quantizers`` finds
        integers in place.
        """
        if not self._is_float(unit) or self._groups.are_apart([w for _, w in unit.reads]):
            return False
        generated = [self._is_read_generated(reader) for _, reader in unit.readers]
        if all(generated) or (any(generated) and not self._is_map(unit)):
            return False
        if any(self._is_written_apart(unit, writer) for _, writer in unit.reads):
            return False
        parts = [(edge.tensor, writer) for edge, writer in unit.reads if writer is not None]
        if any(self._is_joined_elsewhere(part, w, unit) for part, w in parts):
            return False
        if any(r.role == "norm" for part, w in parts for e, r in w.readers if e.tensor == part):
            return False
        return len({edge.tensor for edge, _ in unit.reads}) == len(unit.node.inputs)

    def _is_float(self, unit: Unit) -> bool:
        """Whether it reads and writes floats, those that it casts aside."""
        scales = {
            None if other is not None and other.role == "cast" else self._form.last(edge)
            for edge, other in (*unit.reads, *unit.readers)
        }
        return scales == {None}

    def _is_written_apart(self, joined: Unit, writer: Unit | None) -> bool:
        """Whether ``writer`` moves a part, writes it as a line, or sums one that is no map."""
        if self._groups.writes_line(writer):
            return True
        if writer is None or writer.role not in ("move", "reduce"):
            return False
        if writer.role == "move":
            return not is_concat(writer)
        return math.prod((self._graph.type_of(joined.outputs[0]).shape or ())[2:]) == 1

    def _is_map(self, unit: Unit) -> bool:
        return len(self._graph.type_of(unit.outputs[0]).shape or ()) >= MAP_RANK

    def is_generated(self, unit: Unit) -> bool:
        """Whether it is in a generated kernel, and does more than join."""
        return not is_concat(unit) and all(u.generated for u in self._groups.of(unit))

    def _is_read_generated(self, reader: Unit) -> bool:
        """Whether a generated kernel reads a joined map, or Concats that only such kernels read.

        So it is in DenseNet, where each block's kernel joins what came before (12 small graphs).
        """
        if not is_concat(reader):
            return self.is_generated(reader)
        behind = [self._is_read_generated(r) for _, r in reader.readers]
        return not reader.in_place and bool(behind) and all(behind)

    def _is_joined_elsewhere(self, part: str, writer: Unit, joined: Unit) -> bool:
        """Whether another Concat reads the part, in float: it can be in one tensor only."""
        # It stops at the first one: of a tensor that many Concats read, each of them asks.
        return any(
            edge.tensor == part
            and edge not in self._form.scales
            and is_concat(reader)
            and reader.node is not joined.node
            and not reader.in_place
            for edge, reader in writer.readers
        )


def is_joined_with_sums(unit: Unit) -> bool:
    """Whether all that is made of ``unit`` element by element is joined with sums.

    As deviations are with means: the kernel that joins them computes it (25 small graphs).
    """
    waiting, seen = [unit], {unit}  # Once each: paths to a unit may be many.
    while waiting:
        unit = waiting.pop()
        if unit.role != "pointwise" or len(unit.reads) != 1 or not unit.readers:
            return False
        for _, reader in unit.readers:
            if is_concat(reader):
                if not any(part is not None and part.role == "reduce" for _, part in reader.reads):
                    return False
            elif reader not in seen:
                seen.add(reader)
                waiting.append(reader)
    return True
