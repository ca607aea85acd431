"""What prepared kernels compute behind a product or a norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from placer.graph import Graph
from placer.graph.weights import weight_input
from placer.prediction.kernels.parts import CONVS, Unit
from placer.prediction.kernels.units import Units
from placer.prediction.kernels.views import becomes_map

# What a prepared convolution kernel does behind the sum, after adding a residual at most; all
# else makes it a generated one.
_ACTIVATIONS = frozenset({"Relu", "Clip", "Sigmoid", "Tanh"})
EPILOGUE = _ACTIVATIONS | {"Add"}
# These compute in FP32, whatever they read, and so begin with a cast of their own.
_CASTS_FIRST = frozenset({"LayerNormalization"})


class Epilogues:
    """The units that the kernel of a float product or norm computes as well.

    ``groups``: units by number of their kernel; ``before``: of each unit those that it depends on,
    as bits; ``joins_floats``: whether a unit is a Concat whose parts are written there.
    """

    def __init__(
        self,
        made: Units,
        units: Sequence[Unit],
        groups: Mapping[int, list[Unit]],
        before: Sequence[int],
        joins_floats: Callable[[Unit], bool],
    ) -> None:
        self._joins_floats = joins_floats
        self._made, self._units, self._groups, self._before = made, units, groups, before
        self._graph, self._form = made.graph, made.form

    def of_product(self, product: Unit) -> list[Unit]:
        """The pointwise nodes that a float product computes itself."""
        region, best = [product], 1
        shape = self._graph.type_of(product.node.outputs[0]).shape
        batched = batches(self._graph, product) > 0
        if batched and not self._adds_bias(product):
            return []
        for unit in self._units[product.index + 1 :]:
            inside = [edge for edge, writer in unit.reads if writer in region]
            if not inside or not self._may_end(product, unit) or len(self._groups[unit.group]) > 1:
                continue
            if any(edge in self._form.scales for edge in inside):
                continue
            if batched and (len(inside) < len(unit.reads) or unit.node.op == "Sigmoid"):
                continue
            others = [w for _, w in unit.reads if w is not None and w not in region]
            if any(self._comes_later(other, product) for other in others):
                continue
            if unit.outputs and self._graph.type_of(unit.outputs[0]).shape != shape:
                continue
            region.append(unit)
            live = [u for u in region if self._leaves(u, region)]
            if live == [unit]:
                best = len(region)
        chain, prepared = region[1:best], self._prepared(region)
        if chain and self._writes_beside(product, chain[-1]):
            return prepared
        pulled = bool(chain) and (
            self._is_pulled(chain[-1]) or self._is_shuffled(product, chain[-1])
        )
        return prepared if len(prepared) == len(chain) or pulled else chain

    def _comes_later(self, other: Unit, product: Unit) -> bool:
        """Whether ``other`` is known after ``product`` only: another product, or what reads it.

        What is generated from earlier tensors, such as a Resize, runs before (a feature pyramid).
        """
        if other.index < product.index:
            return False
        return not other.generated or bool(self._before[other.index] >> product.index & 1)

    def _may_end(self, product: Unit, unit: Unit) -> bool:
        """Whether a product's kernel does it; a cast only of a single matrix."""
        if unit.node.op == "PRelu":
            return False
        if unit.role != "cast":  # Pow is computed in FP32; what is only transposed comes later.
            shape = self._graph.type_of(unit.node.outputs[0]).shape or ()
            rows = product.node.op not in CONVS and len(shape) == 3
            turned = rows and {r.node.op for _, r in unit.readers} == {"Transpose"}
            return unit.role == "pointwise" and unit.node.op != "Pow" and not turned
        batch = (self._graph.type_of(product.node.outputs[0]).shape or (0, 0))[:-2]
        return product.node.op not in CONVS and math.prod(batch) == 1

    def _prepared(self, region: Sequence[Unit]) -> list[Unit]:
        """What of a region the kernel of a Conv does that nothing is generated for."""
        found: list[Unit] = []
        if region[0].node.op not in CONVS or region[0].grouped:
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
        """Whether what follows takes ``unit`` along: a sum, Resize, cast, broadcast, or its Q.

        But what is written into a joined tensor is there before (necks of YOLO, 12 small graphs).
        """
        if self._joined_by([reader for _, reader in unit.readers]):
            return False
        shape = self._graph.type_of(unit.node.outputs[0]).shape
        if self._is_quantized_in_parts(unit):
            return True
        if any(becomes_map(self._graph, reader.node) for _, reader in unit.readers):
            return True
        for edge, reader in unit.readers:
            casts = reader.role == "cast" or reader.node.op in _CASTS_FIRST
            if casts and len(unit.readers) == 1:
                return True
            if (reader.role == "reduce" and not casts) or resizes(reader):
                return True
            if edge in self._form.scales:
                return True
            other = self._graph.type_of(reader.outputs[0]).shape if reader.outputs else shape
            if reader.role == "pointwise" and other != shape:
                return True
        return False

    def _writes_beside(self, product: Unit, unit: Unit) -> bool:
        """Whether a Conv reads one part of a joined tensor and ``unit`` writes another one.

        A generated kernel does not read what it writes; prepared ones do (blocks of ELAN, eight
        small graphs).
        """
        if product.node.op not in CONVS:
            return False
        tensors = {edge.tensor for edge, _ in product.reads}
        sources = [w for _, w in product.reads if w is not None]
        readers = [r for w in sources for edge, r in w.readers if edge.tensor in tensors]
        return bool(self._joined_by(readers) & self._joined_by([r for _, r in unit.readers]))

    def _joined_by(self, readers: Sequence[Unit]) -> set[int]:
        """Those of ``readers`` that join floats in place, by index, and what joins them again."""
        found: set[int] = set()
        for reader in readers:
            if self._joins_floats(reader):
                found |= {reader.index, *self._joined_by([r for _, r in reader.readers])}
        return found

    def _is_shuffled(self, product: Unit, unit: Unit) -> bool:
        """Whether the channels of a Conv of groups are shuffled next."""
        readers = [reader for _, reader in unit.readers]
        behind = [r for reader in readers for _, r in reader.readers]
        views = bool(readers) and all(reader.node.op == "Reshape" for reader in readers)
        return product.grouped and views and any(r.node.op == "Transpose" for r in behind)

    def _is_quantized_in_parts(self, unit: Unit) -> bool:
        """Whether only a Split reads it, and whatever reads the parts quantizes them."""
        parts = [reader for _, reader in unit.readers]
        edges = [edge for part in parts for tensor in part.outputs
                 for edge in self._graph.edges_of(tensor)]  # fmt: skip
        splits = bool(parts) and all(part.node.op == "Split" for part in parts)
        return splits and all(edge in self._form.scales for edge in edges)

    def _leaves(self, unit: Unit, region: Sequence[Unit]) -> bool:
        if unit.role == "cast":
            return True
        leaves = any(t in self._graph.outputs for t in unit.outputs)
        leaves = leaves and not any(reader.role == "cast" for _, reader in unit.readers)
        return leaves or any(reader not in region for _, reader in unit.readers)

    def of_norm(self, norm: Unit) -> Sequence[Unit]:
        """Relu behind the kernel of a norm, and behind a GroupNorm's SiLU too unless it is cast."""
        whole = self._made.is_whole_norm(norm)
        readers = [r for e, r in norm.readers if e not in self._form.scales]
        if len(readers) != len(norm.readers) or set(norm.outputs) & set(self._graph.outputs):
            return []
        ops = [reader.node.op for reader in readers]
        if ops == ["Relu"]:
            found = readers
            if not whole and any(self._is_float_product(r) for _, r in found[0].readers):
                return []
        elif whole and sorted(ops) == ["Mul", "Sigmoid"]:
            found = sorted(readers, key=lambda unit: unit.index)
            if [w for _, w in found[1].reads if w not in (norm, found[0])]:
                return []
        else:
            return []
        casts = any(reader.role == "cast" for _, reader in found[-1].readers)
        return [] if whole and casts else found

    def _is_float_product(self, unit: Unit) -> bool:
        return unit.role == "product" and not unit.integers

    def _adds_bias(self, product: Unit) -> bool:
        readers = [reader for _, reader in product.readers]
        return batches(self._graph, product) == 1 and [r.node.op for r in readers] == ["Add"]


def batches(graph: Graph, product: Unit) -> int:
    """How many dimensions before the rows a product of a weight has, but for those of 1.

    Without any its kernel does all that follows, with one what is computed of its rows alone,
    as they are a single matrix there, and with more nothing.
    """
    if product.node.op in CONVS or weight_input(graph, product.node) is None:
        return 0
    shape = graph.type_of(product.node.outputs[0]).shape or ()
    return sum(size > 1 for size in shape[:-2])


def resizes(unit: Unit) -> bool:
    return unit.role == "move" and unit.node.op == "Resize"
