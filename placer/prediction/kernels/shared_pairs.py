"""Pairs that a part of joined integers shares with other readers.

Such a part is quantized where it belongs. What reads its pair in float reads these integers:
generated kernels, which are one kernel then where they may, dequantize them, and for prepared ones
that kernel does as well, or one of its own. If the joined tensor depends on what else the part's
kernel writes, another kernel quantizes the part. See ``Quantizers`` for other shared pairs.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of small graphs: five kinds
of kernels that write, and one or two of nineteen kinds of readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placer.graph import Edge
from placer.prediction.kernels.groups import Groups
from placer.prediction.kernels.parts import Unit
from placer.prediction.layers.motion import Scale

Reads = Sequence[tuple[Edge, Unit]]


class SharedPairs:
    """The shared pairs of one placement, whose kernels are known."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._form = groups.made.form

    def settle(self) -> None:
        """Let each reader read what is written for it."""
        ordered: dict[Unit, None] = {}
        for unit in self._groups.units:
            ordered.setdefault(unit)
            if unit.pools_integers or unit.in_place:
                self._join_floats(unit)
            if not unit.in_place and (unit.generated or self._groups.is_float(unit)):
                for pair in dict.fromkeys(self._pairs(unit)):
                    ordered.update(dict.fromkeys(self._shared(unit, *pair)))
        self._groups.reorder(list(ordered))

    def _pairs(self, writer: Unit) -> Iterator[tuple[str, Scale]]:
        """Those of what it writes, quantized by another kernel or not."""
        for edge, reader in writer.readers:
            read = [e for e, _ in reader.readers] if reader.role == "quantize" else [edge]
            for e in read:
                if e.tensor in writer.outputs and e in self._form.scales:
                    yield e.tensor, self._form.scales[e]

    def _shared(self, writer: Unit, tensor: str, scale: Scale) -> Iterator[Unit]:
        """What runs right behind the kernel that writes ``tensor``, which is new or was later."""
        quantizer = next(
            (
                r
                for _, r in writer.readers
                if r.role == "quantize" and self._readers(r, tensor, scale)
            ),
            None,
        )
        behind = self._readers(quantizer, tensor, scale) if quantizer else []
        direct = self._readers(writer, tensor, scale)
        joined = [(e, r) for e, r in (*direct, *behind) if r.in_place]
        if not joined:
            return
        if quantizer is None and writer.generated and self._waits(joined, writer, tensor, scale):
            quantizer = Unit(0, joined[0][1].node, "quantize", False)
            self._groups.start(quantizer)
            self._groups.made.link(Edge(tensor, "", -2), writer, quantizer)
        if quantizer is not None:
            for edge, reader in direct:
                self._groups.made.relink(reader, edge, quantizer)
            yield quantizer
        if quantizer is not None or writer.generated:
            yield from self._dequantizers(quantizer or writer, tensor, scale)

    def _readers(self, writer: Unit, tensor: str, scale: Scale) -> Reads:
        """Those of one pair."""
        return [
            (edge, reader)
            for edge, reader in writer.readers
            if edge.tensor == tensor and self._form.scales.get(edge) == scale
        ]

    def _waits(self, joined: Reads, writer: Unit, tensor: str, scale: Scale) -> bool:
        """Whether joined integers depend on floats that the kernel of their part writes.

        A Q that moved there from behind the Concat stays with the part unless one that is joined
        before depends on these floats (44 small graphs).
        """
        kernel = self._groups.of(writer)
        floats = [
            reader
            for unit in kernel
            for edge, reader in unit.readers
            if reader not in kernel
            and (edge.tensor, self._form.scales.get(edge)) != (tensor, scale)
        ]
        waiting = [
            unit
            for edge, unit in joined
            if edge not in self._form.back or self._is_behind(edge, unit, floats)
        ]
        return any(self._groups.depends(unit, reader) for unit in waiting for reader in floats)

    def _is_behind(self, edge: Edge, joined: Unit, floats: Sequence[Unit]) -> bool:
        """Whether a part that is joined before the one at ``edge`` depends on ``floats``."""
        earlier = [w for e, w in joined.reads if w and e.input_index < edge.input_index]
        return any(
            writer is reader or self._groups.depends(writer, reader)
            for writer in earlier
            for reader in floats
        )

    def _dequantizers(self, source: Unit, tensor: str, scale: Scale) -> Iterator[Unit]:
        """What makes floats of joined integers: once, for all that can be one kernel with it."""
        shared = self._readers(source, tensor, scale)
        floats = [(e, r) for e, r in shared if not (r.integers or r.in_place)]
        prepared = [read for read in floats if not read[1].generated]
        fused = [r for _, r in floats if self._may_fuse(r, prepared, ())]
        if not prepared and len(fused) < 2:
            return
        cast = Unit(0, source.node, "cast", False)
        self._groups.start(cast)
        self._groups.made.link(floats[0][0], source, cast)
        for edge, reader in prepared:
            self._groups.made.relink(reader, edge, cast)
        for reader in fused:
            if reader.group != cast.group and self._may_fuse(reader, prepared, [cast]):
                self._groups.merge(reader.group, cast.group)
        yield cast

    def _join_floats(self, writer: Unit) -> None:
        """Let all that is generated of a pool's or joined integers be one kernel, of floats.

        For prepared kernels as well (40 small graphs).
        """
        reads = [r for _, r in writer.readers if r.generated and not (r.integers or r.in_place)]
        casts = [reader for reader in reads if reader.role == "cast" and reader.readers]
        first = next(iter([*casts, *reads]), None)
        for reader in reads:
            if first is None or reader.group == first.group:
                continue
            kernel, theirs = self._groups.of(first), self._groups.of(reader)
            generated = all(unit.generated for unit in (*kernel, *theirs))
            if generated and not self._groups.have_other_path(first.group, reader.group):
                self._groups.merge(first.group, reader.group)
                self._groups.find_dependences()

    def _may_fuse(self, reader: Unit, prepared: Reads, casts: Sequence[Unit]) -> bool:
        """Whether its kernel is generated and may be one with what makes floats for ``prepared``.

        ``casts``: the unit that does, if there is one, which nothing depends on yet.
        """
        kernel = self._groups.of(reader)
        if not all(unit.generated for unit in kernel):
            return False
        ends = [self._groups.of(other) for _, other in prepared]
        ends += [[unit] for cast in casts for unit in self._groups.of(cast) if unit is not cast]
        return not any(self._depends(kernel, e) or self._depends(e, kernel) for e in ends)

    def _depends(self, kernel: Sequence[Unit], other: Sequence[Unit]) -> bool:
        return any(self._groups.depends(unit, end) for unit in kernel for end in other)
