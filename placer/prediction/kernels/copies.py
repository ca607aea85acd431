"""Copies of tensors, which kernels make where others cannot read them as they lie in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from placer.graph import Edge
from placer.plan import Kind, Layer, Port
from placer.prediction.kernels.fusion import Kernels
from placer.prediction.kernels.names import KernelNames
from placer.prediction.kernels.parts import CONVS, MAP_RANK, Unit
from placer.prediction.kernels.ports import KernelPorts
from placer.prediction.kernels.reductions import is_map, reduction_axes
from placer.prediction.kernels.units import Units
from placer.prediction.kernels.views import is_matrix_conv
from placer.prediction.layers.conversions import PredictedLayer


def conversion(kind: Kind, edge: Edge, source: str, target: str) -> PredictedLayer:
    """The layer, of no node, that makes the type ``target`` of ``source``, which ``edge`` reads."""
    ports = Port(source, tensor=edge.tensor), Port(target, tensor=edge.tensor)
    layer = Layer(f"{kind} {edge.tensor}", "Generated", (), ports[:1], ports[1:], kind)
    return PredictedLayer(layer, (), None, (edge,))


class Copies:
    """The copies that the kernels of one placement need; ``base``: the type of floats."""

    def __init__(
        self, units: Units, kernels: Kernels, ports: KernelPorts, names: KernelNames, base: str
    ) -> None:
        self._graph, self._form = units.graph, units.form
        self._kernels, self._ports, self._names, self._base = kernels, ports, names, base
        self._as_matrices: set[str] = set()  # Joined tensors that are read as matrices.

    def before_pools(self, unit: Unit) -> Iterator[PredictedLayer]:
        """Copies of what is joined in place: pooling neither reads nor writes parts of tensors.

        What a pool reads in another type than is joined is no part; see ``of_integers`` as well.
        Parts of a single place lie together anyway.
        """
        joined = [e for e, reader in unit.readers if self._kernels.is_in_place(reader)]
        floats = {e.tensor for e in joined if e not in self._form.scales}
        pooled = any(
            r.role == "pool" and e.tensor in floats and e not in self._form.scales
            for e, r in unit.readers
        )
        shape = self._graph.type_of(joined[0].tensor).shape if joined else None
        if shape and math.prod(shape[2:]) > 1 and (unit.role == "pool" or pooled):
            dtype = self._ports.edge_type(joined[0], unit, unit)
            yield conversion("reformat", joined[0], dtype, dtype)

    def of_integers(self, unit: Unit) -> Iterator[PredictedLayer]:
        """Copies of what it writes into joined integers for what reads that besides.

        All products read one copy, and pools another. What a pool writes is copied anyway.
        """
        joined = [edge for edge, reader in unit.readers if self._kernels.is_in_place(reader)]
        if unit.role == "pool":
            return
        scales = self._form.scales
        for edge in (e for e in joined if e in scales):
            shared = [
                r
                for e, r in unit.readers
                if e.tensor == edge.tensor and scales.get(e) == scales[edge]
            ]
            for _ in {reader.role == "pool" for reader in shared if reader.integers}:
                integer = self._ports.integer_at(edge)
                yield conversion("reformat", edge, integer, integer)

    def of_means(self, unit: Unit) -> Iterator[PredictedLayer]:
        """The copy of means over the rows or columns of a map for float Convs that read them.

        Their channels are stored last then, as those of maps are (six small graphs).
        """
        if unit.role != "reduce" or reduction_axes(self._graph, unit.node) not in ((2,), (3,)):
            return
        floats = [
            edge
            for edge, reader in unit.readers
            if reader.role == "product"
            and reader.node.op in CONVS
            and edge not in self._form.scales
        ]
        shape = self._graph.type_of(unit.node.inputs[0]).shape or ()
        if floats and len(shape) == MAP_RANK and is_map(self._graph, unit.node.inputs[0]):
            yield conversion("reformat", floats[0], self._base, self._base)

    def for_depthwise(self, units: Sequence[Unit]) -> Iterator[PredictedLayer]:
        """The copy of a part of joined floats that a depthwise Conv reads besides.

        It has the nodes of a kernel that is not generated (ten small graphs).
        """
        product = next((unit for unit in units if unit.depthwise and not unit.integers), None)
        if product is None:
            return
        edge, writer = product.reads[0]
        readers = writer.readers if writer is not None else ()
        parts = [(e, r) for e, r in readers if e.tensor == edge.tensor]
        if not any(self._kernels.is_in_place(r) and e not in self._form.scales for e, r in parts):
            return
        copied = units if self._kernels.is_prepared(units) else (product,)
        names = tuple(sorted(node.name for u in copied for node in self._names.named(u)))
        made = (Port(self._base, tensor=edge.tensor),)
        layer = Layer(f"copy for {names[0]}", "Generated", names, made, made)
        yield PredictedLayer(layer, (), None, ())

    def for_matrices(self, units: Sequence[Unit]) -> Iterator[PredictedLayer]:
        """The copy of what is joined in place for the 1x1 Convs that read it as a matrix.

        All of them read one copy. Those that add another map are no matrix products (20
        small graphs, as necks of YOLO and blocks of DenseNet).
        """
        behind = [unit for unit in units if unit.generated]
        if any(unit.node.op == "Add" for unit in behind):
            return
        for unit in units:
            if unit.role != "product" or not is_matrix_conv(self._graph, unit.node):
                continue
            edge, writer = unit.reads[0]
            floats = edge not in self._form.scales and edge.tensor not in self._as_matrices
            if floats and writer is not None and self._kernels.is_in_place(writer):
                self._as_matrices.add(edge.tensor)
                yield conversion("reformat", edge, self._base, self._base)
