"""Which units become one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from placer.graph import Edge
from placer.graph.weights import weight_input
from placer.prediction.kernel_epilogues import Epilogues, batches, resizes
from placer.prediction.kernel_parts import CONVS, NORMED, VIEWS, Unit
from placer.prediction.kernel_sums import Sums
from placer.prediction.kernel_units import Units
from placer.prediction.motion import Scale
from placer.prediction.reductions import (
    reduction,
    sums_places,
)


class Kernels:
    """The units of one placement by kernel.

    ``base``: ONNX name of the type of float tensors inside the engine. ``groups``: by number.
    """

    def __init__(self, units: Units, base: str) -> None:
        self._made, self._base = units, base
        self._graph, self._form = units.graph, units.form
        self._units = units.units
        self.sums = Sums(units.graph, units.form)
        self.groups = {unit.index: [unit] for unit in self._units}
        self._join_products()
        self._before = self._ancestors()
        self._fuse_epilogues()
        self._turn_maps()
        self._add_quantizers(self.is_float)
        self._dequantize_pools()
        self._before = self._ancestors()
        self._fuse_generated()
        self._add_quantizers(self.quantizes_apart)

    def _join_products(self) -> None:
        """Products of one tensor with weights are one (queries, keys and values; heads)."""
        known: dict[object, Unit] = {}
        for unit in self._units:
            weight = weight_input(self._graph, unit.node)
            if (
                unit.role != "product"
                or unit.node.op != "MatMul"
                or not weight
                or weight.index != 1
            ):
                continue
            edge = unit.reads[0][0]
            shape = tuple(self._graph.initializers[weight.tensor].dims)
            first = known.setdefault((edge.tensor, shape[0], unit.integers), unit)
            if first is not unit:
                self._merge(first.group, unit.group)

    def _fuse_epilogues(self) -> None:
        epilogues = Epilogues(self._made, self._units, self.groups, self._before)
        for unit in self._units:
            if unit.role == "norm":
                for other in epilogues.of_norm(unit):
                    self._merge(unit.group, other.group)
                continue
            alone = len(self.groups[unit.group]) == 1
            if (
                unit.role == "product"
                and not unit.integers
                and alone
                and not self._made.is_mha(unit)
            ):
                for other in epilogues.of_product(unit):
                    self._merge(unit.group, other.group)

    def _turn_maps(self) -> None:
        """Store maps of prepared kernels otherwise, once, for what sums over their places.

        Large ones by a kernel of its own, others in that of all sums.
        """
        made: dict[str, Unit] = {}
        ordered: list[Unit] = []
        for unit in self._units:
            for edge, writer in list(unit.reads):
                if writer is None or not self._is_turned(edge, writer, unit, made):
                    continue
                if edge.tensor not in made:
                    move = Unit(0, writer.node, "move", False, (edge.tensor,), names=())
                    move.alone = self.sums.is_of_large_map(unit)
                    move.group = min(*self.groups, 0) - 1
                    self.groups[move.group] = [move]
                    self._made.link(edge, writer, move)
                    made[edge.tensor] = move
                    ordered.append(move)
                self._made.relink(unit, edge, made[edge.tensor])
            ordered.append(unit)
        self._units = ordered
        for index, unit in enumerate(self._units):
            unit.index = index

    def _is_turned(self, edge: Edge, writer: Unit, unit: Unit, made: Mapping[str, Unit]) -> bool:
        """Whether ``unit`` sums over the places of a map, which is large or summed twice."""
        if edge in self._form.scales or not self._is_map(edge.tensor, writer):
            return False
        floats = [r for e, r in writer.readers if e not in self._form.scales]
        sums = [r for r in floats if r.role == "reduce" and sums_places(self._graph, r.node)]
        return unit in sums and (
            len(sums) > 1 or edge.tensor in made or self.sums.is_of_large_map(unit)
        )

    def _is_map(self, tensor: str, writer: Unit) -> bool:
        """Whether a prepared kernel of a Conv or pool writes a map, not the tokens made of it."""
        if not self.is_float(writer) or tensor not in writer.outputs:
            return False
        return any(u.role == "pool" or u.node.op in CONVS for u in self.groups[writer.group])

    def is_flattened(self, unit: Unit) -> bool:
        """Whether the rows of several batches are one matrix in the kernel that writes it."""
        group = self.groups[unit.group]
        product = group[0]
        flat = (
            product.role == "product"
            and not product.integers
            and batches(self._graph, product) == 1
        )
        return flat and unit.role != "product"

    def is_cut(self, unit: Unit) -> bool:
        """Whether a prepared kernel multiplies by a weight of an odd number of columns."""
        if unit.role != "product" or unit.integers or unit.node.op != "MatMul":
            return False
        columns = (self._graph.type_of(unit.node.outputs[0]).shape or (0,))[-1]
        weighted = weight_input(self._graph, unit.node) is not None
        return weighted and len(self.groups[unit.group]) == 1 and columns % 2 == 1

    def _add_quantizers(self, is_apart: Callable[[Unit | None], bool]) -> None:
        """Quantize what ``is_apart`` holds for, once for each scale, before it is read."""
        made: dict[tuple[str, Scale], Unit] = {}
        ordered: list[Unit] = []
        for unit in self._units:
            unit.in_place = unit.in_place or self._joins_in_place(unit)
            for edge, writer in list(unit.reads):
                scale = self._form.scales.get(edge)
                if scale is None or not (is_apart(writer) or self._may_run_twice(writer)):
                    continue
                if unit.integers or unit.in_place:
                    ordered += self._integers(edge, writer, unit, scale, made)
                if (edge.tensor, scale) in made:
                    self._made.relink(unit, edge, made[edge.tensor, scale])
            ordered.append(unit)
        self._units = [unit for unit in ordered if not self._is_replaced(unit)]
        for index, unit in enumerate(self._units):
            unit.index = index

    def _integers(
        self,
        edge: Edge,
        writer: Unit | None,
        reader: Unit,
        scale: Scale,
        made: dict[tuple[str, Scale], Unit],
    ) -> list[Unit]:
        """Units that quantize what is read, unless they are ``made``; parts of a Concat one by one.

        Evidence: small graphs of two to four branches, and DenseNet, built by TensorRT-RTX 1.7.1.
        """
        if (edge.tensor, scale) in made:
            return []
        new: list[Unit] = []
        if writer is not None and self._may_run_twice(writer):
            joins = writer.role == "move"
            unit = Unit(0, writer.node, writer.role, True, writer.outputs, in_place=joins)
            unit.integers = not joins
            for part, source in writer.reads:
                if self.is_float(source) or self._may_run_twice(source):
                    new += self._integers(part, source, unit, scale, made)
                self._made.link(part, made.get((part.tensor, scale), source), unit)
        else:
            unit = Unit(0, reader.node, "quantize", False)
            self._made.link(Edge(edge.tensor, "", -2), writer, unit)
        unit.group = min(*self.groups, 0) - 1
        self.groups[unit.group] = [unit]
        made[edge.tensor, scale] = unit
        return [*new, unit]

    def _may_run_twice(self, unit: Unit | None) -> bool:
        """Whether integers are read from another kernel than floats: of a MaxPool and a Concat."""
        if unit is None or unit.integers:
            return False
        pools = unit.role == "pool" and unit.node.op == "MaxPool"
        return pools or self._joins_floats(unit)

    def _dequantize_pools(self) -> None:
        """Dequantize what a MaxPool of integers writes for kernels that are not generated."""
        ordered: list[Unit] = []
        for unit in self._units:
            ordered.append(unit)
            floats = [
                (edge, reader)
                for edge, reader in unit.readers
                if unit.pools_integers and not reader.integers and not reader.generated
            ]
            if floats:
                cast = Unit(0, unit.node, "cast", False, group=min(*self.groups, 0) - 1)
                self.groups[cast.group] = [cast]
                self._made.link(floats[0][0]._replace(node="", input_index=-2), unit, cast)
                for edge, reader in floats:
                    self._made.relink(reader, edge, cast)
                ordered.append(cast)
        self._units = ordered
        for index, unit in enumerate(ordered):
            unit.index = index

    def _joins_floats(self, unit: Unit | None) -> bool:
        """Whether it is a Concat of what products write in float, whatever its readers quantize."""
        return (
            unit is not None
            and _joins_once(unit)
            and not unit.in_place
            and all(
                edge not in self._form.scales
                and (self.is_float(writer) or self._joins_floats(writer))
                for edge, writer in unit.reads
            )
        )

    def _joins_in_place(self, unit: Unit) -> bool:
        """Whether it is a Concat of integers, parts of which have kernels that only quantize.

        Where other kernels write all parts, or parts are quantized for other readers anyway, the
        Concat is in one of these kernels, and where no product reads it in that of its reader.
        """
        scales = {self._form.scales.get(edge) for edge, _ in unit.reads}
        if not _joins_once(unit) or len(scales) > 1 or None in scales:
            return False
        if not any(r.in_place or (r.integers and not r.generated) for _, r in unit.readers):
            return False
        floats = [
            (edge, writer)
            for edge, writer in unit.reads
            if self.is_float(writer) or self._joins_floats(writer) or (writer and writer.in_place)
        ]
        if len(floats) == len(unit.reads):
            return True
        others = [part for part in unit.reads if part not in floats]
        if len(unit.reads) == 2 and any(self._is_quantized_for_others(*part) for part in others):
            return False
        return any(not self._is_quantized_for_others(*part) for part in floats)

    def _is_quantized_for_others(self, edge: Edge, writer: Unit | None) -> bool:
        readers = writer.readers if writer is not None else ()
        scale = self._form.scales.get(edge)
        return any(r.integers and self._form.scales.get(e) == scale for e, r in readers)

    def _is_replaced(self, unit: Unit) -> bool:
        """Whether nothing reads a Concat or MaxPool any more; it is taken away."""
        kept = unit.readers or set(unit.outputs) & set(self._graph.outputs)
        if kept or not (_is_concat(unit) or unit.role == "pool"):
            return False
        for edge, writer in unit.reads:
            if writer is not None:
                writer.readers.remove((edge, unit))
        del self.groups[unit.group]
        return True

    def quantizes_apart(self, writer: Unit | None) -> bool:
        """Whether a mean is not quantized where it is taken, but in the next kernel or its own.

        Evidence: 20 small graphs, and squeeze-and-excitation blocks of EfficientNet-B0 and PP-OCR
        cls; behind a Flatten it is quantized where it is taken.
        """
        if writer is None or writer.role != "reduce" or not writer.generated:
            return False
        if self.sums.is_row_product(writer):
            return False
        whole = self._graph.type_of(writer.node.inputs[0]).shape
        return self._graph.type_of(writer.outputs[0]).shape != whole

    def is_float(self, writer: Unit | None) -> bool:
        """Whether a tensor is written, or given, by what does not quantize it too."""
        if writer is None:
            return True
        group = self.groups[writer.group]
        product = next((u for u in group if not u.generated), None)
        if product is not None and self._made.is_whole_norm(product) and len(group) > 1:
            return False
        return product is not None and not product.integers and product.role != "quantize"

    def _ancestors(self) -> list[int]:
        """Of each unit the units that it depends on, as bits."""
        before: list[int] = []
        for unit in self._units:
            bits = 0
            for _, writer in unit.reads:
                if writer is not None:
                    bits |= before[writer.index] | 1 << writer.index
            before.append(bits)
        return before

    def _fuse_generated(self) -> None:
        for unit in self._units:
            if not all(other.generated for other in self.groups[unit.group]):
                continue
            for _, writer in unit.reads:
                if writer is not None and self._may_join(writer, unit):
                    self._merge(writer.group, unit.group)

    def _may_join(self, writer: Unit, unit: Unit) -> bool:
        own = self.groups[writer.group]
        if not all(u.generated for u in own) or writer.group == unit.group:
            return False
        if unit.alone or any(u.alone for u in own):
            return False
        if self.sums.is_of_large_map(unit) and self.sums.ends_turned(writer, unit):
            return False
        if self._is_joined_later(own, unit):
            return False
        if unit.node.op in VIEWS and any(u.role == "reduce" for u in own):
            sums = [
                r for _, r in unit.readers if r.role == "reduce" and not self.sums.is_row_product(r)
            ]
            if sums and len(sums) == len(unit.readers):
                return False
        if self.is_in_place(writer) or self.is_in_place(unit):
            return False
        if any(edge.input_index == NORMED for edge, _ in unit.reads):
            return False
        if unit.pads_integers and any(self._turns_tokens(other) for other in own):
            return False
        views = unit.node.op in VIEWS and any(e in self._form.scales for e, _ in unit.readers)
        if views and self.sums.multiplies_row(unit):
            return False
        return self._may_fuse(writer, unit)

    def _is_joined_later(self, own: Sequence[Unit], unit: Unit) -> bool:
        """Whether a later part of a Concat is made in the kernel that ``unit`` would be part of.

        A kernel writes one part of what is joined in place at most.
        """
        joined = [reader for _, reader in unit.readers if self.is_in_place(reader)]
        parts = [part for reader in joined for _, part in reader.reads if part is not None]
        return any(
            part.index > unit.index and part.generated and any(w in own for _, w in part.reads)
            for part in parts
        )

    def _turns_tokens(self, unit: Unit) -> bool:
        """Whether it transposes what has another rank than a map, and so is not padded as one."""
        rank = len(self._graph.type_of(unit.node.outputs[0]).shape or ())
        return unit.node.op == "Transpose" and rank != 4

    def _may_fuse(self, writer: Unit, unit: Unit) -> bool:
        """Whether what is generated of both may be one kernel."""
        own, theirs = self.groups[writer.group], self.groups[unit.group]
        if not all(u.generated for u in (*own, *theirs)):
            return False
        both = (*own, *theirs)
        if sum(resizes(u) for u in both) > 1:
            return False
        sums = {reduction(self._graph, u.node): u for u in both if u.role == "reduce"}
        if len(sums) > 1 or self._has_other_path(own, theirs):
            return False
        return not self.sums.end(own, writer, unit, self._depends)

    def _depends(self, unit: Unit, other: Unit) -> bool:
        return unit is other or bool(self._before[unit.index] >> other.index & 1)

    def is_in_place(self, unit: Unit) -> bool:
        """Whether a Concat is nothing but what is written into one tensor in the first place.

        It is a kernel where its output leaves or is read by what is generated, or where one of its
        inputs is moved besides or joined twice; integers of one scale are joined in place if what
        quantizes them cannot be in one kernel with it.
        """
        if unit.in_place or not _is_concat(unit):
            return unit.in_place
        scales = {self._form.scales.get(edge) for edge, _ in (*unit.reads, *unit.readers)}
        if len(scales) > 1:
            return False
        writers = [writer for _, writer in unit.reads]
        if scales != {None} and (
            any(w is not None and self._may_fuse(w, unit) for w in writers)
            or not any(reader.integers for _, reader in unit.readers)
        ):
            return False
        if not unit.readers or any(u.generated and not _is_concat(u) for _, u in unit.readers):
            return False
        if any(w and w.role == "move" and not _is_concat(w) for _, w in unit.reads):
            return False
        return len({edge.tensor for edge, _ in unit.reads}) == len(unit.node.inputs)

    def _has_other_path(self, first: Sequence[Unit], second: Sequence[Unit]) -> bool:
        """Whether something outside lies between the groups."""
        inside = {u.index for u in (*first, *second)}
        starts = sum(1 << u.index for u in (*first, *second))
        for unit in (*first, *second):
            for _, writer in unit.reads:
                if writer is None or writer.index in inside:
                    continue
                if any(self._before[u.index] & starts for u in self.groups[writer.group]):
                    return True
        return False

    def _merge(self, one: int, other: int) -> None:
        moved = self.groups.pop(other)
        for unit in moved:
            unit.group = one
        self.groups[one] += moved


def _is_concat(unit: Unit) -> bool:
    return unit.role == "move" and unit.node.op == "Concat"


def _joins_once(unit: Unit) -> bool:
    """Whether it is a Concat of different tensors that something reads."""
    parts = {edge.tensor for edge, _ in unit.reads}
    return _is_concat(unit) and bool(unit.readers) and len(parts) == len(unit.node.inputs)
