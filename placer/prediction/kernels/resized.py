"""Sums and products of resized maps, of which a generated kernel resizes one at most.

What adds a resized map is one kernel with its Resize, before anything else is. What is computed of
that and added to another resized map then is in the kernel that resizes the other one. A map whose
pair lies behind its Resize, as behind a linear one, is written in float by that Resize's kernel if
the kernel that reads it resizes another one; of several such maps the one that is read last is
resized where it is read.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 28 small graphs of sums,
gates and Concats of two or three maps, resized by linear interpolation and by their nearest
neighbours, as in FPNs, HRNets and DDRNets, each in FP16, with the default pairs and two random ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from placer.graph import Edge
from placer.prediction.kernels.groups import Groups
from placer.prediction.kernels.parts import Unit, is_concat, resizes


class Resized:
    """The resized maps of one placement."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._form = groups.made.form

    def pairs(self) -> Iterator[tuple[Unit, Unit]]:
        """Units and what they read in one kernel with it, with a Resize before anything else is."""
        for unit in self._groups.units:
            if not unit.generated or len(unit.reads) == 1:
                continue
            maps = [(e, w) for e, w in unit.reads if w is not None and resizes(w)]
            rounded = [w for e, w in maps if self._is_rounded(e, w)]
            if not is_concat(unit):
                yield from self._joined_with(unit)
            if len(rounded) == len(maps) > 1:
                yield unit, rounded[-1]

    def _joined_with(self, unit: Unit) -> Iterator[tuple[Unit, Unit]]:
        """What lies between a Resize and ``unit``, which reads more than that."""
        for edge, writer in unit.reads:
            chain, at = [unit], edge
            while writer is not None and writer.role == "pointwise" and len(writer.reads) == 1:
                if at in self._form.scales or len(writer.readers) > 1:
                    break
                chain.append(writer)
                at, writer = writer.reads[0]
            if writer is None or not resizes(writer) or self._is_rounded(at, writer):
                continue
            if self._is_prepared(writer):
                continue
            yield from zip(chain, (*chain[1:], writer), strict=True)
            return

    def _is_prepared(self, resize: Unit) -> bool:
        """Whether it resizes floats that a prepared kernel writes."""
        edge, writer = resize.reads[0]
        return edge not in self._form.scales and (writer is None or not writer.generated)

    def _is_rounded(self, edge: Edge, resize: Unit) -> bool:
        """Whether a pair lies between a Resize and its reader, which has not moved before it."""
        scale = self._form.scales.get(edge)
        return scale is not None and self._form.scales.get(resize.reads[0][0]) != scale

    def is_left(self, writer: Unit, unit: Unit) -> bool:
        """Whether ``unit``, which reads what ``writer``'s kernel resizes, is in a later kernel."""
        if unit.group == writer.group or not any(map(resizes, self._groups.of(writer))):
            return False
        return self._leads_to_resize(unit)

    def _leads_to_resize(self, unit: Unit) -> bool:
        """Whether what is computed of it alone is added to another resized map."""
        while unit.role == "pointwise" and not any(map(resizes, self._groups.of(unit))):
            readers = {reader.group: reader for _, reader in unit.readers}
            if len(readers) != 1:
                return False
            (unit,) = readers.values()
        return unit.role == "pointwise"
