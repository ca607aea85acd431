"""Kernels that only quantize, and Concats and pools that work on integers.

Evidence: small graphs of two to four branches, and DenseNet, built by TensorRT-RTX 1.7.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from placer.graph import Edge, Graph
from placer.prediction.kernels.groups import Groups
from placer.prediction.kernels.lines import LINE_RANK
from placer.prediction.kernels.parts import VIEWS, Unit, is_concat, resizes
from placer.prediction.kernels.reductions import sums_map
from placer.prediction.kernels.sums import Sums
from placer.prediction.layers.motion import Scale

_ROW_RANK = 2  # Of rows that products of matrices read.


class Quantizers:
    """What quantizes, of the units of one placement, before others read it."""

    def __init__(self, groups: Groups, sums: Sums) -> None:
        self._groups, self._sums = groups, sums
        self._graph, self._form = groups.made.graph, groups.made.form
        self._again: dict[Unit, Scale] = {}  # Concats that run twice, of integers.

    def add(self, is_apart: Callable[[Unit | None], bool]) -> None:
        """Quantize what ``is_apart`` holds for, once for each scale, before it is read."""
        made: dict[tuple[str, Scale], Unit] = {}
        ordered: list[Unit] = []
        for unit in self._groups.units:
            unit.in_place = unit.in_place or self._joins_in_place(unit)
            for edge, writer in list(unit.reads):
                last = self._form.last if unit.in_place else self._form.scales.get
                scale = self._again.get(unit, last(edge))
                if scale is None or not (is_apart(writer) or self._may_run_twice(edge, writer)):
                    continue
                # A prepared kernel that computes in float, as a ConvTranspose or a Conv of a weight
                # without a pair, has what it reads quantized and dequantized at once before it.
                rounded = self._is_rounded(unit, edge, writer)
                pooled = writer is not None and self._pools_again(edge, writer)
                alone = unit.integers or unit.in_place or rounded or pooled
                if alone or self._is_shared(edge, writer):
                    ordered += self._quantizers(edge, writer, unit, scale, made)
                if (edge.tensor, scale) in made:
                    self._groups.made.relink(unit, edge, made[edge.tensor, scale])
            ordered.append(unit)
        kept = [unit for unit in ordered if not self._is_replaced(unit)]
        self._groups.reorder(list(_with_pairs_behind(kept)))

    def _quantizers(
        self,
        edge: Edge,
        writer: Unit | None,
        reader: Unit,
        scale: Scale,
        made: dict[tuple[str, Scale], Unit],
    ) -> list[Unit]:
        """Units that quantize what is read, unless ``made``; parts of a Concat one by one."""
        if (edge.tensor, scale) in made:
            return []
        new: list[Unit] = []
        if writer is not None and self._may_run_twice(edge, writer):
            joins = writer.role == "move"
            in_place = joins and any(self._is_known(*part) for part in writer.reads)
            made_again = tuple(t for t in writer.outputs if joins or t not in self._graph.outputs)
            unit = Unit(0, writer.node, writer.role, True, made_again, in_place=in_place)
            unit.integers, unit.alone = not joins, joins and not in_place
            if in_place:
                self._again[unit] = scale
            for part, source in writer.reads:
                if unit.alone:  # A kernel that quantizes all parts of joined floats.
                    self._groups.made.link(part, source, unit)
                    continue
                if self._groups.is_float(source) or self._may_run_twice(part, source):
                    new += self._quantizers(part, source, unit, scale, made)
                self._groups.made.link(part, made.get((part.tensor, scale), source), unit)
        else:
            shared = self._is_shared(edge, writer)
            unit = Unit(0, reader.node, "pair" if shared else "quantize", False)
            for other, sharing in self._sharing(edge, writer) if shared else ():
                self._groups.made.relink(sharing, other, unit)
            self._groups.made.link(Edge(edge.tensor, "", -2), writer, unit)
        self._groups.start(unit)
        made[edge.tensor, scale] = unit
        return [*new, unit]

    def _sharing(self, edge: Edge, writer: Unit | None) -> list[tuple[Edge, Unit]]:
        """What reads the pair at ``edge``."""
        scale = self._form.scales.get(edge)
        return [
            (e, r)
            for e, r in (writer.readers if writer is not None else ())
            if e.tensor == edge.tensor and self._form.scales.get(e) == scale
        ]

    def _is_shared(self, edge: Edge, writer: Unit | None) -> bool:
        """Whether generated kernels read the pair, and others: all in which it is are one kernel.

        A part of joined integers is quantized where it belongs.
        """
        if edge not in self._form.scales:  # A part of a Concat that runs twice.
            return False
        readers = [reader for _, reader in self._sharing(edge, writer)]
        if len(readers) < 2 or any(r.in_place or self._joins_in_place(r) for r in readers):
            return False
        return not self._may_run_twice(edge, writer) and not all(
            r.integers or self._is_prepared(r) for r in readers
        )

    def _is_rounded(self, unit: Unit, edge: Edge, writer: Unit | None) -> bool:
        return self._is_prepared(unit) and not self._may_run_twice(edge, writer)

    def _is_prepared(self, unit: Unit) -> bool:
        """Whether its kernel reads floats as they are, sums with another map included."""
        return not unit.generated or self._groups.is_prepared(self._groups.of(unit))

    def _may_run_twice(self, edge: Edge, unit: Unit | None) -> bool:
        """Whether integers are read from another kernel than floats: of a MaxPool and a Concat."""
        if unit is None or unit.integers:
            return False
        return self._pools_again(edge, unit) or self._joins_floats(unit)

    def _pools_again(self, edge: Edge, unit: Unit) -> bool:
        """Whether it is a MaxPool of floats that runs once more, of integers, for what has a pair.

        Whatever reads the pair: a Q moves before the pool.
        """
        made = self._groups.made
        pools = unit.role == "pool" and unit.node.op == "MaxPool" and not unit.integers
        return pools and not (made.is_float8(edge) or made.pools_floats(unit.node))

    def dequantize_integers(self) -> None:
        """Dequantize integers of a MaxPool, and joined ones, for kernels that are not generated.

        Those of a MaxPool are for a Concat whose other parts are written in float where they
        belong, too. One kernel dequantizes for all that read a tensor (40 small graphs).
        """
        ordered: list[Unit] = []
        for unit in self._groups.units:
            ordered.append(unit)
            floats = [
                (edge, reader)
                for edge, reader in unit.readers
                if (unit.pools_integers or unit.in_place)
                and not (reader.integers or reader.in_place)
                and (self._is_prepared(reader) or self._joins_floats_besides(reader))
            ]
            if floats:
                cast = Unit(0, unit.node, "cast", False)
                self._groups.start(cast)
                self._groups.made.link(floats[0][0]._replace(node="", input_index=-2), unit, cast)
                for edge, reader in floats:
                    self._groups.made.relink(reader, edge, cast)
                ordered.append(cast)
        self._groups.reorder(ordered)

    def _joins_floats_besides(self, unit: Unit) -> bool:
        """Whether it is a Concat, for prepared kernels, of floats and of integers of a MaxPool."""
        if not is_concat(unit) or unit.in_place or not unit.readers:
            return False
        if any(r.generated or e in self._form.scales for e, r in unit.readers):
            return False
        floats = [edge not in self._form.scales for edge, _ in unit.reads]
        pools = [writer is not None and writer.pools_integers for _, writer in unit.reads]
        return any(floats) and all(a or b for a, b in zip(floats, pools, strict=True))

    def _joins_floats(self, unit: Unit | None) -> bool:
        """Whether it is a Concat of floats, whose integers would be joined in place.

        Whatever its readers quantize. Prepared kernels of products write one part at least, and
        the others are computed (100 small graphs).
        """
        if unit is None or not _joins_once(unit) or unit.in_place:
            return False
        if any(edge in self._form.scales for edge, _ in unit.reads):
            return False
        writers = [writer for _, writer in unit.reads]
        apart = [self._groups.is_float(w) or self._joins_floats(w) for w in writers]
        if not all(apart) and self._groups.are_apart(writers):  # One kernel joins both.
            return False
        return any(apart) and all(
            alone or self._is_computed(writer) for alone, writer in zip(apart, writers, strict=True)
        )

    def _is_computed(self, unit: Unit | None) -> bool:
        """Whether a generated kernel computes it, which may write integers of it as well."""
        return unit is not None and unit.role == "pointwise" and not self._groups.writes_line(unit)

    def _joins_in_place(self, unit: Unit) -> bool:
        """Whether it is a Concat of integers, whose parts are quantized where they belong.

        It is a kernel where a part is resized, cut out or turned, and where no part is computed of
        what a prepared kernel writes: all are scaled sums, norms, or computed of what is moved (600
        graphs).
        """
        if not _joins_once(unit) or any(self._groups.writes_line(w) for _, w in unit.reads):
            return False
        scales = {self._form.last(edge) for edge, _ in unit.reads}
        if len(scales) > 1 or None in scales:
            return False
        if any(self._is_joined_twice(part) for part, _ in unit.reads):
            return False
        if not any(self._takes_integers(reader) for _, reader in unit.readers):
            return False
        if self._is_written_in_two_scales(unit):
            return False
        of_product = any(self._is_known(*part) for part in unit.reads)
        moved = any(
            _is_moved(self._graph, writer) and not self._is_rounded_behind(edge, writer)
            for edge, writer in unit.reads
        )
        return of_product and not moved

    def _is_written_in_two_scales(self, unit: Unit) -> bool:
        """Whether the kernel of the last part joins while a part is written in two scales."""
        last = max((w for _, w in unit.reads if w is not None), key=lambda w: w.index, default=None)
        return not self._groups.is_float(last) and any(
            self._groups.requantizes(*part) or self._writes_two(*part) for part in unit.reads
        )

    def _takes_integers(self, reader: Unit) -> bool:
        """Whether it reads integers as they are, or does so where it runs once more (a MaxPool)."""
        if reader.in_place or (reader.integers and not reader.generated):
            return True
        quantized = [edge for edge, _ in reader.readers if edge in self._form.scales]
        return any(self._pools_again(edge, reader) for edge in quantized)

    def _is_known(self, edge: Edge, writer: Unit | None) -> bool:
        """Whether a part is a product's, or of a MaxPool that runs once more for the integers."""
        again = writer is not None and self._pools_again(edge, writer)
        return again or self._is_of_product(writer)

    def _is_of_product(self, unit: Unit | None) -> bool:
        """Whether a prepared kernel of a product writes it, or what it is computed of.

        Element by element, that is, in one step: what is computed of that in turn is not the
        product's to the builder (180 small graphs). A pool of integers is one as well, and an
        AveragePool, but not a MaxPool of floats (DenseNet), nor a ConvTranspose.
        """
        if unit is None or unit.role in ("cast", "reduce", "norm"):
            return False
        if unit.role == "pool":
            return unit.integers or unit.node.op == "AveragePool"
        if not unit.generated:
            return not (unit.leaves_sums or unit.node.op == "ConvTranspose")
        if unit.in_place:
            return True
        if unit.role == "move":
            read = [writer for _, writer in unit.reads if writer is None or writer.role != "pool"]
            return not _is_moved(self._graph, unit) and any(map(self._is_of_product, read))
        return self._groups.steps_behind_product(unit) <= 1

    def _is_rounded_behind(self, edge: Edge, writer: Unit | None) -> bool:
        """Whether a part is quantized behind a Resize, as behind a linear one (60 small graphs)."""
        if writer is None or not resizes(writer):
            return False
        return self._form.scales.get(writer.reads[0][0]) != self._form.scales.get(edge)

    def _writes_two(self, edge: Edge, writer: Unit | None) -> bool:
        """Whether a kernel that generates a part quantizes it with another scale as well."""
        if writer is None or self._groups.is_float(writer):
            return False
        return writer.writes_other(edge, self._form)

    def _is_joined_twice(self, part: Edge) -> bool:
        """Whether other Concats join the same integers, which can be in one tensor only."""
        scale = self._form.scales.get(part)
        edges = [e for e in self._graph.edges_of(part.tensor) if self._form.scales.get(e) == scale]
        nodes = {e.node for e in edges if e.node}
        return sum(self._graph.by_name[name].op == "Concat" for name in nodes) > 1

    def _is_replaced(self, unit: Unit) -> bool:
        """Whether nothing reads a Concat or MaxPool any more; it is taken away."""
        kept = unit.readers or set(unit.outputs) & set(self._graph.outputs)
        if kept or not (is_concat(unit) or unit.role == "pool"):
            return False
        for edge, writer in unit.reads:
            if writer is not None:
                writer.readers.remove((edge, unit))
        self._groups.remove(unit)
        return True

    def quantizes_apart(self, writer: Unit | None) -> bool:
        """Whether a mean is not quantized where it is taken, but in the next kernel or its own.

        Evidence: 40 small graphs, and squeeze-and-excitation blocks of EfficientNet-B0 and PP-OCR
        cls; behind a Flatten, or as a row in the first place, it is quantized where it is taken.
        """
        if writer is None or not writer.generated or writer.role == "pair":
            return False
        if writer.role == "pointwise":
            return self._is_of_mean(writer)
        if writer.node.op in VIEWS and len(writer.reads) == 1:  # Of a line.
            lines = len(self._graph.type_of(writer.outputs[0]).shape or ()) == LINE_RANK
            return lines and self.quantizes_apart(writer.reads[0][1])
        if writer.role != "reduce" or self._sums.is_row_product(writer):
            return False
        row = len(self._graph.type_of(writer.outputs[0]).shape or ()) == _ROW_RANK
        if row and not any(reader.node.op in VIEWS for _, reader in writer.readers):
            return False
        whole = self._graph.type_of(writer.node.inputs[0]).shape
        return self._graph.type_of(writer.outputs[0]).shape != whole

    def _is_of_mean(self, unit: Unit) -> bool:
        """Whether it computes of a map's means where these are taken."""
        shape = self._graph.type_of(unit.outputs[0]).shape if unit.outputs else None
        return unit.works and any(
            other.role == "reduce"
            and sums_map(self._graph, other.node)
            and self._graph.type_of(other.outputs[0]).shape == shape
            for other in self._groups.of(unit)
        )


def _with_pairs_behind(units: Sequence[Unit]) -> Iterator[Unit]:
    """``units``, pairs that several readers share right behind what writes the tensor."""
    shared = [unit for unit in units if unit.role == "pair"]
    for unit in units:
        if unit.role != "pair":
            yield unit
            yield from (pair for pair in shared if pair.reads[0][1] is unit)


def _is_moved(graph: Graph, unit: Unit | None) -> bool:
    """Whether it is resized or a part of a tensor: what moves elements is quantized before.

    A single place that a Resize repeats is quantized behind it.
    """
    if unit is None or unit.role != "move" or is_concat(unit):
        return False
    given = graph.type_of(unit.node.inputs[0]).shape or ()
    return not (unit.node.op == "Resize" and math.prod(given[2:]) == 1)


def _joins_once(unit: Unit) -> bool:
    """Whether it is a Concat of different tensors that something reads."""
    if not is_concat(unit) or not unit.readers:
        return False
    return len({edge.tensor for edge, _ in unit.reads}) == len(unit.node.inputs)
