"""The layers that kernels are in a plan: what they read and write, in which types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from placer.graph import Edge, Node
from placer.plan import Kind, Layer, Port
from placer.prediction.claims import FLOAT
from placer.prediction.conversions import PredictedLayer, type_name
from placer.prediction.kernel_fusion import EPILOGUE, Kernels
from placer.prediction.kernel_units import CONVS, VIEWS, Unit, Units


class KernelLayers:
    """The layers of one placement; ``base`` and ``integer``: ONNX names of the engine's types."""

    def __init__(self, units: Units, kernels: Kernels, base: str, integer: str) -> None:
        self._units, self._kernels = units, kernels
        self._graph, self._form = units.graph, units.form
        self._groups = kernels.groups
        self._base, self._integer = base, integer

    def layers(self) -> Iterator[PredictedLayer]:
        """The kernels in the order of their last units."""
        groups = [sorted(g, key=lambda unit: unit.index) for g in self._groups.values()]
        given: set[str] = set()
        for units in sorted(groups, key=lambda group: group[-1].index):
            for tensor, edge in self._given(units).items():
                if tensor not in given:
                    given.add(tensor)
                    yield self._conversion("reformat", edge, FLOAT, self._base)
            if units[0].role == "quantize":
                yield self._quantize(units[0])
            elif not self._is_gone(units):
                yield from self._kernel(units)

    def _given(self, units: Sequence[Unit]) -> Mapping[str, Edge]:
        """FP32 inputs of the graph that a kernel reads in the base type, with an edge each."""
        edges = [e for unit in units if not unit.generated for e, w in unit.reads if w is None]
        graph, converts = self._graph, self._base != FLOAT
        edges = [e for e in edges if converts and type_name(graph, e.tensor) == FLOAT]
        return {edge.tensor: edge for edge in edges if units[0].role != "quantize"}

    def _is_gone(self, units: Sequence[Unit]) -> bool:
        """Whether nothing runs: views, and a Concat that products write into."""
        if all(unit.node.op in VIEWS for unit in units):
            return True
        moves = all(unit.node.op in VIEWS or unit.node.op == "Transpose" for unit in units)
        writers = [w for unit in units for _, w in unit.reads if w not in units]
        quantized = any(edge in self._form.scales for unit in units for edge, _ in unit.reads)
        if (
            moves
            and not quantized
            and all(w is not None and self._units.is_mha(w) for w in writers)
        ):
            return True
        return self._is_in_place(units[0]) if len(units) == 1 else False

    def _is_in_place(self, unit: Unit) -> bool:
        writers = [writer for _, writer in unit.reads]
        leaves = any(tensor in self._graph.outputs for tensor in unit.outputs)
        return (
            unit.node.op == "Concat"
            and not leaves
            and not any(
                writer is None or writer.generated or writer.role == "quantize"
                for writer in writers
            )
        )

    def _quantize(self, unit: Unit) -> PredictedLayer:
        ((edge, _writer),) = unit.reads
        source = self._base if edge.tensor in self._graph.producer else FLOAT
        return self._conversion("quantize", edge, source, self._integer)

    def _conversion(self, kind: Kind, edge: Edge, source: str, target: str) -> PredictedLayer:
        ports = Port(source, tensor=edge.tensor), Port(target, tensor=edge.tensor)
        layer = Layer(f"{kind} {edge.tensor}", "Generated", (), ports[:1], ports[1:], kind)
        return PredictedLayer(layer, (), None, (edge,))

    def _copies(self, unit: Unit) -> Iterator[PredictedLayer]:
        """Copies of what is written into a joined tensor and read elsewhere too."""
        joined = any(self._is_in_place(reader) for _, reader in unit.readers)
        if joined and (unit.role == "pool" or len(unit.readers) > 1):
            edge = next(edge for edge, reader in unit.readers if self._is_in_place(reader))
            dtype = self._edge_type(edge, unit, unit)
            yield self._conversion("reformat", edge, dtype, dtype)

    def _kernel(self, units: Sequence[Unit]) -> Iterator[PredictedLayer]:
        reads = list(self._inputs(units))
        nodes = tuple(dict.fromkeys(n for unit in units for n in self._named(unit)))
        works = tuple(dict.fromkeys(n for u in units if u.works for n in self._nodes(u)))
        outputs = list(self._outputs(units))
        names = sorted(node.name for node in nodes)
        if not names:  # A sum without a bias is only scaled, and quantized.
            edge, port = reads[0]
            yield self._conversion("quantize", edge, port.dtype, outputs[0].dtype)
            return
        product = next((u for u in units if not u.generated), None)
        op = product.node.op if product else "Generated"
        layer = Layer(
            name=self._name(names, units, product is None),
            op=op,
            nodes=tuple(names),
            inputs=tuple(dict.fromkeys(port for _, port in reads)),
            outputs=tuple(dict.fromkeys(outputs)),
        )
        leaves = [port for port in outputs if port.dtype != self._base and self._is_prepared(units)]
        leaves = [port for port in leaves if port.tensor in self._graph.outputs]
        if leaves:
            own = tuple(dict.fromkeys(replace(p, dtype=self._base) for p in outputs))
            layer = replace(layer, outputs=own)
        yield PredictedLayer(layer, works, None, tuple(edge for edge, _ in reads))
        for port in leaves:
            edge = Edge(port.tensor, "", self._graph.outputs.index(port.tensor))
            yield self._conversion("reformat", edge, self._base, port.dtype)
        if product is not None:
            yield from self._copies(next(u for u in reversed(units)))

    def _name(self, names: Sequence[str], units: Sequence[Unit], is_generated: bool) -> str:
        """The nodes, and of a generated kernel what it is, as others may have the same nodes."""
        kind = ""
        if is_generated:
            kind = "generated " if any(unit.works for unit in units) else "scale "
            if not units[-1].works and units[-1].role == "move":
                kind = "pad "
        return f"{kind}{'+'.join(names)}"

    def _is_prepared(self, units: Sequence[Unit]) -> bool:
        """Whether the kernel is one of a library, which converts nothing."""
        product = next((u for u in units if not u.generated), None)
        if product is None or product.integers:
            return False
        conv = product.role == "pool" or product.node.op in CONVS
        return conv and all(u is product or u.node.op in EPILOGUE for u in units)

    def _nodes(self, unit: Unit) -> Sequence[Node]:
        return self._units.whole[unit.node.name] if self._units.is_mha(unit) else (unit.node,)

    def _named(self, unit: Unit) -> Sequence[Node]:
        """The nodes that the builder names; padding is named after the whole kernel it is for."""
        writer = unit.reads[0][1] if unit.reads else None
        if unit.node.op == "HardSigmoid" and writer is not None and writer.group != unit.group:
            # The bias of the product is added with the constant of the HardSigmoid.
            return (unit.node, writer.node) if not writer.generated else (unit.node,)
        if not unit.works and unit.role == "pointwise" and unit.node.op == "Conv":
            return (unit.node,) if len(unit.node.inputs) > 2 and unit.node.inputs[2] else ()
        if unit.works or unit.role != "move":
            return self._nodes(unit)
        reader = unit.readers[0][1]
        units = self._groups[reader.group]
        return tuple(u.node for u in units) if self._is_prepared(units) else (unit.node,)

    def _inputs(self, units: Sequence[Unit]) -> Iterator[tuple[Edge, Port]]:
        for unit in units:
            for edge, writer in unit.reads:
                if writer is None:
                    yield edge, Port(self._given_type(edge, unit), tensor=edge.tensor)
                elif writer not in units:
                    tensor = self._units.shaped_as.get(edge.tensor, edge.tensor)
                    yield edge, Port(self._edge_type(edge, writer, unit), tensor=tensor)

    def _outputs(self, units: Sequence[Unit]) -> Iterator[Port]:
        for unit in units:
            for edge, reader in unit.readers:
                if reader not in units:
                    tensor = self._units.shaped_as.get(edge.tensor, edge.tensor)
                    yield Port(self._edge_type(edge, unit, reader), tensor=tensor)
            for tensor in unit.outputs:
                if tensor in self._graph.outputs:
                    yield Port(type_name(self._graph, tensor), tensor=tensor)

    def _given_type(self, edge: Edge, reader: Unit) -> str:
        dtype = type_name(self._graph, edge.tensor)
        return dtype if reader.generated or dtype != FLOAT else self._base

    def _edge_type(self, edge: Edge, writer: Unit, reader: Unit) -> str:
        """The type in which a tensor passes from one kernel to another."""
        if writer.integers and edge.input_index < 0:
            return FLOAT if writer.node.op in CONVS else self._base
        dtype = self._graph.type_of(edge.tensor)
        if edge.tensor in self._graph.types and not dtype.is_float:
            return type_name(self._graph, edge.tensor)
        if writer.role == "quantize":
            return self._integer
        scale = self._form.scales.get(edge)
        if scale is None or self._kernels.is_float(writer):
            return self._base
        return self._integer if reader.integers or self._is_passed_on(edge, writer) else self._base

    def _is_passed_on(self, edge: Edge, writer: Unit) -> bool:
        """Whether a pair's float readers dequantize: its DQ is one node, in one kernel.

        It lies in the kernel that quantizes if a reader does, or if a float product reads it.
        """
        scale = self._form.scales[edge]
        sharing = [
            reader
            for other, reader in writer.readers
            if other.tensor == edge.tensor and self._form.scales.get(other) == scale
        ]
        floats = [reader for reader in sharing if not reader.integers]
        return all(r.generated and r.group != writer.group for r in floats)
