"""The layers that kernels are in a plan: what they read and write, in which types."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from onnx import numpy_helper

from placer.graph import Edge, Graph, Node
from placer.graph.weights import weight_input
from placer.plan import Kind, Layer, Port
from placer.prediction.claims import FLOAT
from placer.prediction.conversions import PredictedLayer, type_name
from placer.prediction.kernel_epilogues import EPILOGUE
from placer.prediction.kernel_fusion import Kernels
from placer.prediction.kernel_units import CONVS, CUT, NORMED, VIEWS, Unit, Units
from placer.prediction.motion import Scale

_SMALLEST_NORMAL = 2.0**-14  # Of FP16.


class KernelLayers:
    """The layers of one placement; ``base`` and ``integer``: ONNX names of the engine's types."""

    def __init__(self, units: Units, kernels: Kernels, base: str, integer: str) -> None:
        self._units, self._kernels = units, kernels
        self._graph, self._form = units.graph, units.form
        self._groups = kernels.groups
        self._base, self._integer = base, integer
        self._weights_made: set[tuple[str, Scale]] = set()  # Shared weights are dequantized once.

    def layers(self) -> Iterator[PredictedLayer]:
        """The kernels in the order of their last units."""
        groups = [sorted(g, key=lambda unit: unit.index) for g in self._groups.values()]
        for units in sorted(groups, key=lambda group: group[-1].index):
            yield from self._moved_parts(units[0])
            yield from self._cleared(units)
            if units[0].role == "quantize":
                yield self._quantize(units[0])
            elif all(unit.role == "cast" for unit in units) or self._only_turns(units):
                yield self._cast(units)
            elif not self._is_gone(units):
                yield from self._weights(units)
                yield from self._kernel(units)

    def _cast(self, units: Sequence[Unit]) -> PredictedLayer:
        """A kernel that does nothing but make another type of a tensor."""
        edge, given = next(iter(self._inputs(units)))
        return self._conversion_of(edge, given, next(iter(self._outputs(units))))

    def _only_turns(self, units: Sequence[Unit]) -> bool:
        """Whether heads that a product of activations wrote become rows again: of no node."""
        if not any(u.node.op == "Transpose" for u in units):
            return False
        if not all(u.node.op in VIEWS or u.node.op == "Transpose" for u in units):
            return False
        if any(e in self._form.scales for u in units for e, _ in (*u.reads, *u.readers)):
            return False
        writers = [w for u in units for _, w in u.reads if w not in units]
        readers = [r for u in units for _, r in u.readers if r not in units]
        products = bool(readers) and all(reader.role == "product" for reader in readers)
        return products and all(w is not None and self._mixes(w) for w in writers)

    def _mixes(self, unit: Unit) -> bool:
        """Whether it is a float product of activations that is no whole attention."""
        product = unit.role == "product" and self._multiplies_activations(unit)
        return product and not unit.integers and not self._units.is_mha(unit)

    def _conversion_of(self, edge: Edge, given: Port, made: Port) -> PredictedLayer:
        kinds: Mapping[tuple[bool, bool], Kind] = {
            (False, True): "quantize",
            (True, False): "dequantize",
        }
        integers = given.dtype == self._integer, made.dtype == self._integer
        edge = edge._replace(tensor=given.tensor)
        return self._conversion(kinds.get(integers, "reformat"), edge, given.dtype, made.dtype)

    def _is_gone(self, units: Sequence[Unit]) -> bool:
        """Whether nothing runs: views, and a Concat that products write into."""
        if any(unit.role == "cast" or unit.names is not None for unit in units):
            return False
        if any(reader.alone for unit in units for _, reader in unit.readers):
            return False
        if all(unit.node.op in VIEWS for unit in units):
            return True
        moves = all(unit.node.op in VIEWS or unit.node.op == "Transpose" for unit in units)
        writers = [w for unit in units for _, w in unit.reads if w not in units]
        quantized = any(edge in self._form.scales for unit in units for edge, _ in unit.reads)
        if (
            moves
            and (not quantized or all(w is not None and w.integers for w in writers))
            and all(w is not None and self._units.is_mha(w) for w in writers)
        ):
            return True
        return self._kernels.is_in_place(units[0])

    def _quantize(self, unit: Unit) -> PredictedLayer:
        ((edge, _writer),) = unit.reads
        source = self._base if edge.tensor in self._graph.producer else FLOAT
        return self._conversion("quantize", edge, source, self._integer)

    def _conversion(self, kind: Kind, edge: Edge, source: str, target: str) -> PredictedLayer:
        ports = Port(source, tensor=edge.tensor), Port(target, tensor=edge.tensor)
        layer = Layer(f"{kind} {edge.tensor}", "Generated", (), ports[:1], ports[1:], kind)
        return PredictedLayer(layer, (), None, (edge,))

    def _copies(self, unit: Unit) -> Iterator[PredictedLayer]:
        """Copies of what is joined in place: pooling neither reads nor writes parts of tensors."""
        joined = any(self._kernels.is_in_place(reader) for _, reader in unit.readers)
        if joined and "pool" in (unit.role, *(reader.role for _, reader in unit.readers)):
            edge = next(edge for edge, reader in unit.readers if self._kernels.is_in_place(reader))
            dtype = self._edge_type(edge, unit, unit)
            yield self._conversion("reformat", edge, dtype, dtype)

    def _moved_parts(self, joined: Unit) -> Iterator[PredictedLayer]:
        """Copies of parts of joined integers for the products that read them besides."""
        for edge, writer in joined.reads if joined.in_place else ():
            scale = self._form.scales.get(edge)
            readers = writer.readers if writer is not None else ()
            if any(r.integers and self._form.scales.get(e) == scale for e, r in readers):
                yield self._conversion("reformat", edge, self._integer, self._integer)

    def _cleared(self, units: Sequence[Unit]) -> Iterator[PredictedLayer]:
        """What clears the memory that a kernel counts its blocks of threads in."""
        if self._counts(units):
            counts = (self._count_port(units),)
            layer = Layer(f"clear {counts[0].tensor}", "Generated", (), (), counts, "reformat")
            yield PredictedLayer(layer, (), None, ())

    def _counts(self, units: Sequence[Unit]) -> bool:
        """Whether its blocks of threads sum together: a GroupNorm in one kernel, long sums."""
        return self._units.is_whole_norm(units[0]) or self._kernels.sums.is_shared(units)

    def _count_port(self, units: Sequence[Unit]) -> Port:
        return Port("int32", tensor=f"{next(u for u in units if u.outputs).outputs[0]}/counts")

    def _weights(self, units: Sequence[Unit]) -> Iterator[PredictedLayer]:
        """Kernels that dequantize the weight of a Conv that does not read integers."""
        for edge in self._dequantized(units):
            weight = edge.tensor, self._form.scales[edge]
            if weight not in self._weights_made:
                self._weights_made.add(weight)
                yield self._conversion("dequantize", edge, self._integer, self._base)

    def _dequantized(self, units: Sequence[Unit]) -> Iterator[Edge]:
        for unit in units:
            if unit.role == "product" and unit.node.op in CONVS and not unit.integers:
                edge = Edge(unit.node.inputs[1], unit.node.name, 1)
                if edge in self._form.scales:
                    yield edge

    def _kernel(self, units: Sequence[Unit]) -> Iterator[PredictedLayer]:
        reads = list(self._inputs(units))
        nodes = tuple(dict.fromkeys(n for u in units for n in (*self._named(u), *u.views)))
        works = tuple(dict.fromkeys(n for u in units if u.works for n in self._nodes(u)))
        outputs = list(self._outputs(units))
        if self._counts(units):
            counts = self._count_port(units)
            reads.append((reads[0][0], counts))
            outputs.append(Port(self._sum_type(units), tensor=f"{counts.tensor}/sums"))
        names = sorted(node.name for node in nodes)
        if not names:  # A sum without a bias is only scaled, and quantized.
            edge, port = reads[0]
            yield self._conversion_of(edge, port, outputs[0])
            return
        weights = [Port(self._base, tensor=edge.tensor) for edge in self._dequantized(units)]
        product = next((u for u in units if not u.generated), None)
        op = product.node.op if product else "Generated"
        layer = Layer(
            name=self._name(names, units, product is None),
            op=op,
            nodes=tuple(names),
            inputs=tuple(dict.fromkeys([port for _, port in reads] + weights)),
            outputs=tuple(dict.fromkeys(outputs)),
        )
        yield PredictedLayer(layer, works, None, tuple(edge for edge, _ in reads))
        for unit in units:
            yield from self._copies(unit)

    def _sum_type(self, units: Sequence[Unit]) -> str:
        """The type that what blocks of threads sum up for themselves is written in."""
        maxima = {"GlobalMaxPool", "ReduceMax", "ReduceMin"}
        return self._base if any(u.node.op in maxima for u in units) else FLOAT

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
        if unit.names is not None:
            return unit.names
        if unit.role == "cast":
            return ()
        writer = unit.reads[0][1] if unit.reads else None
        if writer is not None and self._takes_bias(unit, writer):
            return (unit.node, writer.node)
        if not unit.works and unit.role == "pointwise" and unit.node.op == "Conv":
            return (unit.node,) if len(unit.node.inputs) > 2 and unit.node.inputs[2] else ()
        if not unit.works and unit.role == "pointwise" and self._multiplies_activations(unit):
            return ()
        if unit.node.op == "Transpose" and writer is not None and self._turns_rows(writer):
            return (unit.node, writer.node)
        if unit.generated and self._reshaped(unit):
            return (*self._nodes(unit), *self._reshaped(unit))
        if unit.works or unit.role != "move":
            return self._nodes(unit)
        reader = unit.readers[0][1]
        units = self._groups[reader.group]
        return tuple(u.node for u in units) if self._is_prepared(units) else (unit.node,)

    def _reshaped(self, unit: Unit) -> tuple[Node, ...]:
        """What wrote rows of several batches as one matrix, or a column too many.

        Its name stays with what makes the batches, or cuts the column off.
        """
        writers = [w for _, w in unit.reads if w is not None and w.group != unit.group]
        known = self._kernels
        if unit.node.op in VIEWS:  # The batches are made as the view says.
            return ()
        squeezed = [w for w in writers if unit.role == "reduce" and _squeezes(w.node)]
        if known.sums.is_row_product(unit):
            squeezed = []
        return tuple(
            w.node for w in writers if known.is_flattened(w) or known.is_cut(w) or w in squeezed
        )

    def _turns_rows(self, writer: Unit) -> bool:
        """Whether what a MatMul writes as rows of a matrix is read as a map, which is named so."""
        product = self._groups[writer.group][0]
        rank = len(self._graph.type_of(writer.node.outputs[0]).shape or ())
        weighted = weight_input(self._graph, product.node) is not None
        return weighted and product.node.op == "MatMul" and not product.generated and rank > 3

    def _multiplies_activations(self, unit: Unit) -> bool:
        return unit.node.op == "MatMul" and weight_input(self._graph, unit.node) is None

    def _takes_bias(self, unit: Unit, writer: Unit) -> bool:
        """Whether the bias of a Conv is added with the constant of what scales its result."""
        apart = writer.group != unit.group and writer.node.op in CONVS and not writer.generated
        if writer.node.op == "Gemm" and not writer.generated and len(writer.node.inputs) > 2:
            return self._multiplies_column(unit) and not writer.integers
        scales = unit.node.op in ("HardSigmoid", "Div", "Mul") and len(unit.reads) == 1
        return apart and scales and len(writer.readers) == 1 and not writer.integers

    def _multiplies_column(self, unit: Unit) -> bool:
        """Whether its kernel is the product with a single column, which adds biases before it."""
        products = [u for u in self._groups[unit.group] if u.node.op in ("Gemm", "MatMul")]
        return any(
            u.role == "reduce" and not self._kernels.sums.is_row_product(u) for u in products
        )

    def _inputs(self, units: Sequence[Unit]) -> Iterator[tuple[Edge, Port]]:
        for unit in units:
            for edge, writer in unit.reads:
                if writer is None:
                    yield edge, Port(type_name(self._graph, edge.tensor), tensor=edge.tensor)
                elif writer not in units:
                    tensor = self._units.shaped_as.get(edge.tensor, edge.tensor)
                    yield edge, Port(self._edge_type(edge, writer, unit), tensor=tensor)

    def _outputs(self, units: Sequence[Unit]) -> Iterator[Port]:
        for unit in units:
            for edge, reader in unit.readers:
                if reader not in units:
                    tensor = self._units.shaped_as.get(edge.tensor, edge.tensor)
                    yield Port(self._edge_type(edge, unit, reader), tensor=tensor)
            if unit.role == "cast" and unit.reads[0][0].is_graph_output:
                yield Port(FLOAT, tensor=unit.reads[0][0].tensor)
            cast = {edge.tensor for edge, reader in unit.readers if reader.role == "cast"}
            for tensor in unit.outputs if unit.role != "cast" else ():
                if tensor in self._graph.outputs and tensor not in cast:
                    yield Port(type_name(self._graph, tensor), tensor=tensor)

    def _edge_type(self, edge: Edge, writer: Unit, reader: Unit) -> str:
        """The type in which a tensor passes from one kernel to another."""
        if writer.pools_integers:
            return self._integer
        if edge.input_index == NORMED:
            return FLOAT
        if edge.input_index == CUT:
            passed = self._is_quantized(reader) and self._units.is_mha(writer)
            return self._integer if passed and None not in self._scales(reader) else self._base
        if writer.integers and edge.input_index < 0:
            return FLOAT if writer.node.op in CONVS else self._base
        dtype = self._graph.type_of(edge.tensor)
        if edge.tensor in self._graph.types and not dtype.is_float:
            return type_name(self._graph, edge.tensor)
        if writer.role == "quantize" or reader.pools_integers:
            return self._integer
        if edge not in self._form.scales and self._is_cast(edge.tensor, writer, reader):
            return FLOAT
        if self._kernels.sums.multiplies_row(reader) or self._kernels.quantizes_apart(writer):
            return self._base
        scale = self._form.scales.get(edge)
        if scale is not None and self._units.is_mha(writer) and self._is_quantized(writer):
            return self._integer
        if scale is None or self._kernels.is_float(writer):
            return self._base
        return self._integer if reader.integers or self._is_passed_on(edge, writer) else self._base

    def _is_cast(self, tensor: str, writer: Unit, reader: Unit) -> bool:
        """Whether the reader, or a power in the writer's kernel, needs the tensor in FP32.

        Both kernels are those of one norm then: the reader's takes the sums as well.
        """
        if _adds_tiny(self._graph, reader.node):
            return True
        sums = (w for u in self._groups[reader.group] for _, w in u.reads if w is not None)
        return any(w.role == "reduce" and w.group == writer.group for w in sums) and any(
            edge.tensor == tensor and other.node.op == "Pow" and other.group == writer.group
            for edge, other in writer.readers
        )

    def _scales(self, writer: Unit) -> set[Scale | None]:
        return {self._form.scales.get(edge) for edge, _ in writer.readers}

    def _is_quantized(self, writer: Unit) -> bool:
        """Whether all readers quantize what an attention writes, which it then does itself."""
        return len(self._scales(writer)) == 1

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
        floats = [r for r in sharing if not (r.integers or r.pads_integers)]
        if len(floats) == len(sharing) and self._leaves_float(edge.tensor, writer):
            return False
        return all(r.generated and r.group != writer.group for r in floats)

    def _leaves_float(self, tensor: str, writer: Unit) -> bool:
        """Whether anything reads what is not quantized: floats are there then."""
        return any(
            edge.tensor == tensor and edge not in self._form.scales for edge, _ in writer.readers
        )


def _adds_tiny(graph: Graph, node: Node) -> bool:
    """Whether it adds what FP16 does not hold with all digits, and so is computed in FP32."""
    constants = [graph.initializers[t] for t in node.inputs if t in graph.initializers]
    if node.op != "Add" or not constants or math.prod(constants[0].dims) != 1:
        return False
    return 0 < abs(float(numpy_helper.to_array(constants[0]).ravel()[0])) < _SMALLEST_NORMAL


def _squeezes(node: Node) -> bool:
    """Whether it sums and takes the dimensions away, which is a view of its own."""
    return node.op.startswith("Reduce") and node.attributes.get("keepdims", 1) == 0
