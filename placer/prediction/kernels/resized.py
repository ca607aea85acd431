"""Sums and products of resized maps, of which a generated kernel resizes one at most.

What adds a resized map is one kernel with its Resize, before anything else is. What is computed of
that and added to another resized map then is in the kernel that resizes the other one (90 small
graphs of gates and sums). It is not so if the first map is added to floats that the other map
depends on: then all else is computed where the first map is resized. What is computed of such a sum
alone, to be resized, is computed where it is resized (52 small graphs).

A map that a pair rounds behind its Resize, as behind a linear one, is written by that if the kernel
that reads it resizes another one. Of several such maps that Convs write the one that is computed
first is resized where they are read.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 59 small graphs of sums,
gates and Concats of two to four maps, as in FPNs, HRNets and DDRNets, each in FP16, with the
default pairs and two random ones. All but four are predicted so with the default pairs.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import pairwise

from placer.graph import Edge
from placer.prediction.kernels.groups import Groups
from placer.prediction.kernels.parts import Unit, is_concat, resizes
from placer.prediction.kernels.reductions import is_map

# Computed where the sum is (31 small graphs).
_STAY = ("HardSigmoid", "LeakyRelu", "Mish", "PRelu", "Softplus")


class Resized:
    """The resized maps of one placement."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._graph, self._form = groups.made.graph, groups.made.form
        self._order = groups.made.branches
        self._passed_on: set[tuple[Unit, Unit]] = set()  # Writers in other kernels than a reader.

    def pairs(self) -> Iterator[tuple[Unit, Unit]]:
        """Units and what they read in one kernel with it, with a Resize before anything else is."""
        later: set[Unit] = set()  # What is computed where an earlier map is resized.
        resized = {resize: writer for writer in self._groups.units for resize in self._last(writer)}
        yield from resized.items()
        for unit in self._groups.units:
            if not unit.generated or (len(unit.reads) == 1 and unit.reads[0][1] not in later):
                continue
            if self._is_of_other_floats(unit) or any(w in later for _, w in unit.reads):
                later.add(unit)
            elif unit.role == "pointwise":
                yield from pairwise(self._chain(unit))
            yield from self._first_rounded(unit, resized)
        for unit in self._groups.units:
            yield from self._first_sum(unit)

    def _last(self, writer: Unit) -> Iterator[Unit]:
        """Of several Resizes of a map, all of which are rounded behind, the last one."""
        if not writer.generated:
            return
        maps = [reader for _, reader in writer.readers if resizes(reader)]
        rounded = [r for r in maps if all(self._is_rounded(e, r) for e, _ in r.readers)]
        if len(rounded) == len(maps) > 1 and all(map(self._resizes_map, rounded)):
            yield min(rounded, key=lambda resize: self._order[resize.node.name])

    def _first_sum(self, joined: Unit) -> Iterator[tuple[Unit, Unit]]:
        """Of several sums of resized maps that a Concat joins in float the one computed first.

        Of maps that are joined as they are resized its kernel takes the first that it reads, before
        any sum (56 small graphs).
        """
        if not is_concat(joined) or any(edge in self._form.scales for edge, _ in joined.reads):
            return
        parts = [part for _, part in joined.reads if part is not None]
        sums = [p for p in parts if p.role == "pointwise" and len(p.reads) > 1 and self._chain(p)]
        resized = [part for part in parts if resizes(part)]
        if sums and len(sums) + len(resized) > 1:
            for part in sums:
                yield from pairwise(self._chain(part))
            first = min(sums, key=lambda part: self._order[part.node.name])
            yield joined, resized[0] if resized else first

    def _first_rounded(self, unit: Unit, done: Container[Unit]) -> Iterator[tuple[Unit, Unit]]:
        """Of several maps of Convs, all of which are rounded, the one that is computed first.

        What is ``done`` is resized where the map is written. If none is rounded, the kernel of a
        Concat of integers resizes the map that is resized for something else as well.
        """
        maps = [(e, w) for e, w in unit.reads if w is not None and resizes(w)]
        rounded = [w for e, w in maps if self._is_rounded(e, w)]
        if len(maps) > 1 and not rounded and is_concat(unit):
            pairs = ((e, w) for e, w in maps if e in self._form.scales)
            again = [w for _, w in pairs if self._is_resized_before(w)]
            yield from ((unit, resize) for resize in again[:1])
        if len(rounded) == len(maps) > 1 and all(map(self._resizes_map, rounded)):
            left = [resize for resize in rounded if resize not in done] or rounded
            yield unit, min(left, key=lambda resize: self._order[resize.node.name])

    def _is_resized_before(self, resize: Unit) -> bool:
        """Whether the kernel that writes its map is one with another Resize."""
        writer = resize.reads[0][1]
        if writer is None or not writer.generated:
            return False
        return any(resizes(r) and r is not resize for _, r in writer.readers)

    def _resizes_map(self, resize: Unit) -> bool:
        return is_map(self._graph, resize.node.inputs[0])

    def _is_of_other_floats(self, unit: Unit) -> bool:
        """Whether it adds a resized map to floats that another one, added later, depends on."""
        if unit.role != "pointwise" or not self._chain(unit):
            return False
        added = self._added_behind(unit)
        for edge, writer in unit.reads:
            if writer is None or resizes(writer):
                continue
            if any(not u.generated for u in self._groups.of(writer)):
                continue
            if writer.is_quantized_for_others(edge, self._form):
                continue
            if added is not None and self._groups.depends(added, writer):
                self._passed_on.add((writer, unit))
                return True
        return False

    def _added_behind(self, unit: Unit) -> Unit | None:
        """The Resize of another map that is added to what is computed of ``unit`` alone."""
        while unit.role == "pointwise":
            readers = [reader for _, reader in unit.readers]
            if len(readers) != 1 or readers[0].role != "pointwise":
                return None
            others = (w for _, w in readers[0].reads if w is not None and w is not unit)
            resize = next(filter(resizes, others), None)
            if resize is not None:
                return resize
            (unit,) = readers
        return None

    def _chain(self, unit: Unit) -> list[Unit]:
        """``unit``, what a resized map goes through on its way to it, and the map's Resize."""
        for edge, writer in unit.reads:
            chain, at, given = [unit], edge, writer
            while given is not None and given.role == "pointwise" and len(given.reads) == 1:
                if at in self._form.scales or len(given.readers) > 1:
                    break
                chain.append(given)
                at, given = given.reads[0]
            if given is not None and resizes(given) and not self._is_rounded(at, given):
                return [*chain, given]
        return []

    def _is_rounded(self, edge: Edge, resize: Unit) -> bool:
        """Whether a pair lies between a Resize and its reader, which has not moved before it."""
        scale = self._form.scales.get(edge)
        return scale is not None and self._form.scales.get(resize.reads[0][0]) != scale

    def is_left(self, writer: Unit, unit: Unit) -> bool:
        """Whether ``unit`` is in a later kernel than that of ``writer``, which it reads."""
        if (writer, unit) in self._passed_on:
            return True
        if unit.group == writer.group or not self._groups.those(writer, resizes):
            return False
        read = [edge for edge, w in unit.reads if w is writer]
        rounded = resizes(writer) and any(self._is_rounded(edge, writer) for edge in read)
        return self._leads_to_resize(unit, rounded) or self._is_for_resize(writer, unit)

    def _is_for_resize(self, writer: Unit, unit: Unit) -> bool:
        """Whether nothing but a Resize reads what is computed of ``writer``, a sum, alone.

        What computes of another map as well, and what is computed of that, stays.
        """
        if not any(w is not None and resizes(w) for _, w in writer.reads):
            return False
        inside = {writer}
        while writer.role == unit.role == "pointwise" and unit.node.op not in _STAY:
            inside.add(unit)
            readers = {reader for _, reader in unit.readers}
            if len(readers) != 1 or not inside.issuperset(w for _, w in unit.reads):
                return False
            if len({edge.tensor for edge, _ in unit.reads}) < len(unit.reads):
                return False  # A square.
            (unit,) = readers
        return len(inside) > 1 and resizes(unit)

    def _leads_to_resize(self, unit: Unit, rounded: bool) -> bool:
        """Whether what is computed of it alone is added to another resized map, or resized.

        The latter counts for what adds a ``rounded`` map.
        """
        while unit.role == "pointwise" and not self._groups.those(unit, resizes):
            readers = {reader.group: reader for _, reader in unit.readers}
            if len(readers) != 1:
                return False
            (unit,) = readers.values()
        return unit.role == "pointwise" or (rounded and resizes(unit))
