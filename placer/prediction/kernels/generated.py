"""Which units are generated as one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placer.prediction.kernels import row_activations
from placer.prediction.kernels.channels import (
    leaves_as_row,
    reads_channels,
    reads_channels_of,
    sums_apart,
)
from placer.prediction.kernels.groups import Groups
from placer.prediction.kernels.joins import Joins, is_joined_with_sums
from placer.prediction.kernels.lines import IN_PARTS, LINE_RANK
from placer.prediction.kernels.norms import normalizes_groups
from placer.prediction.kernels.parts import (
    MAP_RANK,
    NORMED,
    VIEWS,
    Unit,
    is_concat,
    is_not_generated,
    is_sum,
    resizes,
)
from placer.prediction.kernels.reductions import Reduction, is_map, reduction, sums_places
from placer.prediction.kernels.resized import Resized
from placer.prediction.kernels.sums import Sums, pointwise_behind
from placer.prediction.kernels.turned import Turned
from placer.prediction.kernels.views import FEW, keeps_all
from placer.prediction.kernels.waiting import Waiting, multiplies_out


class Generated:
    """The generated units of one placement, which kernels are made of."""

    def __init__(self, groups: Groups, sums: Sums) -> None:
        self._groups, self._sums = groups, sums
        self._graph, self._form = groups.made.graph, groups.made.form
        self._turned = Turned(groups)
        self.joins = Joins(groups)

    def fuse(self) -> None:
        """Let each unit be in the kernel of what it reads, where that may be."""
        resized = Resized(self._groups)
        first: dict[Unit, None] = {}
        for unit, given in (*resized.pairs(), *self._last_sums()):
            if self._may_join(given, unit):
                self._merge(given, unit)
                first[unit] = None
        for unit in (*first, *self._groups.units):
            if self._groups.those(unit, is_not_generated):
                continue
            for _, writer in unit.reads:
                copied = writer is not None and self._is_copy(writer)
                if writer is None or copied or resized.is_left(writer, unit):
                    continue
                if self._may_join(writer, unit):
                    self._merge(writer, unit)
        for unit in self._groups.units:
            for _, writer in unit.reads:
                if writer is not None and self._is_copy(writer) and self._may_join(writer, unit):
                    self._groups.merge(writer.group, unit.group)
        self._name_resized()
        Waiting(self._groups, self._sums).move()
        row_activations.name(self._graph, self._groups.units)

    def _last_sums(self) -> Iterator[tuple[Unit, Unit]]:
        """Of unequal sums of a map the last one, which the kernel takes that rounds the map.

        Of a map without a pair it takes the first (24 small graphs).
        """
        for writer in self._groups.units:
            if not writer.generated or writer.role == "reduce":
                continue
            read = [(e, r) for e, r in writer.readers if e in self._form.scales]
            sums = [r for _, r in read if r.role == "reduce" and len(r.reads) == 1]
            if len({reduction(self._graph, unit.node) for unit in sums}) > 1:
                last = max(sums, key=lambda unit: unit.node.index)
                if is_map(self._graph, last.node.inputs[0]):
                    yield last, writer

    def _merge(self, writer: Unit, unit: Unit) -> None:
        self._groups.merge(writer.group, unit.group)
        if self._groups.those(unit, resizes):
            self._groups.depend_together(unit.group)

    def _name_resized(self) -> None:
        """Let kernels of sums that turn what a kernel with a Resize computes be named so."""
        for unit in self._groups.units:
            if not (self._sums_map(unit) or self._joins_summed(unit)):
                continue
            for _, writer in unit.reads:
                if writer is None or writer.role != "pointwise" or writer.group == unit.group:
                    continue
                if self._groups.those(writer, resizes):
                    unit.views += (writer.node,)

    def _is_copy(self, writer: Unit) -> bool:
        """Whether it copies integers that enter, in a kernel of their readers at last."""
        made = writer.outputs if writer.role == "cast" else ()
        return any(not self._graph.type_of(tensor).is_float for tensor in made)

    def _may_join(self, writer: Unit, unit: Unit) -> bool:
        """Whether ``unit`` may be computed by the kernel of ``writer``, which it reads."""
        kernel = self._groups.of(writer)
        if writer.group == unit.group or self._groups.those(writer, _is_closed):
            return False
        if unit.alone or self._is_left_to_readers(writer, unit):
            return False
        if unit.role == "reduce" and normalizes_groups(self._graph, unit.node):
            return False
        if self._is_turned_apart(writer, unit) or self._is_joined_apart(writer, unit):
            return False
        if self._is_moved_for_sums(writer, unit) or self._pads_apart(writer, unit):
            return False
        if multiplies_out(self._graph, unit) and not self._are_of_inputs(kernel):
            return False
        if any(edge.input_index == NORMED for edge, _ in unit.reads):
            return False
        if writer.role != "cast" and self._is_quantized_view_of_row(unit):
            return False
        return self._may_fuse(writer, unit)

    def _is_turned_apart(self, writer: Unit, unit: Unit) -> bool:
        """Whether another kernel turns what ``writer`` makes, or sums it as turned."""
        large = self._sums.is_of_large_map(unit)
        turned = self._sums.ends_turned(writer, unit) or self._turned.is_map(writer, unit)
        return (large and turned) or self._turned.ends(writer, unit)

    def _is_joined_apart(self, writer: Unit, unit: Unit) -> bool:
        """Whether a kernel ends with ``writer`` as it is, or ``unit``, or both are joined."""
        if self._is_joined_later(self._groups.of(writer), unit):
            return True
        if self._reads_later_part(writer, unit) or self._is_joined(writer, unit):
            return True
        if self._writes_beside(self._groups.of(writer), unit):
            return True
        joined = self.joins.is_in_place(writer) or self.joins.is_in_place(unit)
        return joined or self._reads_part(writer, unit)

    def _is_moved_for_sums(self, writer: Unit, unit: Unit) -> bool:
        """Whether ``unit`` is a view of what a kernel of sums makes, which sums alone read."""
        is_transposed = unit.node.op == "Transpose" and keeps_all(self._graph, unit.node)
        if unit.node.op not in VIEWS and not is_transposed:
            return False
        if not self._groups.those(writer, is_sum):
            return False
        return bool(unit.readers) and all(
            reader.role == "reduce" and not self._sums.is_row_product(reader)
            for _, reader in unit.readers
        )

    def _is_quantized_view_of_row(self, unit: Unit) -> bool:
        """Whether it is a view that is quantized for a product of one row."""
        quantized = any(edge in self._form.scales for edge, _ in unit.readers)
        return unit.node.op in VIEWS and quantized and self._sums.multiplies_row(unit)

    def _pads_apart(self, writer: Unit, unit: Unit) -> bool:
        """Whether ``unit`` pads channels, but not in the kernel of ``writer``."""
        kernel = self._groups.of(writer)
        if unit.pads_integers and self._only_turns_tokens(kernel):
            return True
        if unit.pads_floats and any(other.role == "reduce" for other in kernel):
            return True
        if not (unit.pads_floats or unit.pads_integers):
            return False
        views = writer.role == "move" and writer.node.op in VIEWS
        return (views and not self._is_of_products(kernel)) or self._joins_lines(unit, kernel)

    def _is_of_products(self, kernel: Sequence[Unit]) -> bool:
        """Whether it reads nothing but what kernels of products and pools write.

        A kernel that computes of anything else does not go on behind a view of it to pad channels,
        be it one of the model or of a line, which is one of two dimensions to the builder (60
        small graphs).
        """
        read = [writer for unit in kernel for _, writer in unit.reads if writer not in kernel]
        return all(w is not None and not self.joins.is_generated(w) for w in read)

    def _joins_sums(self, unit: Unit, kernel: Sequence[Unit]) -> bool:
        """Whether a Concat reads sums of this kernel."""
        return any(w in kernel and w.role == "reduce" for _, w in unit.reads if w is not None)

    def _reads_part(self, writer: Unit, unit: Unit) -> bool:
        """Whether it reads the pair of a part of joined integers, which a kernel ends with."""
        pairs = {(e.tensor, self._form.scales.get(e)) for e, w in unit.reads if w is writer}
        return any(
            reader.in_place
            and edge in self._form.scales
            and (edge.tensor, self._form.scales[edge]) in pairs
            for edge, reader in writer.readers
        )

    def _is_left_to_readers(self, writer: Unit, unit: Unit) -> bool:
        """Whether the kernel of other sums, or of a Concat, does what only reads a sum.

        What lies between a product of one row and a Softmax, views of means that are joined, and
        what is computed of sums to be joined with others.
        Sums are joined, and quantized as such, by another kernel than theirs (20 small graphs).
        """
        if is_concat(unit) and self._joins_sums(unit, self._groups.of(writer)):
            return True
        readers = [reader for _, reader in unit.readers]
        if not readers or writer.role != "reduce":
            return False
        if self._sums.is_row_product(writer):
            return unit.role == "pointwise" and self._is_for_sums(unit)
        if is_joined_with_sums(unit):
            return True
        return unit.node.op in VIEWS and all(map(is_concat, readers))

    def _is_for_sums(self, unit: Unit) -> bool:
        """Whether all that reads it sums in the end, and is no product of a row."""
        behind = [u.readers for u in pointwise_behind(unit)]
        return all(behind) and all(
            r.role == "pointwise" or (r.role == "reduce" and not self._sums.is_row_product(r))
            for readers in behind
            for _, r in readers
        )

    def _are_of_inputs(self, kernel: Sequence[Unit]) -> bool:
        """Whether all is computed element by element of graph inputs alone."""
        waiting, seen = [*kernel], {*kernel}
        while waiting:
            unit = waiting.pop()
            if unit.role == "reduce" or not unit.generated:
                return False
            before = {writer for _, writer in unit.reads if writer is not None} - seen
            seen |= before
            waiting += before
        return True

    def _is_joined_later(self, kernel: Sequence[Unit], unit: Unit) -> bool:
        """Whether a later part of a Concat is made in the kernel that ``unit`` would be part of.

        A kernel writes one sum of what is joined in place at most, as attention to places has it.
        """
        if unit.role != "reduce":
            return False
        joined = [reader for _, reader in unit.readers if self.joins.is_in_place(reader)]
        parts = [part for reader in joined for _, part in reader.reads if part is not None]
        return any(
            part.index > unit.index and part.generated and any(w in kernel for _, w in part.reads)
            for part in parts
        )

    def _reads_later_part(self, writer: Unit, unit: Unit) -> bool:
        """Whether ``unit`` reads two generated parts of joined integers, of which this comes first.

        Its kernel is that of the last one.
        """
        joined = [reader for _, reader in writer.readers if reader.in_place]
        parts = [w for reader in joined for _, w in reader.reads if w is not None]
        read = [w for _, w in unit.reads]
        return any(w in read and w.generated and w.index > writer.index for w in parts)

    def _is_joined(self, writer: Unit, unit: Unit) -> bool:
        """Whether ``unit`` reads a part of a joined tensor, which a kernel ends with writing."""
        tensors = {edge.tensor for edge, source in unit.reads if source is writer}
        return unit.node.op != "Transpose" and self.joins.is_part(writer, tensors)

    def _writes_beside(self, kernel: Sequence[Unit], unit: Unit) -> bool:
        """Whether ``unit`` writes a part of joined floats of which ``kernel`` reads another one.

        A generated kernel does not read what it writes (six small graphs, as nodes of DLA, whose
        Relu is a kernel of its own behind the sum).
        """
        joined = [reader for _, reader in unit.readers if self.joins.joins_floats(reader)]
        parts = {e.tensor for reader in joined for e, w in reader.reads if w is not unit}
        reads = [(e, w) for other in kernel for e, w in other.reads if w not in kernel]
        return any(e.tensor in parts and e not in self._form.scales for e, _ in reads)

    def _only_turns_tokens(self, kernel: Sequence[Unit]) -> bool:
        """Whether it makes a map of tokens, which is only stored otherwise and padded then.

        But of few tokens or channels the kernel stores a padded map, and so it does with what it
        moves besides.
        """
        turned = [unit.node.outputs[0] for unit in kernel if unit.node.op == "Transpose"]
        shapes = [self._graph.type_of(tensor).shape or () for tensor in turned]
        tokens = len(shapes) == 1 and len(shapes[0]) != MAP_RANK
        return tokens and min(shapes[0][1:], default=0) > FEW

    def _joins_lines(self, padding: Unit, kernel: Sequence[Unit]) -> bool:
        """Whether a kernel computes a map of one dimension of a Conv's and of what no Conv writes.

        As a map of two it is padded then by another kernel, and so is what is computed in parts, as
        LeakyRelu and SiLU (36 small graphs).
        """
        shape = self._graph.type_of(padding.node.inputs[0]).shape or ()
        if len(shape) != LINE_RANK or any(unit.node.op in IN_PARTS for unit in kernel):
            return len(shape) == LINE_RANK
        inside = [unit for unit in kernel if unit.works]
        known = [{edge.tensor for edge, w in u.reads if w not in inside} for u in kernel]
        sums = [tensor for tensors in known for tensor in tensors]
        return len(set(sums)) < len(sums) or not self._is_of_products(kernel)

    def _may_fuse(self, writer: Unit, unit: Unit) -> bool:
        """Whether what is generated of both may be one kernel."""
        those, kernel = self._groups.those, self._groups.of(writer)
        if those(writer, is_not_generated) or those(unit, is_not_generated):
            return False
        both = (writer.group, unit.group)
        convs = (*those(writer, self._reads_channels), *those(unit, self._reads_channels))
        if any(reads_channels_of(self._graph, conv, both) for conv in convs):
            return False
        if unit.role == "cast" and leaves_as_row(self._graph, kernel, unit):
            return False
        if sums_apart(kernel, writer, unit) or self._is_resized(writer, unit):
            return False
        if len(those(writer, resizes)) + len(those(unit, resizes)) > 1:
            return False
        summed = those(writer, is_sum)
        if len(self._reductions((*summed, *those(unit, is_sum)))) > 1:
            return False
        if self._groups.have_other_path(*both):
            return False
        return not self._sums.end(summed, unit, self._groups.depends)

    def _reads_channels(self, unit: Unit) -> bool:
        return reads_channels(self._graph, unit)

    def _is_resized(self, writer: Unit, unit: Unit) -> bool:
        """Whether sums over places are taken of ``unit``, which no kernel with a Resize does.

        What is computed or joined last is in the kernel of the sum, but not what computes of the
        resized map and of another one. What is summed is resized by another kernel, too (26 small
        graphs, and networks with attention to channels).
        """
        if resizes(unit):
            return any(self._sums_map(reader) for _, reader in writer.readers)
        if not self._groups.those(writer, resizes):
            return False
        if self._sums_map(unit) or self._joins_summed(unit):
            return True
        summed = any(self._sums_map(r) or self._joins_summed(r) for _, r in unit.readers)
        beside = resizes(writer) and len(unit.reads) > 1
        return unit.role == "pointwise" and summed and not beside

    def _joins_summed(self, unit: Unit) -> bool:
        """Whether it joins maps of which sums over places are taken."""
        return is_concat(unit) and any(self._sums_map(reader) for _, reader in unit.readers)

    def _sums_map(self, unit: Unit) -> bool:
        return unit.role == "reduce" and sums_places(self._graph, unit.node)

    def _reductions(self, units: Sequence[Unit]) -> set[Reduction]:
        """Over what ``units`` sum; products of one row are one sum."""
        reductions: dict[object, Reduction] = {}
        for unit in units:
            row = unit.reads[0][0].tensor if self._sums.is_row_product(unit) else unit
            reductions.setdefault(row, reduction(self._graph, unit.node))
        return set(reductions.values())


def _is_closed(unit: Unit) -> bool:
    """Whether nothing else is generated behind it in its kernel."""
    return unit.alone or unit.sorts or not unit.generated
