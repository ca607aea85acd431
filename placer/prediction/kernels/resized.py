"""Sums and products of resized maps, of which a generated kernel resizes one at most.

What adds a resized map is one kernel with its Resize, before anything else is. What is computed of
that and added to another resized map then is in the kernel that resizes the other one. A map whose
pair lies behind its Resize, as behind a linear one, is written in float by that Resize's kernel if
the kernel that reads it resizes another one; of several such maps the one that comes first is
resized where it is read.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 28 small graphs of sums,
gates and Concats of two or three maps, resized by linear interpolation and by their nearest
neighbours, as in FPNs, HRNets and DDRNets, each in FP16, with the default pairs and two random ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from placer.graph import Edge
from placer.prediction.kernels.groups import Groups
from placer.prediction.kernels.order import branches_last_first
from placer.prediction.kernels.parts import Unit, resizes
from placer.prediction.kernels.reductions import is_map


class Resized:
    """The resized maps of one placement."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._form = groups.made.form
        self._order = branches_last_first(groups.made.graph)
        self._passed_on: set[tuple[Unit, Unit]] = set()  # Writers in other kernels than a reader.

    def pairs(self) -> Iterator[tuple[Unit, Unit]]:
        """Units and what they read in one kernel with it, with a Resize before anything else is."""
        later: set[Unit] = set()
        for unit in self._groups.units:
            if not unit.generated or (len(unit.reads) == 1 and unit.reads[0][1] not in later):
                continue
            maps = [(e, w) for e, w in unit.reads if w is not None and resizes(w)]
            rounded = [w for e, w in maps if self._is_rounded(e, w)]
            if self._is_of_prepared(unit) or any(w in later for _, w in unit.reads):
                later.add(unit)
            elif unit.role == "pointwise":
                yield from self._joined_with(unit)
            graph = self._groups.made.graph
            if len(rounded) == len(maps) > 1 and all(
                is_map(graph, w.node.inputs[0]) for w in rounded
            ):
                yield unit, min(rounded, key=lambda resize: self._order[resize.node.name])

    def _is_of_prepared(self, unit: Unit) -> bool:
        """Whether it adds a resized map to floats that another kernel writes.

        Whatever is computed of that, or added to it, is in its kernel then. The other kernel is a
        prepared one, or another map depends on the floats that is resized and added then.
        """
        if unit.role != "pointwise" or self._chain(unit) is None:
            return False
        other = self._added_behind(unit)
        for edge, writer in unit.reads:
            if writer is None or resizes(writer):
                continue
            prepared = any(not u.generated for u in self._groups.of(writer))
            if prepared and edge not in self._form.scales:
                return True
            if prepared or writer.is_quantized_for_others(edge, self._form):
                continue
            if other is not None and self._groups.depends(other, writer):
                self._passed_on.add((writer, unit))
                return True
        return False

    def _added_behind(self, unit: Unit) -> Unit | None:
        """The Resize of another map that is added to what is computed of ``unit`` alone."""
        while unit.role == "pointwise":
            readers = [reader for _, reader in unit.readers]
            if len(readers) != 1:
                return None
            (reader,) = readers
            if reader.role != "pointwise":
                return None
            for _, writer in reader.reads:
                if writer is not None and writer is not unit and resizes(writer):
                    return writer
            unit = reader
        return None

    def _joined_with(self, unit: Unit) -> Iterator[tuple[Unit, Unit]]:
        """What lies between a Resize and ``unit``, which reads more than that."""
        chain = self._chain(unit)
        if chain is not None:
            yield from pairwise(chain)

    def _chain(self, unit: Unit) -> list[Unit] | None:
        """What a resized map goes through on its way to ``unit``, and its Resize at last."""
        for edge, writer in unit.reads:
            chain, at = [unit], edge
            while writer is not None and writer.role == "pointwise" and len(writer.reads) == 1:
                if at in self._form.scales or len(writer.readers) > 1:
                    break
                chain.append(writer)
                at, writer = writer.reads[0]
            if writer is not None and resizes(writer) and not self._is_rounded(at, writer):
                return [*chain, writer]
        return None

    def _is_rounded(self, edge: Edge, resize: Unit) -> bool:
        """Whether a pair lies between a Resize and its reader, which has not moved before it."""
        scale = self._form.scales.get(edge)
        return scale is not None and self._form.scales.get(resize.reads[0][0]) != scale

    def is_left(self, writer: Unit, unit: Unit) -> bool:
        """Whether ``unit``, which reads what ``writer``'s kernel resizes, is in a later kernel."""
        if (writer, unit) in self._passed_on:
            return True
        if unit.group == writer.group or not any(map(resizes, self._groups.of(writer))):
            return False
        read = [e for e, w in unit.reads if w is writer]
        rounded = resizes(writer) and any(self._is_rounded(edge, writer) for edge in read)
        return self._leads_to_resize(unit, rounded)

    def _leads_to_resize(self, unit: Unit, rounded: bool) -> bool:
        """Whether what is computed of it alone is added to another resized map, or resized.

        The latter counts for what adds a ``rounded`` map.
        """
        while unit.role == "pointwise" and not any(map(resizes, self._groups.of(unit))):
            readers = {reader.group: reader for _, reader in unit.readers}
            if len(readers) != 1:
                return False
            (unit,) = readers.values()
        return unit.role == "pointwise" or (rounded and resizes(unit))
