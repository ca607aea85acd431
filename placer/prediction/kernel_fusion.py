"""Which units become one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from placer.graph import Edge
from placer.prediction.claims import FLOAT
from placer.prediction.kernel_units import CONVS, Unit, Units
from placer.prediction.motion import Scale

# What a prepared convolution kernel does behind the sum; all else makes it a generated one.
EPILOGUE = frozenset({"Add", "Relu", "Clip", "LeakyRelu", "Sigmoid"})


class Kernels:
    """The units of one placement by kernel.

    ``base``: ONNX name of the type of float tensors inside the engine. ``groups``: by number.
    """

    def __init__(self, units: Units, base: str) -> None:
        self._made, self._base = units, base
        self._graph, self._form = units.graph, units.form
        self._units = units.units
        self.groups = {unit.index: [unit] for unit in self._units}
        self._join_products()
        self._fuse_epilogues()
        self._add_quantizers()
        self._before = self._ancestors()
        self._fuse_generated()

    def _join_products(self) -> None:
        """Products of one tensor with weights of one shape are one (queries, keys and values)."""
        known: dict[object, Unit] = {}
        for unit in self._units:
            if unit.role != "product" or unit.node.op != "MatMul" or len(unit.reads) != 1:
                continue
            edge = unit.reads[0][0]
            shape = tuple(self._graph.initializers[unit.node.inputs[1]].dims)
            first = known.setdefault((edge.tensor, shape, unit.integers), unit)
            if first is not unit:
                self._merge(first.group, unit.group)

    def _fuse_epilogues(self) -> None:
        for unit in self._units:
            alone = len(self.groups[unit.group]) == 1
            if (
                unit.role == "product"
                and not unit.integers
                and alone
                and not self._made.is_mha(unit)
            ):
                for other in self._epilogue(unit):
                    self._merge(unit.group, other.group)

    def _epilogue(self, product: Unit) -> list[Unit]:
        """The pointwise nodes that a float product computes itself."""
        region, best = [product], 1
        shape = self._graph.type_of(product.node.outputs[0]).shape
        for unit in self._units[product.index + 1 :]:
            inside = [edge for edge, writer in unit.reads if writer in region]
            if not inside or unit.role != "pointwise" or len(self.groups[unit.group]) > 1:
                continue
            if any(edge in self._form.scales for edge in inside):
                continue
            others = [w for _, w in unit.reads if w is not None and w not in region]
            if any(other.index > product.index for other in others):
                continue
            if self._graph.type_of(unit.outputs[0]).shape != shape:
                continue
            region.append(unit)
            live = [u for u in region if self._leaves(u, region)]
            if live == [unit]:
                best = len(region)
        chain = region[1:best]
        prepared = all(unit.node.op in EPILOGUE for unit in chain)
        if prepared or not (self._is_pulled(chain[-1]) or self._is_cast(product, chain[-1])):
            return chain
        return []

    def _is_cast(self, product: Unit, last: Unit) -> bool:
        """Whether a Conv's result leaves the graph in FP32: the cast takes what is before it."""
        leaves = any(tensor in self._graph.outputs for tensor in last.outputs)
        return leaves and product.node.op in CONVS and self._base != FLOAT

    def _is_pulled(self, unit: Unit) -> bool:
        """Whether what follows takes ``unit`` along: a mean, Resize, broadcast, or its Q."""
        shape = self._graph.type_of(unit.outputs[0]).shape
        for edge, reader in unit.readers:
            if reader.node.op in ("GlobalAveragePool", "Resize") or edge in self._form.scales:
                return True
            other = self._graph.type_of(reader.outputs[0]).shape if reader.outputs else shape
            if reader.role == "pointwise" and other != shape:
                return True
        return False

    def _leaves(self, unit: Unit, region: Sequence[Unit]) -> bool:
        leaves = any(t in self._graph.outputs for t in unit.outputs)
        return leaves or any(reader not in region for _, reader in unit.readers)

    def _add_quantizers(self) -> None:
        """Quantize what no generated kernel writes, once for each scale, before it is read."""
        made: dict[tuple[str, Scale], Unit] = {}
        ordered: list[Unit] = []
        for unit in self._units:
            for edge, writer in list(unit.reads):
                scale = self._form.scales.get(edge)
                if scale is None or not self.is_float(writer):
                    continue
                key = (edge.tensor, scale)
                if unit.integers and key not in made:
                    made[key] = Unit(0, unit.node, "quantize", False, group=-1 - len(made))
                    self.groups[made[key].group] = [made[key]]
                    self._made.link(Edge(edge.tensor, "", -2), writer, made[key])
                    ordered.append(made[key])
                if key in made:
                    self._made.relink(unit, edge, made[key])
            ordered.append(unit)
        for index, unit in enumerate(ordered):
            unit.index = index
        self._units = ordered

    def is_float(self, writer: Unit | None) -> bool:
        """Whether a tensor is written, or given, by what does not quantize it too."""
        if writer is None:
            return True
        product = next((u for u in self.groups[writer.group] if not u.generated), None)
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
        own, theirs = self.groups[writer.group], self.groups[unit.group]
        if not all(u.generated for u in own) or writer.group == unit.group:
            return False
        both = (*own, *theirs)
        if sum(u.role == "reduce" for u in both) > 1 or sum(_resizes(u) for u in both) > 1:
            return False
        return not self._has_other_path(own, theirs)

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


def _resizes(unit: Unit) -> bool:
    return unit.node.op == "Resize"
