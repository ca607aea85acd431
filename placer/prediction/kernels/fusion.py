"""Which units are fused into one kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from placer.graph import Edge
from placer.graph.transposes import order_of
from placer.graph.weights import weight_input
from placer.prediction.kernels.cut_maps import CutMaps
from placer.prediction.kernels.epilogues import Epilogues
from placer.prediction.kernels.flattened import Flattened
from placer.prediction.kernels.gates import Gates
from placer.prediction.kernels.generated import Generated
from placer.prediction.kernels.groups import Groups
from placer.prediction.kernels.joint_integers import joint_parts
from placer.prediction.kernels.norm_epilogues import epilogue_of_norm
from placer.prediction.kernels.parts import PRODUCTS, VIEWS, Unit, has_float_weight
from placer.prediction.kernels.quantizers import Quantizers
from placer.prediction.kernels.reductions import has_heads, sums_places
from placer.prediction.kernels.repeated import RepeatedUnits
from placer.prediction.kernels.rows_of_maps import RowsOfMaps
from placer.prediction.kernels.shared_pairs import SharedPairs
from placer.prediction.kernels.sums import Sums
from placer.prediction.kernels.turned_operands import is_multiplied_besides, is_turned_behind
from placer.prediction.kernels.units import Units
from placer.prediction.kernels.views import SWAPPED, is_powered


class Kernels:
    """The units of one placement by kernel; ``groups``: by number."""

    def __init__(self, units: Units) -> None:
        self._made, self._graph, self._form = units, units.graph, units.form
        self._groups = Groups(units)
        self.groups = self._groups.by_number
        self._gates = Gates(units.graph)
        self.sums = Sums(units.graph, units.form, units.rows)
        self.flattened = Flattened(units.graph, units.form, self.groups)
        self._quantizers = Quantizers(self._groups, self.sums)
        self._generated = Generated(self._groups, self.sums)
        self._joins = self._generated.joins
        self.is_float, self.is_in_place = self._groups.is_float, self._joins.is_in_place
        self.writes_map, self.is_prepared = self._groups.writes_map, self._groups.is_prepared
        self._join_products()
        self._fuse_epilogues()
        CutMaps(self._groups).add()
        self._turn_maps()
        RowsOfMaps(self._groups).add()
        self._quantizers.add(self.is_float)
        self._quantizers.dequantize_integers()
        repeated = RepeatedUnits(self._groups)
        repeated.add_pools()
        repeated.add_moves()
        self._groups.find_dependences()
        self._generated.fuse()
        self._quantizers.add(self.quantizes_apart)
        self._groups.find_dependences()
        SharedPairs(self._groups).settle()
        self._groups.find_dependences()
        self._joins.settle()
        self._join_quantizers()

    def _join_quantizers(self) -> None:
        """What quantizes a graph input to several scales is one kernel.

        Of what a prepared kernel writes there is one for each (eight small graphs).
        """
        known: dict[str, Unit] = {}
        for unit in self._groups.units:
            if unit.role != "quantize" or unit.reads[0][1] is not None:
                continue
            first = known.setdefault(unit.reads[0][0].tensor, unit)
            if first is not unit and len(self._groups.of(unit)) == 1:
                self._groups.merge(first.group, unit.group)

    def quantizes_apart(self, writer: Unit | None) -> bool:
        """Whether what a generated kernel writes is quantized by another one: means, and parts."""
        if self._quantizers.quantizes_apart(writer):
            return True
        if writer is None or not writer.generated or len(writer.outputs) != 1:
            return False
        return self._joins.is_part(writer, writer.outputs)

    def _join_products(self) -> None:
        """Products of one tensor with weights are one (queries, keys and values; heads).

        Integers are one tensor where they have one scale, and those that multiply floats by it are
        one as those that multiply integers are. Of several samples one that is taken apart, as
        joint keys and values, is none with others (24 small graphs).
        """
        known: dict[object, list[Unit]] = {}
        for unit in self._groups.units:
            weight = weight_input(self._graph, unit.node)
            if unit.node.op not in PRODUCTS or weight is None or weight.index != 1:
                continue
            if (alike := self._joined_with(unit)) is not None:
                known.setdefault(alike, []).append(unit)
        for units in known.values():
            ends = all(unit.dequantizes and self._relu_behind(unit) for unit in units)
            if self._has_float_weight(units[0]):
                for part in joint_parts(self._graph, self._form.scales, units):
                    self._join(part, ends)
            elif ends or units[0].integers or not any(u.dequantizes for u in units[:-1]):
                self._join(units, ends)

    def _joined_with(self, unit: Unit) -> object | None:
        """What products in one kernel with ``unit`` have in common; None if none joins it."""
        row = self.sums.is_row_product(unit) or self.sums.multiplies_few(unit)
        if not (row or unit.role == "product"):
            return None
        rounded = self._has_float_weight(unit)
        if unit.scales and (row or not rounded):  # Weights of several scales are not one.
            return None
        if not (row or unit.integers) and self._gates.are(unit):
            return None
        edge = unit.reads[0][0]
        depth = (self._graph.type_of(edge.tensor).shape or (0,))[-1]
        scale = self._form.scales.get(edge) if row or unit.integers else None
        read = edge.tensor, unit.integers and not row, scale
        powered = not (unit.leaves_sums or self._is_cast(unit)) and is_powered(
            self._graph, unit.node
        )
        ends = bool(self._relu_behind(unit))  # As all of a kernel do, or none.
        kind = self._kind_of(unit)
        return *read, depth, row, powered, unit.unpacks_weight, ends, rounded, kind

    def _is_cast(self, product: Unit) -> bool:
        """Whether the model casts what it writes, and nothing else reads that."""
        return product.node.outputs[0] in self._made.float32

    def _has_float_weight(self, unit: Unit) -> bool:
        """Whether it multiplies integers by a weight without a pair."""
        return unit.integers and has_float_weight(self._graph, self._form, unit)

    def _kind_of(self, unit: Unit) -> str:
        """What products of one tensor must have alike to be one kernel; a node's name joins none.

        Products of floats whose results are turned are joined with each other. One whose result
        a product and something else read is joined with none (100 small graphs of two and three
        products).
        """
        if self._makes_heads_apart(unit):
            return unit.node.name
        if unit.role != "product" or unit.integers:
            return ""
        if is_multiplied_besides(self._graph, unit.node):
            return unit.node.name
        return "Transpose" if is_turned_behind(self._graph, unit.node) else ""

    def _makes_heads_apart(self, product: Unit) -> bool:
        """Whether heads of several parts are made of what a product writes for several samples."""
        samples = (self._graph.type_of(product.node.outputs[0]).shape or ())[:-2]
        return math.prod(samples) > 1 and product.node.name in self._made.made_heads

    def _join(self, products: Sequence[Unit], ends: bool) -> None:
        """Let products be one kernel; ``ends``: with a Relu of each.

        Those of floats are none if one dequantizes its weight, but for the last one, whose weight
        another kernel makes floats of then (55 small graphs of two and three products).
        """
        last = products[-1]
        if len(products) > 1 and last.dequantizes and not (ends or last.integers):
            last.dequantizes, last.unpacks_weight = False, True
        for product in products:
            product.cast_behind = len(products) > 1 and self._is_cast(product)
            if product is not products[0]:
                self._groups.merge(products[0].group, product.group)

    def _fuse_epilogues(self) -> None:
        before = self._groups.find_dependences()
        epilogues = Epilogues(
            self._made,
            self._groups.units,
            self.groups,
            before,
            self._gates,
            self._joins.joins_floats,
        )
        for unit in self._groups.units:
            if unit.role == "norm":
                for other in epilogue_of_norm(self._made, unit):
                    self._groups.merge(unit.group, other.group)
                continue
            alone = len(self.groups[unit.group]) == 1
            behind = self._relu_behind(unit)
            if behind and (len(behind) > 1 or unit.dequantizes or not alone):
                for other in behind:
                    self._groups.merge(unit.group, other.group)
            elif (
                unit.role == "product"
                and not (unit.leaves_sums or unit.dequantizes)
                and alone
                and not self._made.is_mha(unit)
            ):
                for other in epilogues.of_product(unit):
                    self._groups.merge(unit.group, other.group)

    def _relu_behind(self, product: Unit) -> tuple[Unit, ...]:
        """The Relu that alone reads what a product computes in float, with views before it.

        Products of one tensor that all end so are one kernel with their Relus, and none with others
        (35 small graphs).
        """
        if product.role != "product" or product.integers or self._made.is_mha(product):
            return ()
        chain = [product]
        while chain[-1].node.op != "Relu":
            behind = [r for edge, r in chain[-1].readers if edge not in self._form.scales]
            if not len(behind) == len(chain[-1].readers) == 1:
                return ()
            turned = behind[0].role == "move" and order_of(self._graph, behind[0].node) == SWAPPED
            if behind[0].node.op not in ("Relu", *VIEWS) and not turned:
                return ()
            chain += behind
        return tuple(chain[1:])

    def _turn_maps(self) -> None:
        """Store maps of prepared kernels otherwise, once, for what sums over their places.

        Large ones by a kernel of its own, others in that of all sums.
        """
        made: dict[str, Unit] = {}
        ordered: list[Unit] = []
        for unit in self._groups.units:
            for edge, writer in list(unit.reads):
                if writer is None or not self._is_turned(edge, writer, unit, made):
                    continue
                if edge.tensor not in made:
                    move = Unit(0, writer.node, "move", False, (edge.tensor,), names=())
                    move.alone = self.sums.is_of_large_map(unit)
                    self._groups.start(move)
                    self._made.link(edge, writer, move)
                    made[edge.tensor] = move
                    ordered.append(move)
                self._made.relink(unit, edge, made[edge.tensor])
            ordered.append(unit)
        self._groups.reorder(ordered)

    def _is_turned(self, edge: Edge, writer: Unit, unit: Unit, made: Mapping[str, Unit]) -> bool:
        """Whether ``unit`` sums over the places of a map, which is large or summed twice."""
        if edge in self._form.scales or not self._groups.writes_map(edge.tensor, writer):
            return False
        floats = [r for e, r in writer.readers if e not in self._form.scales]
        sums = [r for r in floats if r.role == "reduce" and sums_places(self._graph, r.node)]
        return unit in sums and (
            len(sums) > 1 or edge.tensor in made or self.sums.is_of_large_map(unit)
        )

    def is_cut(self, unit: Unit) -> bool:
        """Whether a prepared kernel multiplies by a weight of an odd number of columns."""
        if unit.role != "product" or unit.integers or unit.node.op != "MatMul":
            return False
        columns = (self._graph.type_of(unit.node.outputs[0]).shape or (0,))[-1]
        weight = weight_input(self._graph, unit.node)
        weighted = weight is not None and not has_heads(self._graph, weight)
        return weighted and len(self.groups[unit.group]) == 1 and columns % 2 == 1
