"""After which nodes the builder names a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from placer.graph import Node
from placer.graph.weights import weight_input
from placer.prediction.kernels.fusion import Kernels
from placer.prediction.kernels.joins import is_joined_with_sums
from placer.prediction.kernels.parts import CONVS, MAP_RANK, PRODUCTS, VIEWS, Unit, is_concat
from placer.prediction.kernels.units import Units


class KernelNames:
    """The nodes that kernels of one placement are named after."""

    def __init__(self, units: Units, kernels: Kernels) -> None:
        self._units, self._kernels = units, kernels
        self._graph, self._groups = units.graph, kernels.groups

    def named(self, unit: Unit) -> Sequence[Node]:
        """The nodes that the builder names; padding is named after the whole kernel it is for."""
        if unit.names is not None:
            return unit.names
        if unit.role in ("cast", "pair"):
            return ()
        writer = unit.reads[0][1] if unit.reads else None
        if writer is not None and self._takes_bias(unit, writer):
            return (unit.node, writer.node)
        if not unit.works and unit.role == "pointwise":
            if unit.node.op == "Conv":
                return (unit.node,) if any(unit.node.inputs[2:3]) else ()
            if self.multiplies_activations(unit):
                return ()
        if unit.node.op == "Transpose" and writer is not None and self._turns_rows(writer):
            return (unit.node, writer.node)
        if more := self._named_besides(unit):
            return (*self._units.nodes_of(unit), *more)
        is_padding = unit.role == "move" and not unit.works
        return self._padded_for(unit) if is_padding else self._units.nodes_of(unit)

    def _padded_for(self, unit: Unit) -> tuple[Node, ...]:
        """The nodes of the kernel that padding is for."""
        readers = [reader for _, reader in unit.readers]
        reader = next((r for r in readers if r.node is unit.node), readers[0])
        units = self._groups[reader.group]
        return tuple(u.node for u in units) if self._kernels.is_prepared(units) else (unit.node,)

    def _named_besides(self, unit: Unit) -> tuple[Node, ...]:
        """Nodes of other kernels whose rows this one makes or reads otherwise."""
        more: tuple[Node, ...] = ()
        if unit.generated:
            more = self._flattened_for(unit) or self._reshaped(unit)
        return more or (self._sums_rows(unit) if unit.role == "reduce" else ())

    def _flattened_for(self, unit: Unit) -> tuple[Node, ...]:
        """Sums of products of flattened rows that add these, which are flattened here."""
        if any(w is not None and self._is_flat(w) for _, w in unit.reads):
            return ()
        sums = (r for _, r in unit.readers if r.node.op == "Add" and r.group != unit.group)
        products = {r.node: self._groups[r.group][0] for r in sums if self._is_flat(r)}
        return tuple(node for node, product in products.items() if product.role == "product")

    def _reshaped(self, unit: Unit) -> tuple[Node, ...]:
        """What wrote rows of several batches as one matrix, a column too many or a sum's dimension.

        Its name stays with what makes the batches, or cuts the column or dimension off.
        """
        writers = [w for _, w in unit.reads if w is not None and w.group != unit.group]
        known = self._kernels
        if unit.node.op in VIEWS or not writers:  # The batches are made as a view says.
            return ()
        sums = unit.role == "reduce" and not known.sums.is_row_product(unit)
        sums = sums or is_concat(unit) or is_joined_with_sums(unit)
        squeezed = [w for w in writers if squeezes(w.node) and (sums or self._makes_line(w.node))]
        matrices = [w for w in writers if known.flattened.is_written(w) and not self._is_flat(w)]
        if matrices and known.flattened.keeps_matrix(unit):
            matrices = []
        return tuple(w.node for w in writers if w in matrices or known.is_cut(w) or w in squeezed)

    def _makes_line(self, summed: Node) -> bool:
        """Whether it sums one dimension of a map, as that over neighbours of points.

        Whatever else reads it makes the view then (25 small graphs).
        """
        shapes = (self._graph.type_of(t).shape or () for t in (summed.inputs[0], *summed.outputs))
        return [len(shape) for shape in shapes] == [MAP_RANK, MAP_RANK - 1]

    def _sums_rows(self, unit: Unit) -> tuple[Node, ...]:
        """Products of the row that a kernel of a large map's means alone makes a column of."""
        alone = all(u is unit or u.node.op in VIEWS for u in self._groups[unit.group])
        if not alone or not self._kernels.sums.is_of_large_map(unit):
            return ()
        readers = [reader for _, reader in unit.readers]
        for reader in readers:
            if reader.node.op in VIEWS:
                readers += [behind for _, behind in reader.readers]
        return tuple(r.node for r in readers if self._kernels.sums.is_row_product(r))

    def _is_flat(self, writer: Unit) -> bool:
        """Whether a Reshape of the model makes the batches."""
        return self._groups[writer.group][0].node.name in self._units.flat

    def _turns_rows(self, writer: Unit) -> bool:
        """Whether what a MatMul writes as rows of a matrix is read as a map, which is named so."""
        product = self._groups[writer.group][0]
        rank = len(self._graph.type_of(writer.node.outputs[0]).shape or ())
        weighted = weight_input(self._graph, product.node) is not None
        return weighted and product.node.op == "MatMul" and not product.generated and rank > 3

    def multiplies_activations(self, unit: Unit) -> bool:
        """Whether it is a MatMul of which neither operand is a weight."""
        return unit.node.op == "MatMul" and weight_input(self._graph, unit.node) is None

    def _takes_bias(self, unit: Unit, writer: Unit) -> bool:
        """Whether the bias of a Conv is added with the constant of what scales its result."""
        apart = writer.group != unit.group and writer.node.op in CONVS and not writer.generated
        if writer.node.op == "Gemm" and not writer.generated and len(writer.node.inputs) > 2:
            return self._multiplies_column(unit) and not writer.leaves_sums
        # A Div by a constant is a Mul, but not in front of a graph output (20 small graphs).
        divides = unit.node.op == "Div" and [r.role for _, r in unit.readers] != ["cast"]
        scales = (unit.node.op in ("HardSigmoid", "Mul") or divides) and len(unit.reads) == 1
        if scales and unit.reads[0][0] in self._units.form.scales:  # It is rounded between.
            return False
        return apart and scales and len(writer.readers) == 1 and not writer.leaves_sums

    def _multiplies_column(self, unit: Unit) -> bool:
        """Whether its kernel is the product with a single column, which adds biases before it."""
        products = [u for u in self._groups[unit.group] if u.node.op in PRODUCTS]
        return any(
            u.role == "reduce" and not self._kernels.sums.is_row_product(u) for u in products
        )


def squeezes(node: Node) -> bool:
    """Whether it sums and takes the dimensions away, which is a view of its own."""
    return node.op.startswith("Reduce") and node.attributes.get("keepdims", 1) == 0
