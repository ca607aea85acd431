"""Which units become one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from placer.graph import Edge
from placer.graph.weights import weight_input
from placer.prediction.kernel_units import CONVS, Unit, Units
from placer.prediction.motion import Scale
from placer.prediction.reductions import reduction

# What a prepared convolution kernel does behind the sum, after adding a residual at most; all
# else makes it a generated one.
_ACTIVATIONS = frozenset({"Relu", "Clip", "Sigmoid", "Tanh"})
EPILOGUE = _ACTIVATIONS | {"Add"}
# These compute in FP32, whatever they read, and so begin with a cast of their own.
_CASTS_FIRST = frozenset({"LayerNormalization"})


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
        self._add_quantizers(self.is_float)
        self._before = self._ancestors()
        self._fuse_generated()
        self._add_quantizers(self._quantizes_apart)

    def _join_products(self) -> None:
        """Products of one tensor with weights of one shape are one (queries, keys and values)."""
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
            if not inside or not self._may_end(product, unit) or len(self.groups[unit.group]) > 1:
                continue
            if any(edge in self._form.scales for edge in inside):
                continue
            others = [w for _, w in unit.reads if w is not None and w not in region]
            if any(other.index > product.index for other in others):
                continue
            if unit.outputs and self._graph.type_of(unit.outputs[0]).shape != shape:
                continue
            region.append(unit)
            live = [u for u in region if self._leaves(u, region)]
            if live == [unit]:
                best = len(region)
        chain, prepared = region[1:best], self._prepared(region)
        return prepared if len(prepared) == len(chain) or self._is_pulled(chain[-1]) else chain

    def _may_end(self, product: Unit, unit: Unit) -> bool:
        """Whether a product's kernel does it; a cast only of a single matrix."""
        if unit.role != "cast":
            return unit.role == "pointwise"
        batch = (self._graph.type_of(product.node.outputs[0]).shape or (0, 0))[:-2]
        return product.node.op not in CONVS and math.prod(batch) == 1

    def _prepared(self, region: Sequence[Unit]) -> list[Unit]:
        """What of a region the kernel of a Conv does that nothing is generated for."""
        found: list[Unit] = []
        if region[0].node.op not in CONVS:
            return found
        for unit in region[1:3]:
            sums = unit.node.op == "Add" and not found and len(unit.reads) > 1
            active = unit.node.op in _ACTIVATIONS and all(u.node.op == "Add" for u in found)
            done = [region[0], *found, unit]
            if not (sums or active) or [u for u in done if self._leaves(u, done)] != [unit]:
                break
            found.append(unit)
        return found

    def _is_pulled(self, unit: Unit) -> bool:
        """Whether what follows takes ``unit`` along: a sum, Resize, cast, broadcast, or its Q."""
        shape = self._graph.type_of(unit.node.outputs[0]).shape
        for edge, reader in unit.readers:
            casts = reader.role == "cast" or reader.node.op in _CASTS_FIRST
            if casts and len(unit.readers) == 1:
                return True
            if (reader.role == "reduce" and not casts) or _resizes(reader):
                return True
            if edge in self._form.scales:
                return True
            other = self._graph.type_of(reader.outputs[0]).shape if reader.outputs else shape
            if reader.role == "pointwise" and other != shape:
                return True
        return False

    def _leaves(self, unit: Unit, region: Sequence[Unit]) -> bool:
        if unit.role == "cast":
            return True
        leaves = any(t in self._graph.outputs for t in unit.outputs)
        leaves = leaves and not any(reader.role == "cast" for _, reader in unit.readers)
        return leaves or any(reader not in region for _, reader in unit.readers)

    def _add_quantizers(self, is_apart: Callable[[Unit | None], bool]) -> None:
        """Quantize what ``is_apart`` holds for, once for each scale, before it is read."""
        made: dict[tuple[str, Scale], Unit] = {}
        ordered: list[Unit] = []
        first = min(self.groups, default=0)
        for unit in self._units:
            for edge, writer in list(unit.reads):
                scale = self._form.scales.get(edge)
                if scale is None or not is_apart(writer):
                    continue
                key = (edge.tensor, scale)
                if unit.integers and key not in made:
                    group = min(first, 0) - 1 - len(made)
                    made[key] = Unit(0, unit.node, "quantize", False, group=group)
                    self.groups[made[key].group] = [made[key]]
                    self._made.link(Edge(edge.tensor, "", -2), writer, made[key])
                    ordered.append(made[key])
                if key in made:
                    self._made.relink(unit, edge, made[key])
            ordered.append(unit)
        for index, unit in enumerate(ordered):
            unit.index = index
        self._units = ordered

    def _quantizes_apart(self, writer: Unit | None) -> bool:
        """Whether a mean is not quantized where it is taken: what it is of is written there, too.

        Evidence: squeeze-and-excitation blocks of EfficientNet-B0 and PP-OCR cls.
        """
        if writer is None or writer.role != "reduce" or not writer.generated:
            return False
        group = self.groups[writer.group]
        whole = self._graph.type_of(writer.node.inputs[0]).shape
        if self._graph.type_of(writer.outputs[0]).shape == whole:
            return False
        return any(
            reader not in group and self._graph.type_of(edge.tensor).shape == whole
            for unit in group
            for edge, reader in unit.readers
            if unit is not writer
        )

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
        own = self.groups[writer.group]
        if not all(u.generated for u in own) or writer.group == unit.group:
            return False
        if self.is_in_place(writer) or self.is_in_place(unit):
            return False
        return self._may_fuse(writer, unit)

    def _may_fuse(self, writer: Unit, unit: Unit) -> bool:
        """Whether what is generated of both may be one kernel."""
        own, theirs = self.groups[writer.group], self.groups[unit.group]
        if not all(u.generated for u in (*own, *theirs)):
            return False
        both = (*own, *theirs)
        if sum(_resizes(u) for u in both) > 1:
            return False
        sums = {reduction(self._graph, u.node): u for u in both if u.role == "reduce"}
        if len(sums) > 1 or self._has_other_path(own, theirs):
            return False
        ended = any(u.role == "reduce" for u in own) and any(s.ends_kernel for s in sums)
        return not ended or self._is_spread(writer, unit)

    def is_in_place(self, unit: Unit) -> bool:
        """Whether a Concat is nothing but what is written into one tensor in the first place.

        It is a kernel where its output leaves or is read by what is generated, or where one of its
        inputs is moved besides or joined twice; integers of one scale are joined in place if what
        quantizes them cannot be in one kernel with it.
        """
        if not _is_concat(unit):
            return False
        scales = {self._form.scales.get(edge) for edge, _ in (*unit.reads, *unit.readers)}
        if len(scales) > 1:
            return False
        writers = [writer for _, writer in unit.reads]
        if scales != {None} and any(
            self.is_float(w) or (w is not None and self._may_fuse(w, unit)) for w in writers
        ):
            return False
        if not unit.readers or any(u.generated and not _is_concat(u) for _, u in unit.readers):
            return False
        if any(w and w.role == "move" and not _is_concat(w) for _, w in unit.reads):
            return False
        return len({edge.tensor for edge, _ in unit.reads}) == len(unit.node.inputs)

    def _is_spread(self, writer: Unit, unit: Unit) -> bool:
        """Whether ``unit`` combines sums that ``writer`` makes with what they are made of."""
        if writer.role != "reduce" or unit.role != "pointwise" or not unit.outputs:
            return False
        spread = self._graph.type_of(unit.outputs[0]).shape
        summed = self._graph.type_of(writer.outputs[0]).shape
        return summed != spread == self._graph.type_of(writer.node.inputs[0]).shape

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


def _resizes(unit: Unit) -> bool:
    return unit.role == "move" and unit.node.op == "Resize"
