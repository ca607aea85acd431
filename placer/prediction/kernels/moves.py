"""Kernels that only move, turn or cast what others write, of which some are no layers."""

from __future__ import annotations

from collections.abc import Sequence

from placer.graph.transposes import order_of
from placer.prediction.kernels.attention import NARROW, share_heads
from placer.prediction.kernels.fusion import Kernels
from placer.prediction.kernels.names import KernelNames
from placer.prediction.kernels.norms import normalizes_groups
from placer.prediction.kernels.parts import (
    CONVS,
    MAP_RANK,
    PRODUCTS,
    VIEWS,
    Unit,
    has_float_weight,
    multiplies_weight,
)
from placer.prediction.kernels.units import Units
from placer.prediction.kernels.views import SWAPPED, keeps_all, leaves_turned, shapes_map


class Moves:
    """Tells what the units of one kernel do together, where they compute nothing."""

    def __init__(self, units: Units, kernels: Kernels, names: KernelNames) -> None:
        self._units, self._kernels, self._names = units, kernels, names
        self._graph, self._form = units.graph, units.form

    def only_cast(self, units: Sequence[Unit]) -> bool:
        """Whether it only makes other types; what leaves the graph in its shape at that."""
        casts = [unit for unit in units if unit.role == "cast"]
        if not casts or not all(u in casts or u.node.op in VIEWS for u in units):
            return False
        if len(casts) < len(units) and any(unit.node.op == "TopK" for unit in casts):
            return False
        shapes = {self._graph.type_of(edge.tensor).shape for u in casts for edge, _ in u.reads}
        return len(shapes) == 1

    def only_turn(self, units: Sequence[Unit]) -> bool:
        """Whether heads that a product of activations wrote become rows again: of no node.

        So do maps that a Conv's kernel wrote, which are stored otherwise. Of heads that are no
        multiple of eight wide, of what is read twice and of what a Conv reads, or a product that
        writes a map, the kernel has the Transpose's name. So it has if integers are turned for a
        product whose weight has no pair, or quantized behind one that dequantizes (14 graphs).
        """
        if all(map(self.is_view, units)):
            return self._makes_rows(units) and self._keeps_channels(units)
        if not _only_move(units) or self._quantize_floats(units):
            return False
        readers = _readers(units)
        if not readers or not all(map(self._is_plain_product, readers)):
            return False
        if all(map(self._turns_map, units)):
            return True
        wide = all(self._width(unit) % NARROW == 0 for unit in units)
        if not wide or len(readers) > 1 or self._reads_turned(readers[0]):
            return False
        return all(w is not None and self._mixes(w) for w in _writers(units))

    def _quantize_floats(self, units: Sequence[Unit]) -> bool:
        """Whether there is a pair of INT8 that what they read has no scales of its own for."""
        edges = (e for u in units for e, _ in (*u.reads, *u.readers))
        quantized = any(e in self._form.scales and not self._units.is_float8(e) for e in edges)
        return quantized and not all(w and w.scales and not w.dequantizes for w in _writers(units))

    def _is_plain_product(self, reader: Unit) -> bool:
        return reader.role == "product" and not self._has_float_weight(reader)

    def _has_float_weight(self, reader: Unit) -> bool:
        """Whether it reads integers and multiplies them by a weight without a pair."""
        return reader.integers and has_float_weight(self._graph, self._form, reader)

    def quantize_turned(self, units: Sequence[Unit]) -> bool:
        """Whether it quantizes a Conv's map as it makes tokens of it: of no node either.

        So are channels of a graph input of one sample for products, not for Convs (15 small
        graphs).
        """
        if not _only_move(units):
            return False
        turned = [unit for unit in units if unit.node.op == "Transpose"]
        read = [(edge, r) for unit in units for edge, r in unit.readers if r not in units]
        quantized = bool(read) and all(edge in self._form.scales for edge, _ in read)
        casts = [unit for unit in units if unit.role == "cast"]
        if not (turned and quantized and all(u in casts or self._turns_map(u) for u in units)):
            return False
        one = (self._graph.type_of(turned[0].node.inputs[0]).shape or ())[:1] == (1,)
        return not casts or (one and not any(reader.node.op in CONVS for _, reader in read))

    def are_gone(self, units: Sequence[Unit]) -> bool:
        """Whether nothing runs: views, and a Concat that products write into."""
        if any(unit.role == "cast" or unit.names is not None for unit in units):
            return False
        readers = [reader for unit in units for _, reader in unit.readers]
        if any(r.alone and r.node.name not in self._units.of_groups for r in readers):
            return False
        if any(r.role == "reduce" and normalizes_groups(self._graph, r.node) for r in readers):
            return False
        if all(map(self.is_view, units)):
            return not (self._makes_map(units) or self._makes_rows(units))
        return self._are_of_attention(units) or self._kernels.is_in_place(units[0])

    def _are_of_attention(self, units: Sequence[Unit]) -> bool:
        """Whether they only move what whole attentions wrote, in its type.

        For no Conv, nor integers for a product whose weight has no pair.
        """
        writers = _writers(units)
        if not _only_move(units) or not all(w and self._units.is_mha(w) for w in writers):
            return False
        read = [edge for unit in units for edge, _ in unit.reads]
        quantized = any(edge in self._form.scales for edge in read)
        float8 = all(map(self._units.is_float8, read))
        if quantized and not float8 and not all(w and w.integers for w in writers):
            return False
        readers = [reader for unit in units for _, reader in unit.readers]
        return not any(self._has_float_weight(r) or self._reads_turned(r) for r in readers)

    def _reads_turned(self, reader: Unit) -> bool:
        """Whether it needs what it reads as a Transpose stores it: a Conv, or a map's product."""
        return reader.node.op in CONVS or leaves_turned(self._graph, reader.node)

    def is_view(self, unit: Unit) -> bool:
        """Whether all elements stay where they are, as those of a single head that is turned do."""
        node = unit.node
        return node.op in VIEWS or (node.op == "Transpose" and keeps_all(self._graph, node))

    def _turns_map(self, unit: Unit) -> bool:
        """Whether it makes tokens of the channels of a map that a Conv's kernel wrote."""
        if unit.node.op == "Transpose":
            return order_of(self._graph, unit.node) == SWAPPED
        return unit.node.op == "Reshape" and all(
            writer is not None
            and (writer.role == "cast" or self._kernels.writes_map(edge.tensor, writer))
            for edge, writer in unit.reads
        )

    def _width(self, unit: Unit) -> int:
        """Of a head that a Transpose moves; 0 for others."""
        moved = unit.node.outputs[0] if unit.node.op == "Transpose" else ""
        return (self._graph.type_of(moved).shape or (0,))[-1] if moved else 0

    def _mixes(self, unit: Unit) -> bool:
        """Whether it is a float product of activations that is no whole attention."""
        product = unit.role == "product" and self._names.multiplies_activations(unit)
        product = product and not unit.leaves_sums and not share_heads(self._graph, unit.node)
        return product and not self._units.is_mha(unit)

    def _makes_rows(self, views: Sequence[Unit]) -> bool:
        """Whether a kernel moves a map of several channels and places for products with weights.

        Convs and pools store channels last. Products of one row that are generated read the map as
        it is (90 small graphs).
        """
        edge, writer = views[0].reads[0]
        shape = self._graph.type_of(edge.tensor).shape or ()
        if writer is None or not self._kernels.writes_map(edge.tensor, writer):
            return False
        if len(shape) != MAP_RANK or shape[1] == 1 or set(shape[2:]) == {1}:
            return False
        read = [(e, r) for unit in views for e, r in unit.readers if r not in views]
        if any(e in self._form.scales for e in (edge, *(e for e, _ in read))):
            return False
        return bool(read) and all(
            r.role == "product" and multiplies_weight(self._graph, r.node) for _, r in read
        )

    def _keeps_channels(self, views: Sequence[Unit]) -> bool:
        """Whether its places alone are flattened, which is a kernel of no node."""
        given, made = (
            self._graph.type_of(tensor).shape or ()
            for tensor in (views[0].reads[0][0].tensor, views[-1].node.outputs[0])
        )
        return given[:2] == made[:2]

    def _makes_map(self, views: Sequence[Unit]) -> bool:
        """Whether a kernel moves what a product wrote to a map of channels, see ``shapes_map``."""
        writer = views[0].reads[0][1]
        if writer is None or not shapes_map(self._graph, views[-1].node):
            return False
        product = min(self._kernels.groups[writer.group], key=lambda unit: unit.index)
        given, made = (
            self._graph.type_of(tensor).shape or ()
            for tensor in (product.node.outputs[0], views[-1].node.outputs[0])
        )
        return product.node.op in PRODUCTS or (product.node.op in CONVS and given[1:2] != made[1:2])


def _writers(units: Sequence[Unit]) -> list[Unit | None]:
    """What writes to ``units``, for each edge from outside; None: a graph input or constant."""
    return [writer for unit in units for _, writer in unit.reads if writer not in units]


def _readers(units: Sequence[Unit]) -> list[Unit]:
    """What reads of ``units``, for each edge that leaves them."""
    return [reader for unit in units for _, reader in unit.readers if reader not in units]


def _only_move(units: Sequence[Unit]) -> bool:
    return all(unit.node.op in VIEWS or unit.node.op == "Transpose" for unit in units)
