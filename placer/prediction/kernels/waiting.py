"""What a generated kernel leaves to the kernel of its readers."""

from __future__ import annotations

from collections.abc import Sequence

from placer.graph import Edge, Graph
from placer.prediction.kernels import row_activations
from placer.prediction.kernels.channels import reads_channels
from placer.prediction.kernels.groups import Groups
from placer.prediction.kernels.parts import PRODUCTS, VIEWS, Unit, is_not_generated, resizes
from placer.prediction.kernels.reductions import product_shape
from placer.prediction.kernels.sums import Sums

_GATES = ("Sigmoid", "HardSigmoid")
_CUTS = ("Split", "Slice")

# Of one of several products of a row up to so many parts are cut out where they are read, each with
# its bias; of more the first kernel that reads one adds the bias and writes the others (graphs of 2
# to 6 parts that shift, scale and gate tokens, in FP16 and INT8).
_CUT_WHERE_READ = 3


class Waiting:
    """Units of one placement that are computed where they are read."""

    def __init__(self, groups: Groups, sums: Sums) -> None:
        self._groups, self._sums = groups, sums
        self._graph, self._form = groups.made.graph, groups.made.form

    def move(self) -> None:
        """Compute in the kernel of their readers what waits for something else there.

        An INT8 block reads a tensor that is scaled beside it, as RepGhost and MetaFormers do: the
        sum behind the block scales it, not the kernel that writes it (20 small graphs). Parts of a
        row are cut out where they are read, as networks for diffusion shift, scale and gate tokens.
        """
        left = set[int]()
        for unit in reversed(self._groups.units):
            self._leave_to_products(unit)
            readers = {reader.group for _, reader in unit.readers}
            moves = unit.node.op in ("Transpose", "Gather", *VIEWS) or self._waits_of_row(unit)
            if len(readers) == 1 and unit.works and (moves or unit.role == "pointwise"):
                (later,) = readers
                kernel = self._groups.by_number[later]
                if self._ends_with_view(unit, kernel, unit.readers) or self._may_wait(unit, kernel):
                    left.add(unit.group)
                    self._groups.move(unit, later)
        for number in sorted(left):
            self._groups.split(number)
        for unit in self._groups.units:
            product = self._biased(unit)
            kept = row_activations.keeps_bias(self._graph, unit)
            if product is not None and not kept and not self._writes_parts(unit):
                self._leave_bias(unit, product)

    def _leave_to_products(self, unit: Unit) -> None:
        """Let products, which read any view, read what a view is of, if one more kernel reads it.

        That kernel makes the view: so it is for residuals of windows of a map (12 small graphs).
        """
        products = [
            (e, r) for e, r in unit.readers if r.role == "product" and r.node.op in PRODUCTS
        ]
        others = [(e, r) for e, r in unit.readers if (e, r) not in products]
        viewed = unit.reads[0][1] if unit.node.op in VIEWS and unit.reads else None
        if not products or viewed is None or viewed.group != unit.group:
            return
        if len({reader.group for _, reader in others}) != 1:
            return
        if self._ends_with_view(unit, self._groups.of(others[0][1]), others):
            for edge, product in products:
                self._groups.made.relink(product, edge, viewed)

    def _ends_with_view(
        self, unit: Unit, later: Sequence[Unit], read: Sequence[tuple[Edge, Unit]]
    ) -> bool:
        """Whether a kernel would end with a view, which is part of the one that ``read``s it.

        But it stays if sums are taken of it, as groups of channels are normed.
        """
        inside = unit.group == later[0].group
        if unit.node.op not in VIEWS or inside or len(self._groups.of(unit)) == 1:
            return False
        if any(reader.role == "reduce" for _, reader in read):
            return False
        quantized = any(edge in self._form.scales for edge, _ in (*unit.reads, *read))
        return not quantized and all(u.generated for u in (*self._groups.of(unit), *later))

    def _leave_bias(self, biased: Unit, product: Unit) -> None:
        """Let kernels that read parts of a row find its bias added, or add it where they read it.

        Each kernel does the latter of one of several products of a row, and one that only cuts out
        a part for a product's gate, too. The builder names what adds the bias there, and not what
        cuts the row, as in networks for diffusion of several blocks. The kernel of a product of
        integers adds no bias of another one (eleven small graphs).
        """
        number, several = biased.group, self._is_one_of_several(product)
        if number != product.group and any(not r.generated for _, r in biased.readers):
            if not several:
                self._groups.move(biased, product.group)
            return
        if several and number != product.group:
            self._groups.move(biased, product.group)
            if number in self._groups.by_number:  # Unless nothing is left of it.
                self._groups.split(number)
        groups = {reader.group for _, reader in biased.readers}
        if len(groups) == 1:
            self._groups.move(biased, *groups)
        elif groups and not several:
            self._groups.move(biased, product.group)
        elif groups:
            for _, reader in biased.readers:
                if reader.node.op in _CUTS:
                    reader.names = (biased.node,)
            if biased.works:
                biased.names = ()

    def _is_one_of_several(self, product: Unit) -> bool:
        """Whether its kernel multiplies the row by more weights."""
        return sum(map(self._sums.is_row_product, self._groups.of(product))) > 1

    def _writes_parts(self, biased: Unit) -> bool:
        """Whether the first kernel that reads a part of a row adds its bias and writes the rest."""
        product = self._biased(biased)
        parts = {reader.outputs for _, reader in biased.readers if reader.node.op in _CUTS}
        many = len(parts) > _CUT_WHERE_READ
        return many and product is not None and self._is_one_of_several(product)

    def _waits_of_row(self, unit: Unit) -> bool:
        """Whether it is computed where it is read, as parts of a row are."""
        given = unit.reads[0][1] if unit.reads else None
        written = unit.node.op in _CUTS and given is not None and self._writes_parts(given)
        return not written and self._is_of_row(unit)

    def _is_of_row(self, unit: Unit) -> bool:
        """Whether it cuts a part out of a row that a product writes, or is a view of one."""
        writer: Unit | None = unit
        while writer is not None and writer.role == "move":
            writer = writer.reads[0][1] if writer.reads else None
        if writer is None or unit.role != "move":
            return False
        return self._sums.is_row_product(writer) or self._biased(writer) is not None

    def _biased(self, unit: Unit) -> Unit | None:
        """The product of one row whose bias ``unit`` adds, which its kernel does for several.

        Be it the product's own or an Add's.
        """
        writer = unit.reads[0][1] if len(unit.reads) == 1 else None
        adds = not unit.works or unit.node.op == "Add"
        return writer if writer and adds and self._sums.is_row_product(writer) else None

    def _may_wait(self, unit: Unit, later: Sequence[Unit]) -> bool:
        if unit.group == later[0].group or len(self._groups.of(unit)) == 1:
            return False
        if set(unit.outputs) & set(self._graph.outputs):
            return False
        if any(self._groups.those(u, is_not_generated) for u in (unit, later[0])):
            return False
        if any(multiplies_out(self._graph, reader) for _, reader in unit.readers):
            return False
        if self._reads_twice(unit) or all(self._groups.those(k, resizes) for k in (unit, later[0])):
            return False
        if self._groups.have_other_path(unit.group, later[0].group):
            return True
        convs = self._groups.those(later[0], self._reads_channels)
        if any(self._groups.depends(other, unit) for other in convs):
            return False
        read = [writer for other in convs for _, writer in other.reads]
        return any(writer is not None and writer.group == unit.group for writer in read)

    def _reads_channels(self, unit: Unit) -> bool:
        return reads_channels(self._graph, unit)

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


def multiplies_out(graph: Graph, unit: Unit) -> bool:
    """Whether it multiplies matrices element by element; it reads what is there, many times."""
    if unit.role != "pointwise" or not unit.works or unit.node.op not in PRODUCTS:
        return False
    return product_shape(graph, unit.node)[-1:] > (1,)
