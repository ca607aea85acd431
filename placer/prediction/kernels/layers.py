"""The layers that kernels are in a plan: their nodes, names and conversions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from placer.graph import Edge, Node
from placer.plan import Kind, Layer, Port
from placer.plan.dtypes import is_quantized
from placer.prediction.kernels.copies import Copies, conversion
from placer.prediction.kernels.factors import number
from placer.prediction.kernels.fusion import Kernels
from placer.prediction.kernels.moves import Moves
from placer.prediction.kernels.names import KernelNames, squeezes
from placer.prediction.kernels.parts import CONVS, PRODUCTS, Unit, is_padded
from placer.prediction.kernels.ports import KernelPorts
from placer.prediction.kernels.units import Units
from placer.prediction.kernels.views import FEW, is_matrix_conv, keeps_all
from placer.prediction.layers.claims import FLOAT
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.motion import Scale

_MATRIX_RANK = 2


class KernelLayers:
    """The layers of one placement; ``base`` and ``integer``: ONNX names of the engine's types."""

    def __init__(self, units: Units, kernels: Kernels, base: str, integer: str) -> None:
        self._units, self._kernels = units, kernels
        self._graph, self._form = units.graph, units.form
        self._groups = kernels.groups
        self._base = base
        self._ports = KernelPorts(units, kernels, base, integer)
        self._names = KernelNames(units, kernels)
        self._weights_made: set[tuple[str, Scale]] = set()  # Shared weights are dequantized once.
        self._moves = Moves(units, kernels, self._names)
        self._copies = Copies(units, kernels, self._ports, self._names, base)

    def layers(self) -> Iterator[PredictedLayer]:
        """The kernels in the order of their last units."""
        groups = [sorted(g, key=lambda unit: unit.index) for g in self._groups.values()]
        for units in sorted(groups, key=lambda group: group[-1].index):
            yield from self._cleared(units)
            if all(unit.role in ("quantize", "pair") for unit in units):
                yield self._quantize(units)
                for unit in units:
                    yield from self._copies.of_integers(unit)
            elif self._moves.only_cast(units) or self._moves.only_turn(units):
                yield self._named_cast(units) or self._cast(units)
                yield from (copy for unit in units for copy in self._copies.before_pools(unit))
            elif self._moves.quantize_turned(units):
                yield from self._quantized_view(units)
            elif not self._moves.are_gone(units):
                yield from self._weights(units)
                yield from self._copies.for_depthwise(units)
                yield from self._copies.for_matrices(units)
                yield from self._kernel(units)
                yield from self._reordered(units)
            elif all(self._moves.is_view(unit) for unit in units):
                yield from self._quantized_view(units)
            else:
                yield from (copy for unit in units for copy in self._copies.of_integers(unit))

    def _named_cast(self, units: Sequence[Unit]) -> PredictedLayer | None:
        """The cast of a graph output that is called after a node: of sums, or of what is reshaped.

        Sums are written for it without their dimensions; see ``_reshapes`` for views.
        """
        writer = units[0].reads[0][1]
        if not any(edge.is_graph_output for edge, _ in units[-1].reads):
            return None
        views = [u.node for u in units if u.role != "cast"] or list(units[0].views)
        if writer is not None and len(units) == 1 and writer.works and squeezes(writer.node):
            node = writer.node
        elif writer is not None and views and self._reshapes(views, writer):
            node = views[-1]
        else:
            return None
        (edge, given), made = next(iter(self._ports.inputs(units))), self._ports.outputs(units)
        layer = Layer(f"cast {node.name}", "Generated", (node.name,), (given,), tuple(made))
        return PredictedLayer(layer, (), None, (edge,))

    def _reshapes(self, views: Sequence[Node], writer: Unit) -> bool:
        """Whether a kernel that casts what ``writer`` makes moves it to the shape of ``views``.

        Not if a product of matrices wrote it, with a Relu at most or a bias for each column of one
        matrix, and not if dimensions of one are all that come or go of a map, or all that its
        channels or places are (60 small graphs), or if the places of a prepared kernel's map are
        flattened (100).
        """
        given, made = (
            self._graph.type_of(tensor).shape or ()
            for tensor in (views[0].inputs[0], views[-1].outputs[0])
        )
        kernel = self._groups[writer.group]
        if self._is_plain_product(kernel, to_rows=len(given) == _MATRIX_RANK < len(made)):
            return False
        if any(view.op == "Transpose" and not keeps_all(self._graph, view) for view in views):
            return True
        if writer.role != "pool" and not any(unit.node.op in CONVS for unit in kernel):
            return True
        prepared = writer.role == "pool" or self._kernels.is_prepared(kernel)
        if prepared and _flattens_places(given, made):
            return False
        alike = [size for size in given if size != 1] == [size for size in made if size != 1]
        return not (alike or {1} in (set(given[1:2]), set(given[2:])))

    def _is_plain_product(self, kernel: Sequence[Unit], to_rows: bool) -> bool:
        """Whether it multiplies matrices, with Relus behind or, ``to_rows``, one operator."""
        product, *behind = sorted(kernel, key=lambda unit: unit.index)
        if product.role != "product":
            return False
        if product.node.op not in PRODUCTS and not is_matrix_conv(self._graph, product.node):
            return False
        return all(unit.node.op == "Relu" for unit in behind) or (to_rows and len(behind) == 1)

    def _cast(self, units: Sequence[Unit]) -> PredictedLayer:
        """A kernel that does nothing but make other types of a tensor.

        One that writes integers, too, quantizes.
        """
        edge, given = next(iter(self._ports.inputs(units)))
        return self._conversion_of(edge, given, _integers_first(self._ports.outputs(units)))

    def _conversion_of(self, edge: Edge, given: Port, made: Port) -> PredictedLayer:
        kinds: Mapping[tuple[bool, bool], Kind] = {
            (False, True): "quantize",
            (True, False): "dequantize",
        }
        integers = is_quantized(given.dtype), is_quantized(made.dtype)
        edge = edge._replace(tensor=given.tensor)
        return conversion(kinds.get(integers, "reformat"), edge, given.dtype, made.dtype)

    def _reordered(self, units: Sequence[Unit]) -> Iterator[PredictedLayer]:
        """What cuts out the channels of a ConvTranspose that leave the graph."""
        casts = [unit for unit in units if unit.role == "cast"]
        for cast in casts if any(is_padded(self._graph, unit) for unit in units) else ():
            yield conversion("reformat", cast.reads[0][0], FLOAT, FLOAT)

    def _quantized_view(self, units: Sequence[Unit]) -> Iterator[PredictedLayer]:
        """The kernel that quantizes floats for what reads views of them; it is of no node."""
        given = self._ports.inputs(units)
        floats = [(e, port) for e, port in given if port.dtype in (self._base, FLOAT)]
        integers = [port for port in self._ports.outputs(units) if is_quantized(port.dtype)]
        if floats and integers:
            yield self._conversion_of(*floats[0], integers[0])

    def _quantize(self, units: Sequence[Unit]) -> PredictedLayer:
        """What quantizes one tensor; ``units``: one for each scale."""
        first, *others = map(self._quantized, units)
        outputs = (port for made in (first, *others) for port in made.layer.outputs)
        layer = replace(first.layer, outputs=tuple(outputs))
        edges = (edge for made in (first, *others) for edge in made.edges)
        return replace(first, layer=layer, edges=tuple(edges))

    def _quantized(self, unit: Unit) -> PredictedLayer:
        ((edge, _writer),) = unit.reads
        read = next((other for other, _ in unit.readers), edge)
        integer = self._ports.integer_at(read)
        if not any(unit.writes_integers(reader) for _, reader in unit.readers):
            integer = self._base
        if edge.tensor in self._graph.producer:
            return conversion("quantize", edge, self._base, integer)
        stored = self._units.stored.get(edge.tensor)
        # Integers that enter are laid out anew for the Conv that reads them.
        kind: Kind = "quantize" if stored is None else "reformat"
        return conversion(kind, edge, stored or FLOAT, integer)

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
        """Kernels that dequantize weights: of Convs that read floats, of joint products."""
        for unit in units:
            if unit.unpacks_weight:
                made = (Port(self._base, tensor=unit.node.inputs[1]),)
                name = f"weight of {unit.node.name}"
                layer = Layer(name, "Generated", (unit.node.name,), (), made)
                yield PredictedLayer(layer, (), None, ())
        for edge in self._dequantized(units):
            weight = edge.tensor, self._form.scales[edge]
            reads = [w for u in units if u.node.op == "Conv" for _, w in u.reads if w is not None]
            padded = [writer for writer in reads if writer.pads_floats]
            if padded:  # With its channels, by a kernel that has a name.
                names = tuple(node.name for node in self._names.named(padded[0]))
                made = (Port(self._base, tensor=edge.tensor),)
                layer = Layer(f"weight {edge.tensor}", "Generated", names, (), made)
                yield PredictedLayer(layer, (), None, ())
            elif weight not in self._weights_made:
                self._weights_made.add(weight)
                yield conversion("dequantize", edge, self._ports.integer_at(edge), self._base)

    def _dequantized(self, units: Sequence[Unit]) -> Iterator[Edge]:
        for unit in units:
            if unit.role == "product" and unit.node.op in CONVS and not unit.integers:
                edge = Edge(unit.node.inputs[1], unit.node.name, 1)
                if edge in self._form.scales:
                    yield edge

    def _kernel(self, units: Sequence[Unit]) -> Iterator[PredictedLayer]:
        reads = list(self._ports.inputs(units))
        nodes = tuple(dict.fromkeys(n for u in units for n in (*self._names.named(u), *u.views)))
        works = tuple(dict.fromkeys(n for u in units if u.works for n in self._units.nodes_of(u)))
        outputs = list(self._ports.outputs(units))
        if self._counts(units):
            counts = self._count_port(units)
            reads.append((reads[0][0], counts))
            outputs.append(Port(self._sum_type(units), tensor=f"{counts.tensor}/sums"))
        names = sorted(node.name for node in nodes)
        if self._only_scales(units):
            names = []
        if not names:  # A sum without a bias is only scaled, and quantized.
            edge, port = reads[0]
            made = _integers_first(outputs)
            if self._rounds(units):  # And dequantized for what computes in float.
                edge = edge._replace(tensor=port.tensor)
                yield conversion("quantize", edge, port.dtype, made.dtype)
            else:
                yield self._conversion_of(edge, port, made)
            return
        weights = [Port(self._base, tensor=edge.tensor) for edge in self._dequantized(units)]
        weights += [Port(self._base, tensor=u.node.inputs[1]) for u in units if u.unpacks_weight]
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
            yield from self._copies.before_pools(unit)
            yield from self._copies.of_integers(unit)
            yield from self._copies.of_means(unit)

    def _only_scales(self, units: Sequence[Unit]) -> bool:
        """Whether it multiplies by a number alone before it quantizes, which is one scale."""
        scaled = [unit for unit in units if unit.works]
        if len(scaled) != 1:
            return False
        read = [edge for edge, reader in scaled[0].readers if reader not in units]
        if not read or not all(edge in self._form.scales for edge in read):
            return False
        if any(unit is not scaled[0] and unit.role != "cast" for unit in units):
            return False
        node = scaled[0].node
        scales = node.op == "Mul" and number(self._graph, node) is not None
        return scales and not set(scaled[0].outputs) & set(self._graph.outputs)

    def _rounds(self, units: Sequence[Unit]) -> bool:
        """Whether anything outside reads a pair of what ``units`` make; a cast has its own name."""
        if any(unit.role == "cast" for unit in units):
            return False
        read = [edge for u in units for edge, reader in u.readers if reader not in units]
        return any(edge in self._form.scales for edge in read)

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


def _flattens_places(given: tuple[int, ...], made: tuple[int, ...]) -> bool:
    """Whether all places of each of many channels become one row, of one sample or as a map's.

    The shapes are empty where they are unknown, as behind a plugin.
    """
    if len(given) <= 2 or given[:2] != made[:2] or given[1] <= FEW:
        return False
    row = math.prod(given[2:]) == math.prod(made[2:]) == made[-1]
    return row and (given[0] == 1 or len(made) == len(given))


def _integers_first(ports: Iterable[Port]) -> Port:
    """Any of ``ports`` that has integers, or else the first."""
    return min(ports, key=lambda port: not is_quantized(port.dtype))
