"""Predict the kernels of an engine that generates them: TensorRT-RTX.

Its compiler does not choose among prepared fusions. Convolutions and matrix products are kernels of
their own, what follows them fuses into them where they compute in float, and everything else,
quantizing and dequantizing included, is generated: one kernel for all connected nodes between two
products. A Conv that reads INT8 writes FP32, and the kernel behind it scales, adds the bias and
quantizes; so a node may be part of several layers.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89 (benchmarks/rtx_fidelity.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from placer.graph import Edge, Graph, Node
from placer.graph.weights import weight_input
from placer.plan import Kind, Layer, Port
from placer.prediction.claims import FLOAT, LayerCandidate
from placer.prediction.motion import NormalForm, Scale, find_passages, normal_form, scale_of
from placer.prediction.predictor import Prediction
from placer.prediction.settled import without_settled_nodes
from placer.prediction.steps import PredictedLayer, Step, type_name
from placer.quantization import Placement
from placer.rules.schema import Rule
from placer.rules.target import Target

# ``product``: a convolution or matrix product, a kernel of its own. ``pool``: MaxPool, as well.
# All others are generated: ``reduce`` sums over a dimension, of which a kernel has one at most.
Role = Literal["product", "pool", "pointwise", "reduce", "move", "quantize"]

_CONVS = ("Conv", "ConvTranspose")
_PRODUCTS = ("MatMul", "Gemm")
_REDUCE = frozenset(
    {"GlobalAveragePool", "AveragePool", "ReduceMean", "ReduceMax", "ReduceSum", "Softmax"}
    | {"LayerNormalization", "InstanceNormalization", "LogSoftmax", "ReduceMin", "ArgMax"}
)
_NORMALIZE = frozenset({"LayerNormalization", "Softmax", "InstanceNormalization", "LogSoftmax"})
_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
_MOVES = _VIEWS | frozenset(
    {"Concat", "Resize", "Transpose", "Slice", "Split", "Pad", "Gather", "Expand", "Tile"}
    | {"DepthToSpace", "SpaceToDepth"}
)
# What a prepared convolution kernel does behind the sum; all else makes it a generated one.
_EPILOGUE = frozenset({"Add", "Relu", "Clip", "LeakyRelu", "Sigmoid"})
_TINY_CHANNELS = 4
_PADDED_CHANNELS = 3  # Images get channels of zeros in a kernel before the convolution.


@dataclass(eq=False)
class _Unit:
    """A part of a node that one kernel does; ``reads``: edges with the unit that writes each."""

    index: int
    node: Node
    role: Role
    works: bool
    outputs: tuple[str, ...] = ()
    reads: list[tuple[Edge, _Unit | None]] = field(default_factory=list)
    readers: list[tuple[Edge, _Unit]] = field(default_factory=list)
    integers: bool = False
    group: int = 0

    @property
    def generated(self) -> bool:
        return self.role in ("pointwise", "reduce", "move")


class KernelPredictor:
    """Predicts plans of one model; the counterpart of ``Predictor`` for generated kernels.

    ``base``: ONNX name of the type of float tensors inside the engine.
    """

    def __init__(
        self, graph: Graph, rules: Sequence[Rule], target: Target, base: str, integer: str
    ) -> None:
        self._graph = without_settled_nodes(graph)
        self._base, self._integer = base, integer
        rules = [rule for rule in rules if target.meets(rule.when)]
        self._passages = find_passages(self._graph, rules)
        self._attentions = _attentions(self._graph)

    def predict(self, placement: Placement, near: Prediction | None = None) -> Prediction:
        """Predict the plan of ``placement``, which must be of the predictor's graph.

        ``near``: a prediction of this predictor, which the new one's ``changed`` refers to.
        """
        given = {edge: scale_of(group) for group in placement.groups for edge in group}
        form = normal_form(placement, self._passages)
        kernels = _Kernels(self._graph, form, self._base, self._integer, self._attentions)
        steps = {i: _step(layer, self._graph) for i, layer in enumerate(kernels.layers())}
        count = max(len(steps), len(near.steps) if near else 0)
        return Prediction(placement, given, form, steps, {}, tuple(range(count)))


def _step(layer: PredictedLayer, graph: Graph) -> Step:
    position = layer.nodes[-1].index if layer.nodes else 0
    candidate = LayerCandidate(position, layer.nodes, None, graph)
    return Step(candidate, (layer,), (), (), {})


def _attentions(graph: Graph) -> Mapping[str, tuple[Node, ...]]:
    """By name of their first MatMul: products, scaling, mask and Softmax of each attention."""
    found = {}
    for softmax in graph.nodes:
        if softmax.op != "Softmax":
            continue
        inner, node = [softmax], graph.producer.get(softmax.inputs[0])
        while node is not None and node.op in ("Mul", "Div", "Add"):
            inner.insert(0, node)
            made = [graph.producer[t] for t in node.inputs if t in graph.producer]
            node = made[0] if len(made) == 1 else None
        readers = graph.edges_of(softmax.outputs[0])
        mix = graph.by_name.get(readers[0].node) if len(readers) == 1 else None
        if node is None or mix is None or {node.op, mix.op} != {"MatMul"}:
            continue
        if all(t in graph.producer for t in (*node.inputs, *mix.inputs)):
            found[node.name] = (node, *inner, mix)
    return found


class _Kernels:
    """The kernels of one placement."""

    def __init__(
        self,
        graph: Graph,
        form: NormalForm,
        base: str,
        integer: str,
        attentions: Mapping[str, tuple[Node, ...]],
    ) -> None:
        self._graph, self._form = graph, form
        self._base, self._integer = base, integer
        self._units: list[_Unit] = []
        self._writer: dict[str, _Unit] = {}
        self._shaped_as: dict[str, str] = {}  # Sums and padded inputs have their tensor's shape.
        self._whole = {n.name: nodes for nodes in attentions.values() for n in nodes}
        self._add_units()
        for unit in self._units:
            unit.group = unit.index
        self._groups = {unit.index: [unit] for unit in self._units}
        self._join_products()
        self._fuse_epilogues()
        self._add_quantizers()
        self._before = self._ancestors()
        self._fuse_generated()

    # --- units ------------------------------------------------------------------------------

    def _add_units(self) -> None:
        mixes = {nodes[-1].name: nodes for nodes in self._whole.values()}
        for node in self._graph.nodes:
            if node.name in self._whole and self._is_whole(self._whole[node.name]):
                if node.name in mixes:
                    self._add_attention(mixes[node.name])
            elif node.op in _CONVS and self._is_tiny(node):
                self._add(node, "pointwise", self._edges(node), tuple(node.outputs))
            elif node.op in _CONVS:
                self._add_convolution(node)
            elif node.op in _PRODUCTS:
                self._add_product(node)
            elif node.op == "Split":
                for tensor in node.outputs:
                    self._add(node, "move", self._edges(node), (tensor,))
            else:
                self._add(node, _role(node), self._edges(node), tuple(node.outputs))

    def _is_whole(self, nodes: Sequence[Node]) -> bool:
        """Whether an attention is one kernel: in float, or with all its products in INT8."""
        edges = [e for n in (nodes[0], nodes[-1]) for e in self._edges(n)]
        count = sum(edge in self._form.scales for edge in edges)
        return count in (0, len(edges))

    def _is_tiny(self, node: Node) -> bool:
        """Whether a generated kernel multiplies: few channels of a single pixel."""
        shape = self._graph.type_of(node.inputs[0]).shape or ()
        return len(shape) == 4 and shape[2:] == (1, 1) and shape[1] <= _TINY_CHANNELS

    def _add_attention(self, nodes: Sequence[Node]) -> None:
        written = {t for node in nodes for t in node.outputs}
        edges = [e for n in nodes for e in self._edges(n) if e.tensor not in written]
        unit = self._add(nodes[-1], "product", edges, tuple(nodes[-1].outputs))
        unit.integers = any(edge in self._form.scales for edge in edges)

    def _add_convolution(self, node: Node) -> None:
        edges = self._edges(node)
        integers = node.op == "Conv" and self._reads_integers(node)
        channels = _channels(self._graph, node)
        depthwise = node.op == "Conv" and 1 < node.attributes.get("group", 1) == channels
        if channels <= _PADDED_CHANNELS or (integers and depthwise):
            self._add(node, "move", edges[:1], (f"{node.inputs[0]}/{node.name}",), works=False)
        product = self._add(node, "product", edges, (self._sum(node),))
        product.integers = integers
        if channels <= _PADDED_CHANNELS or (integers and depthwise):
            self._relink(product, edges[0], self._units[-2])
        self._finish(product, node)

    def _add_product(self, node: Node) -> None:
        shape = self._graph.type_of(node.outputs[0]).shape or ()
        rows = math.prod(shape[:-1]) if shape else 0
        weighted = weight_input(self._graph, node) is not None
        if rows == 1 and weighted and not self._reads_integers(node):
            product = self._add(node, "reduce", self._edges(node), (self._sum(node),))
            self._add_epilogue(node, product)
            return
        product = self._add(node, "product", self._edges(node), (self._sum(node),))
        product.integers = self._reads_integers(node)
        self._finish(product, node)

    def _sum(self, node: Node) -> str:
        """What a product writes for the kernel that scales it."""
        name = f"{node.outputs[0]}/sum"
        self._shaped_as[name] = node.outputs[0]
        return name

    def _finish(self, product: _Unit, node: Node) -> None:
        if product.integers:
            self._add_epilogue(node, product)
        else:
            product.outputs = tuple(node.outputs)
            self._writer[node.outputs[0]] = product

    def _add_quantizers(self) -> None:
        """Quantize what no generated kernel writes, once for each scale, before it is read."""
        made: dict[tuple[str, Scale], _Unit] = {}
        ordered: list[_Unit] = []
        for unit in self._units:
            for edge, writer in list(unit.reads):
                scale = self._form.scales.get(edge)
                if scale is None or not self._is_float(writer):
                    continue
                key = (edge.tensor, scale)
                if unit.integers and key not in made:
                    made[key] = _Unit(0, unit.node, "quantize", False, group=-1 - len(made))
                    self._groups[made[key].group] = [made[key]]
                    self._link(Edge(edge.tensor, "", -2), writer, made[key])
                    ordered.append(made[key])
                if key in made:
                    self._relink(unit, edge, made[key])
            ordered.append(unit)
        for index, unit in enumerate(ordered):
            unit.index = index
        self._units = ordered

    def _is_float(self, writer: _Unit | None) -> bool:
        """Whether a tensor is written, or given, by what does not quantize it too."""
        if writer is None:
            return True
        product = next((u for u in self._groups[writer.group] if not u.generated), None)
        return product is not None and not product.integers and product.role != "quantize"

    def _link(self, edge: Edge, writer: _Unit | None, reader: _Unit) -> None:
        reader.reads.append((edge, writer))
        if writer is not None:
            writer.readers.append((edge, reader))

    def _add_epilogue(self, node: Node, product: _Unit) -> None:
        edge = Edge(product.outputs[0], node.name, -1)
        unit = self._add(node, "pointwise", [], tuple(node.outputs), works=False)
        self._link(edge, product, unit)

    def _add(
        self,
        node: Node,
        role: Role,
        edges: Sequence[Edge],
        outputs: tuple[str, ...],
        works: bool = True,
    ) -> _Unit:
        unit = _Unit(len(self._units), node, role, works, outputs)
        if role == "pool":
            scales = {self._form.scales.get(e) for t in outputs for e in self._graph.edges_of(t)}
            unit.integers = {self._form.scales.get(edges[0])} == scales and None not in scales
        self._units.append(unit)
        for edge in edges:
            self._link(edge, self._writer.get(edge.tensor), unit)
        self._writer.update(dict.fromkeys(outputs, unit))
        return unit

    def _relink(self, unit: _Unit, edge: Edge, writer: _Unit) -> None:
        """Let ``unit`` read at ``edge`` what ``writer`` makes of it."""
        for index, (known, old) in enumerate(unit.reads):
            if known == edge:
                if old is not None:
                    old.readers.remove((edge, unit))
                unit.reads[index] = (edge, writer)
                writer.readers.append((edge, unit))

    def _edges(self, node: Node) -> list[Edge]:
        constants = self._graph.initializers
        found = [Edge(t, node.name, i) for i, t in enumerate(node.inputs) if t]
        return [edge for edge in found if edge.tensor not in constants]

    def _reads_integers(self, node: Node) -> bool:
        return all(Edge(node.inputs[i], node.name, i) in self._form.scales for i in (0, 1))

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

    # --- fusion -----------------------------------------------------------------------------

    def _join_products(self) -> None:
        """Products of one tensor with weights of one shape are one (queries, keys and values)."""
        known: dict[object, _Unit] = {}
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
            alone = len(self._groups[unit.group]) == 1
            if unit.role == "product" and not unit.integers and alone and not self._is_mha(unit):
                for other in self._epilogue(unit):
                    self._merge(unit.group, other.group)

    def _is_mha(self, unit: _Unit) -> bool:
        return unit.node.name in self._whole and self._is_whole(self._whole[unit.node.name])

    def _epilogue(self, product: _Unit) -> list[_Unit]:
        """The pointwise nodes that a float product computes itself."""
        region, best = [product], 1
        shape = self._graph.type_of(product.node.outputs[0]).shape
        for unit in self._units[product.index + 1 :]:
            inside = [edge for edge, writer in unit.reads if writer in region]
            if not inside or unit.role != "pointwise" or len(self._groups[unit.group]) > 1:
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
        prepared = all(unit.node.op in _EPILOGUE for unit in chain)
        if prepared or not (self._is_pulled(chain[-1]) or self._is_cast(product, chain[-1])):
            return chain
        return []

    def _is_cast(self, product: _Unit, last: _Unit) -> bool:
        """Whether a Conv's result leaves the graph in FP32: the cast takes what is before it."""
        leaves = any(tensor in self._graph.outputs for tensor in last.outputs)
        return leaves and product.node.op in _CONVS and self._base != FLOAT

    def _is_pulled(self, unit: _Unit) -> bool:
        """Whether what follows takes ``unit`` along: a mean, Resize, broadcast, or its Q."""
        shape = self._graph.type_of(unit.outputs[0]).shape
        for edge, reader in unit.readers:
            if reader.node.op in ("GlobalAveragePool", "Resize") or edge in self._form.scales:
                return True
            other = self._graph.type_of(reader.outputs[0]).shape if reader.outputs else shape
            if reader.role == "pointwise" and other != shape:
                return True
        return False

    def _leaves(self, unit: _Unit, region: Sequence[_Unit]) -> bool:
        leaves = any(t in self._graph.outputs for t in unit.outputs)
        return leaves or any(reader not in region for _, reader in unit.readers)

    def _fuse_generated(self) -> None:
        for unit in self._units:
            if not all(other.generated for other in self._groups[unit.group]):
                continue
            for _, writer in unit.reads:
                if writer is not None and self._may_join(writer, unit):
                    self._merge(writer.group, unit.group)

    def _may_join(self, writer: _Unit, unit: _Unit) -> bool:
        own, theirs = self._groups[writer.group], self._groups[unit.group]
        if not all(u.generated for u in own) or writer.group == unit.group:
            return False
        both = (*own, *theirs)
        if sum(u.role == "reduce" for u in both) > 1 or sum(_resizes(u) for u in both) > 1:
            return False
        return not self._has_other_path(own, theirs)

    def _has_other_path(self, first: Sequence[_Unit], second: Sequence[_Unit]) -> bool:
        """Whether something outside lies between the groups."""
        inside = {u.index for u in (*first, *second)}
        starts = sum(1 << u.index for u in (*first, *second))
        for unit in (*first, *second):
            for _, writer in unit.reads:
                if writer is None or writer.index in inside:
                    continue
                if any(self._before[u.index] & starts for u in self._groups[writer.group]):
                    return True
        return False

    def _merge(self, one: int, other: int) -> None:
        moved = self._groups.pop(other)
        for unit in moved:
            unit.group = one
        self._groups[one] += moved

    # --- layers -----------------------------------------------------------------------------

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

    def _given(self, units: Sequence[_Unit]) -> Mapping[str, Edge]:
        """FP32 inputs of the graph that a kernel reads in the base type, with an edge each."""
        edges = [e for unit in units if not unit.generated for e, w in unit.reads if w is None]
        graph, converts = self._graph, self._base != FLOAT
        edges = [e for e in edges if converts and type_name(graph, e.tensor) == FLOAT]
        return {edge.tensor: edge for edge in edges if units[0].role != "quantize"}

    def _is_gone(self, units: Sequence[_Unit]) -> bool:
        """Whether nothing runs: views, and a Concat that products write into."""
        if all(unit.node.op in _VIEWS for unit in units):
            return True
        moves = all(unit.node.op in _VIEWS or unit.node.op == "Transpose" for unit in units)
        writers = [w for unit in units for _, w in unit.reads if w not in units]
        quantized = any(edge in self._form.scales for unit in units for edge, _ in unit.reads)
        if moves and not quantized and all(w is not None and self._is_mha(w) for w in writers):
            return True
        return self._is_in_place(units[0]) if len(units) == 1 else False

    def _is_in_place(self, unit: _Unit) -> bool:
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

    def _quantize(self, unit: _Unit) -> PredictedLayer:
        ((edge, _writer),) = unit.reads
        source = self._base if edge.tensor in self._graph.producer else FLOAT
        return self._conversion("quantize", edge, source, self._integer)

    def _conversion(self, kind: Kind, edge: Edge, source: str, target: str) -> PredictedLayer:
        ports = Port(source, tensor=edge.tensor), Port(target, tensor=edge.tensor)
        layer = Layer(f"{kind} {edge.tensor}", "Generated", (), ports[:1], ports[1:], kind)
        return PredictedLayer(layer, (), None, (edge,))

    def _copies(self, unit: _Unit) -> Iterator[PredictedLayer]:
        """Copies of what is written into a joined tensor and read elsewhere too."""
        joined = any(self._is_in_place(reader) for _, reader in unit.readers)
        if joined and (unit.role == "pool" or len(unit.readers) > 1):
            edge = next(edge for edge, reader in unit.readers if self._is_in_place(reader))
            dtype = self._edge_type(edge, unit, unit)
            yield self._conversion("reformat", edge, dtype, dtype)

    def _kernel(self, units: Sequence[_Unit]) -> Iterator[PredictedLayer]:
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

    def _name(self, names: Sequence[str], units: Sequence[_Unit], is_generated: bool) -> str:
        """The nodes, and of a generated kernel what it is, as others may have the same nodes."""
        kind = ""
        if is_generated:
            kind = "generated " if any(unit.works for unit in units) else "scale "
            if not units[-1].works and units[-1].role == "move":
                kind = "pad "
        return f"{kind}{'+'.join(names)}"

    def _is_prepared(self, units: Sequence[_Unit]) -> bool:
        """Whether the kernel is one of a library, which converts nothing."""
        product = next((u for u in units if not u.generated), None)
        if product is None or product.integers:
            return False
        conv = product.role == "pool" or product.node.op in _CONVS
        return conv and all(u is product or u.node.op in _EPILOGUE for u in units)

    def _nodes(self, unit: _Unit) -> Sequence[Node]:
        return self._whole[unit.node.name] if self._is_mha(unit) else (unit.node,)

    def _named(self, unit: _Unit) -> Sequence[Node]:
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

    def _inputs(self, units: Sequence[_Unit]) -> Iterator[tuple[Edge, Port]]:
        for unit in units:
            for edge, writer in unit.reads:
                if writer is None:
                    yield edge, Port(self._given_type(edge, unit), tensor=edge.tensor)
                elif writer not in units:
                    tensor = self._shaped_as.get(edge.tensor, edge.tensor)
                    yield edge, Port(self._edge_type(edge, writer, unit), tensor=tensor)

    def _outputs(self, units: Sequence[_Unit]) -> Iterator[Port]:
        for unit in units:
            for edge, reader in unit.readers:
                if reader not in units:
                    tensor = self._shaped_as.get(edge.tensor, edge.tensor)
                    yield Port(self._edge_type(edge, unit, reader), tensor=tensor)
            for tensor in unit.outputs:
                if tensor in self._graph.outputs:
                    yield Port(type_name(self._graph, tensor), tensor=tensor)

    def _given_type(self, edge: Edge, reader: _Unit) -> str:
        dtype = type_name(self._graph, edge.tensor)
        return dtype if reader.generated or dtype != FLOAT else self._base

    def _edge_type(self, edge: Edge, writer: _Unit, reader: _Unit) -> str:
        """The type in which a tensor passes from one kernel to another."""
        if writer.integers and edge.input_index < 0:
            return FLOAT if writer.node.op in _CONVS else self._base
        dtype = self._graph.type_of(edge.tensor)
        if edge.tensor in self._graph.types and not dtype.is_float:
            return type_name(self._graph, edge.tensor)
        if writer.role == "quantize":
            return self._integer
        scale = self._form.scales.get(edge)
        if scale is None or self._is_float(writer):
            return self._base
        return self._integer if reader.integers or self._is_passed_on(edge, writer) else self._base

    def _is_passed_on(self, edge: Edge, writer: _Unit) -> bool:
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
        return self._base


def _resizes(unit: _Unit) -> bool:
    return unit.node.op == "Resize"


def _role(node: Node) -> Role:
    if node.op == "MaxPool":
        return "pool"
    if node.op in _REDUCE:
        return "reduce"
    return "move" if node.op in _MOVES else "pointwise"


def _channels(graph: Graph, node: Node) -> int:
    shape = graph.type_of(node.inputs[0]).shape
    return shape[1] if shape is not None and len(shape) > 2 else _PADDED_CHANNELS + 1
