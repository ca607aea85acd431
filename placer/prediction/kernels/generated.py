"""Which units are generated as one kernel."""

from __future__ import annotations

from collections.abc import Container, Sequence

from placer.graph import Edge
from placer.prediction.kernels.channels import (
    leaves_as_row,
    reads_channels,
    reads_channels_of,
    sums_apart,
)
from placer.prediction.kernels.groups import Groups
from placer.prediction.kernels.lines import IN_PARTS, LINE_RANK
from placer.prediction.kernels.parts import NORMED, PRODUCTS, VIEWS, Unit, is_concat, resizes
from placer.prediction.kernels.reductions import Reduction, product_shape, reduction, sums_places
from placer.prediction.kernels.sums import Sums
from placer.prediction.kernels.turned import Turned
from placer.prediction.kernels.views import FEW, keeps_all

_GATES, _MAP_RANK = ("Sigmoid", "HardSigmoid"), 4


class Generated:
    """The generated units of one placement, which kernels are made of."""

    def __init__(self, groups: Groups, sums: Sums) -> None:
        self._groups, self._sums = groups, sums
        self._graph, self._form = groups.made.graph, groups.made.form
        self._turned = Turned(groups)
        self._settled: dict[Unit, bool] | None = None  # What is in place, once all is grouped.

    def fuse(self) -> None:
        """Let each unit be in the kernel of what it reads, where that may be."""
        for unit in self._groups.units:
            if not all(other.generated for other in self._groups.of(unit)):
                continue
            for _, writer in unit.reads:
                copied = writer is not None and self._is_copy(writer)
                if writer is not None and not copied and self._may_join(writer, unit):
                    self._groups.merge(writer.group, unit.group)
        for unit in self._groups.units:
            for _, writer in unit.reads:
                if writer is not None and self._is_copy(writer) and self._may_join(writer, unit):
                    self._groups.merge(writer.group, unit.group)
        self._let_wait()

    def _is_copy(self, writer: Unit) -> bool:
        """Whether it copies integers that enter, in a kernel of their readers at last."""
        made = writer.outputs if writer.role == "cast" else ()
        return any(not self._graph.type_of(tensor).is_float for tensor in made)

    def settle(self) -> None:
        """Let what is found in place be known, as no unit changes its kernel any more."""
        self._settled = {}

    def _let_wait(self) -> None:
        """Compute in the kernel of their readers what waits for something else there.

        An INT8 block reads a tensor that is scaled beside it, as RepGhost and MetaFormers do: the
        sum behind the block scales it, not the kernel that writes it (20 small graphs). Parts of a
        row are cut out where they are read, as networks for diffusion shift, scale and gate tokens.
        """
        left = set[int]()
        for unit in reversed(self._groups.units):
            readers = {reader.group for _, reader in unit.readers}
            moves = unit.node.op in ("Transpose", "Gather", *VIEWS) or self._is_of_row(unit)
            if len(readers) == 1 and unit.works and (moves or unit.role == "pointwise"):
                (later,) = readers
                kernel = self._groups.by_number[later]
                if self._ends_with_view(unit, kernel) or self._may_wait(unit, kernel):
                    left.add(unit.group)
                    self._groups.move(unit, later)
        for number in sorted(left):
            self._groups.split(number)
        for unit in self._groups.units:
            product = self._biased(unit)
            if product is not None and len({reader.group for _, reader in unit.readers}) > 1:
                self._groups.move(unit, product.group)

    def _ends_with_view(self, unit: Unit, later: Sequence[Unit]) -> bool:
        """Whether a kernel would end with a view, which is part of the one that reads it.

        But it stays if sums are taken of it, as groups of channels are normed.
        """
        if unit.node.op not in VIEWS or unit in later or len(self._groups.of(unit)) == 1:
            return False
        if any(reader.role == "reduce" for _, reader in unit.readers):
            return False
        read = {edge for edge, _ in (*unit.reads, *unit.readers)}
        quantized = any(edge in self._form.scales for edge in read)
        return not quantized and all(u.generated for u in (*self._groups.of(unit), *later))

    def _is_of_row(self, unit: Unit) -> bool:
        """Whether it cuts a part out of a row that a product writes, or is a view of one."""
        writer: Unit | None = unit
        while writer is not None and writer.role == "move":
            writer = writer.reads[0][1] if writer.reads else None
        if writer is None or unit.role != "move":
            return False
        return self._sums.is_row_product(writer) or self._biased(writer) is not None

    def _biased(self, unit: Unit) -> Unit | None:
        """The product of one row whose bias ``unit`` adds, which its kernel does for several."""
        writer = unit.reads[0][1] if unit.reads else None
        adds = not unit.works and writer is not None and self._sums.is_row_product(writer)
        return writer if adds else None

    def _may_wait(self, unit: Unit, later: Sequence[Unit]) -> bool:
        kernel = self._groups.of(unit)
        if unit in later or len(kernel) == 1 or set(unit.outputs) & set(self._graph.outputs):
            return False
        if not all(other.generated for other in (*kernel, *later)):
            return False
        if any(self._is_written_out_product(reader) for _, reader in unit.readers):
            return False
        if self._reads_twice(unit):
            return False
        if self._groups.have_other_path(kernel, later):
            return True
        convs = [other for other in later if reads_channels(self._graph, other)]
        if any(self._groups.depends(other, unit) for other in convs):
            return False
        return any(writer in kernel for other in convs for _, writer in other.reads)

    def _reads_twice(self, unit: Unit) -> bool:
        """Whether what stays is read by ``unit``, and there or in what it alone reads once more.

        The kernel that writes it computes that, as x * x and x + tanh(x). Gates of an operand, as
        in SiLU and HardSwish, are an activation, which reads it once (21 small graphs).
        """
        if unit.node.op == "Mul" and any(w and w.node.op in _GATES for _, w in unit.reads):
            return False
        kernel, waiting = self._groups.of(unit), [unit]
        for other in waiting:
            waiting += [
                writer
                for writer in dict.fromkeys(w for _, w in other.reads)
                if writer in kernel
                and writer not in waiting
                and all(reader in waiting for _, reader in writer.readers)
                and not set(writer.outputs) & set(self._graph.outputs)
            ]
        read = [e.tensor for u in waiting for e, w in u.reads if w in kernel and w not in waiting]
        return any(read.count(edge.tensor) > 1 for edge, _ in unit.reads)

    def _may_join(self, writer: Unit, unit: Unit) -> bool:
        kernel = self._groups.of(writer)
        if not all(u.generated for u in kernel) or writer.group == unit.group:
            return False
        if unit.alone or any(u.alone for u in kernel) or self._is_left_to_readers(writer, unit):
            return False
        large = self._sums.is_of_large_map(unit)
        turned = self._sums.ends_turned(writer, unit) or self._turned.is_map(writer, unit)
        if (large and turned) or self._turned.ends(writer, unit):
            return False
        if self._is_joined_later(kernel, unit) or self._is_joined(writer, unit):
            return False
        moved = unit.node.op in VIEWS or (
            unit.node.op == "Transpose" and keeps_all(self._graph, unit.node)
        )
        if moved and any(u.role == "reduce" for u in kernel):
            sums = [r for _, r in unit.readers if r.role == "reduce"]
            sums = [reader for reader in sums if not self._sums.is_row_product(reader)]
            if sums and len(sums) == len(unit.readers):
                return False
        if self.is_in_place(writer) or self.is_in_place(unit):
            return False
        if self._is_written_out_product(unit) and not all(map(self._is_of_inputs, kernel)):
            return False
        if any(edge.input_index == NORMED for edge, _ in unit.reads):
            return False
        if unit.pads_integers and (
            self._only_turns_tokens(kernel) or self._joins_lines(unit, kernel)
        ):
            return False
        if unit.pads_floats and any(other.role == "reduce" for other in kernel):
            return False
        views = unit.node.op in VIEWS and any(e in self._form.scales for e, _ in unit.readers)
        if views and self._sums.multiplies_row(unit):
            return False
        return self._may_fuse(writer, unit)

    def _is_left_to_readers(self, writer: Unit, unit: Unit) -> bool:
        """Whether the kernel of other sums, or of a Concat, does what only reads a sum.

        A bias behind a product of one row and before a Softmax, and views of means that are joined.
        """
        readers = [reader for _, reader in unit.readers]
        if not readers or writer.role != "reduce":
            return False
        if self._sums.is_row_product(writer):
            sums = all(r.role == "reduce" and not self._sums.is_row_product(r) for r in readers)
            return sums and not unit.works
        return unit.node.op in VIEWS and all(map(is_concat, readers))

    def _is_written_out_product(self, unit: Unit) -> bool:
        """Whether it multiplies matrices element by element; it reads what is there, many times."""
        if unit.role != "pointwise" or not unit.works or unit.node.op not in PRODUCTS:
            return False
        return product_shape(self._graph, unit.node)[-1:] > (1,)

    def _is_of_inputs(self, unit: Unit) -> bool:
        """Whether it is computed element by element of graph inputs alone."""
        if unit.role == "reduce":
            return False
        return all(w is None or (w.generated and self._is_of_inputs(w)) for _, w in unit.reads)

    def _is_joined_later(self, kernel: Sequence[Unit], unit: Unit) -> bool:
        """Whether a later part of a Concat is made in the kernel that ``unit`` would be part of.

        A kernel writes one part of what is joined in place at most.
        """
        joined = [reader for _, reader in unit.readers if self.is_in_place(reader)]
        parts = [part for reader in joined for _, part in reader.reads if part is not None]
        return any(
            part.index > unit.index and part.generated and any(w in kernel for _, w in part.reads)
            for part in parts
        )

    def _is_joined(self, writer: Unit, unit: Unit) -> bool:
        """Whether ``unit`` reads a part of a joined tensor, which a kernel ends with writing."""
        tensors = {edge.tensor for edge, source in unit.reads if source is writer}
        return unit.node.op != "Transpose" and self.is_part(writer, tensors)

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

    def _only_turns_tokens(self, kernel: Sequence[Unit]) -> bool:
        """Whether it makes a map of tokens, which is only stored otherwise and padded then.

        But of few tokens or channels the kernel stores a padded map, and so it does with what it
        moves besides.
        """
        turned = [unit.node.outputs[0] for unit in kernel if unit.node.op == "Transpose"]
        shapes = [self._graph.type_of(tensor).shape or () for tensor in turned]
        tokens = len(shapes) == 1 and len(shapes[0]) != _MAP_RANK
        return tokens and min(shapes[0][1:], default=0) > FEW

    def _joins_lines(self, padding: Unit, kernel: Sequence[Unit]) -> bool:
        """Whether a kernel computes a map of one dimension of a Conv's and of what no Conv writes.

        As a map of two it is padded then by another kernel, and so is what is computed in parts, as
        LeakyRelu and SiLU (36 small graphs).
        """
        shape = self._graph.type_of(padding.node.inputs[0]).shape or ()
        if len(shape) != LINE_RANK or any(unit.node.op in IN_PARTS for unit in kernel):
            return len(shape) == LINE_RANK
        read = [w for unit in kernel for _, w in unit.reads if w not in kernel]
        inside = [unit for unit in kernel if unit.works]
        known = [{edge.tensor for edge, w in u.reads if w not in inside} for u in kernel]
        sums = [tensor for tensors in known for tensor in tensors]
        convs = [w is not None and not self._is_generated(w) for w in read]
        return len(set(sums)) < len(sums) or (len(read) > 1 and not all(convs))

    def _may_fuse(self, writer: Unit, unit: Unit) -> bool:
        """Whether what is generated of both may be one kernel."""
        kernel, theirs = self._groups.of(writer), self._groups.of(unit)
        if not all(u.generated for u in (*kernel, *theirs)):
            return False
        both = (*kernel, *theirs)
        if any(reads_channels_of(self._graph, u, both) for u in both):
            return False
        if unit.role == "cast" and leaves_as_row(self._graph, kernel, unit):
            return False
        if sums_apart(kernel, writer, unit) or (resizes(writer) and self._sums_map(unit)):
            return False
        if sum(resizes(u) for u in both) > 1:
            return False
        if len(self._reductions(both)) > 1 or self._groups.have_other_path(kernel, theirs):
            return False
        return not self._sums.end(kernel, writer, unit, self._groups.depends)

    def _sums_map(self, unit: Unit) -> bool:
        """Whether it sums over places, which a kernel that resizes a map does not do."""
        return unit.role == "reduce" and sums_places(self._graph, unit.node)

    def _reductions(self, units: Sequence[Unit]) -> set[Reduction]:
        """Over what ``units`` sum; products of one row are one sum."""
        reductions: dict[object, Reduction] = {}
        for unit in units:
            if unit.role == "reduce":
                row = unit.reads[0][0].tensor if self._sums.is_row_product(unit) else unit
                reductions.setdefault(row, reduction(self._graph, unit.node))
        return set(reductions.values())

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

        It is one where its output leaves or is read by what is generated, where one of its
        inputs is moved or normed besides or joined twice, by another Concat too, or where all are
        made of graph inputs and sums of INT8 products; integers of one scale are joined in place
        if what quantizes them cannot be in one kernel with it.
        """
        scales = {
            None if other is not None and other.role == "cast" else self._form.last(edge)
            for edge, other in (*unit.reads, *unit.readers)
        }
        if len(scales) > 1:
            return False
        writers = [writer for _, writer in unit.reads]
        if scales == {None} and all(self._is_scaled(w) for w in writers):
            return False
        if scales != {None} and (
            any(w is not None and self._is_joined_with(e, w, unit) for e, w in unit.reads)
            or not any(reader.integers for _, reader in unit.readers)
        ):
            return False
        if not unit.readers or any(self._is_generated(reader) for _, reader in unit.readers):
            return False
        if any(w and w.role == "move" and not is_concat(w) for _, w in unit.reads):
            return False
        if any(map(self._groups.writes_line, writers)):
            return False
        parts = [(edge.tensor, writer) for edge, writer in unit.reads if writer is not None]
        if any(self._is_joined_elsewhere(part, w, unit) for part, w in parts):
            return False
        if any(r.role == "norm" for part, w in parts for e, r in w.readers if e.tensor == part):
            return False
        return len({edge.tensor for edge, _ in unit.reads}) == len(unit.node.inputs)

    def _is_generated(self, unit: Unit) -> bool:
        """Whether it is in a generated kernel, and does more than join."""
        return not is_concat(unit) and all(u.generated for u in self._groups.of(unit))

    def _is_joined_with(self, edge: Edge, writer: Unit, joined: Unit) -> bool:
        """Whether a Concat of integers is in the kernel of a part, or quantizes what that writes.

        Kernels of parts that read nothing of INT8 products write them where they belong.
        """
        if self._groups.requantizes(edge, writer):
            return True
        if writer.generated and writer.writes_other(edge, self._form):
            return not self._reads_floats(writer)
        floats = any(
            e.tensor == edge.tensor and e not in self._form.scales for e, _ in writer.readers
        )
        return self._may_fuse(writer, joined) and (floats or not self._reads_floats(writer))

    def _reads_floats(self, unit: Unit) -> bool:
        """Whether its kernel reads what prepared ones have written, and no sums to be scaled."""
        kernel = self._groups.of(unit)
        read = [w for other in kernel for _, w in other.reads if w is not None and w not in kernel]
        return any(not w.generated for w in read) and not any(w.leaves_sums for w in read)

    def _is_scaled(self, writer: Unit | None) -> bool:
        """Whether what generates a tensor also casts a graph input or scales an INT8 product."""
        if writer is None or writer.role == "cast":
            return True
        if not writer.generated:
            return writer.leaves_sums and writer.role == "product"
        return all(self._is_scaled(source) for _, source in writer.reads)

    def _is_joined_elsewhere(self, part: str, writer: Unit, joined: Unit) -> bool:
        """Whether another Concat reads the part, in float: it can be in one tensor only."""
        others = [(e, r) for e, r in writer.readers if e.tensor == part and r is not joined]
        return any(is_concat(r) and e not in self._form.scales for e, r in others)
