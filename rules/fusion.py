"""Predict an engine's layers: which nodes fuse, what they read and write, which pairs remain.

The ``fuses`` of a pack's layouts are read as claims on nodes. A claim is met if the edges that its
layout quantizes carry a pair after motion, no pair stands inside the layer, and the readers of its
output agree as ``outputs`` demands. Met claims take their nodes in order: those that read integers,
then by priority, number of nodes, number of quantized edges, and the later nodes first (TensorRT
fuses a residual Add into the Conv that runs last). Nodes that no claim takes are layers of their
own and compute in float.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx import TensorProto

from placer.graph import Edge, Graph, Node, captured_tensors
from placer.placement import Placement
from placer.plan import Kind, Layer, Plan, Port
from placer.rules.matcher import Match, find_matches
from placer.rules.motion import NormalForm, Scale, find_passages, normal_form
from placer.rules.schema import Fusion, Layout, Rule
from placer.rules.target import Target

FLOAT = "float"  # ONNX's name of FP32
UNKNOWN = "unknown"  # Type of a tensor that inference found none for.
NO_OP = "NoOp"
_KEYWORDS = (FLOAT, "readers", "same")
_Scales = tuple[Scale, ...]  # The scales a tensor was quantized with, in turn; none: float.


@dataclass(frozen=True, eq=False)
class Claim:
    """A layer that a rule says the engine builds if the placement allows it.

    ``demanded``: edges that must carry a pair and are read as integers. ``inner``: edges between
    the nodes, which must be float but for the ``absorbed`` ones, which must carry a pair.
    """

    match: Match
    layout: str
    fusion: Fusion
    nodes: tuple[Node, ...]
    demanded: frozenset[Edge]
    inner: frozenset[Edge]
    absorbed: frozenset[Edge]
    like: Edge | None

    @property
    def rank(self) -> tuple[bool, int, int, int, tuple[int, ...]]:
        """Sorts claims: the first to be met takes its nodes."""
        later = tuple(-node.index for node in reversed(self.nodes))
        priority = self.match.rule.priority
        return (not self.demanded, -priority, -len(self.nodes), -len(self.demanded), later)


@dataclass(frozen=True, eq=False)
class PredictedLayer:
    """A layer of the predicted plan and where it comes from.

    ``claim`` is None for a node that no rule covers and for conversions. ``edges``: for a
    conversion, the edges that it serves; else all data edges that the layer reads.
    """

    layer: Layer
    nodes: tuple[Node, ...]
    claim: Claim | None
    edges: tuple[Edge, ...]


@dataclass(frozen=True, eq=False)
class Prediction:
    """The predicted layers in execution order and the motion-normal form they follow from."""

    layers: tuple[PredictedLayer, ...]
    form: NormalForm

    @property
    def plan(self) -> Plan:
        """The layers without times."""
        layers = tuple(predicted.layer for predicted in self.layers)
        return Plan(layers, "predicted from rules", estimated=True)


class Predictor:
    """Predicts plans of one model for one target; made once, used for every placement.

    ``base``: ONNX name of the type of float tensors inside the engine, e.g. ``float16``. Graph
    inputs and outputs keep the model's types.
    """

    def __init__(
        self, graph: Graph, rules: Sequence[Rule], target: Target, base: str, integer: str
    ) -> None:
        self._graph = graph
        self._target = target
        self._base = base
        self._integer = integer
        rules = [rule for rule in rules if target.meets(rule.when)]
        self._passages = find_passages(graph, rules)
        found = (claim for rule in rules for claim in _claims(graph, rule, target))
        self._claims = sorted(found, key=lambda claim: claim.rank)

    def predict(self, placement: Placement) -> Prediction:
        """Predict the plan of ``placement``, which must be of the predictor's graph."""
        form = normal_form(placement, self._passages)
        taken = self._assign(form)
        draft = _Draft(self._graph, form, self._target, self._base, self._integer)
        for nodes, claim in _in_order(self._graph, taken):
            draft.add(nodes, claim)
        draft.finish()
        return Prediction(tuple(draft.layers), form)

    def _assign(self, form: NormalForm) -> dict[str, Claim]:
        taken: dict[str, Claim] = {}
        for claim in self._claims:
            if not any(n.name in taken for n in claim.nodes) and _is_met(claim, form, self._graph):
                taken.update({node.name: claim for node in claim.nodes})
        return taken


def _claims(graph: Graph, rule: Rule, target: Target) -> Iterator[Claim]:
    layouts = [(n, lay) for n, lay in rule.layouts.items() if lay.fuses and target.meets(lay.when)]
    if not layouts:
        return
    # A pair before an optional node leaves that node out of the layer.
    for match in find_matches(graph, rule, smaller=True):
        for name, layout in layouts:
            for fusion in layout.fuses:
                if target.meets(fusion.when):
                    yield _claim(match, name, layout, fusion, graph)


def _claim(match: Match, name: str, layout: Layout, fusion: Fusion, graph: Graph) -> Claim:
    bound = (match.nodes.get(node) for node in fusion.nodes)
    nodes = tuple(sorted((n for n in bound if n is not None), key=lambda n: n.index))
    names = {node.name for node in nodes}
    edges = {Edge(t, n.name, i) for n in nodes for i, t in enumerate(n.inputs) if t}
    inner = {e for e in edges if e.tensor in graph.producer} & {
        e for n in nodes for t in n.outputs for e in graph.edges_of(t) if e.node in names
    }
    demanded = {
        edge
        for reference in (layout.quantize if fusion.reads is None else fusion.reads)
        if not reference.endswith(".*")
        for edge in match.edges(reference, graph)
    }
    like = match.edges(fusion.float_like, graph) if fusion.float_like else ()
    return Claim(
        match=match,
        layout=name,
        fusion=fusion,
        nodes=nodes,
        demanded=frozenset((demanded & edges) - inner),
        inner=frozenset(inner),
        absorbed=frozenset(e for r in fusion.absorbs for e in match.edges(r, graph)),
        like=like[0] if like else None,
    )


def _is_met(claim: Claim, form: NormalForm, graph: Graph) -> bool:
    scales = form.scales
    if not all(edge in scales for edge in claim.demanded | claim.absorbed):
        return False
    if any(edge in scales for edge in claim.inner - claim.absorbed):
        return False
    if claim.fusion.outputs == "same":
        return len({form.last(edge) for edge in claim.demanded}) <= 1
    if claim.fusion.outputs in _KEYWORDS:
        return True
    return _readers_scale(claim.nodes, form, graph) is not None


def _readers_scale(nodes: Sequence[Node], form: NormalForm, graph: Graph) -> Scale | None:
    """The scale in which everything that reads the nodes' outputs from outside wants them."""
    names = {node.name for node in nodes}
    edges = [e for n in nodes for t in n.outputs for e in graph.edges_of(t) if e.node not in names]
    found = {form.scales.get(edge) for edge in edges}
    return next(iter(found)) if len(found) == 1 else None


def _in_order(
    graph: Graph, taken: Mapping[str, Claim]
) -> Iterator[tuple[tuple[Node, ...], Claim | None]]:
    """Layers by their last node, by which all that they read has been computed."""
    for node in graph.nodes:
        claim = taken.get(node.name)
        if claim is None:
            yield (node,), None
        elif claim.nodes[-1] is node:
            yield claim.nodes, claim


@dataclass
class _Draft:
    """The plan as it grows in execution order."""

    graph: Graph
    form: NormalForm
    target: Target
    base: str
    integer: str
    layers: list[PredictedLayer] = field(default_factory=list)
    # What is available of a tensor, in order of appearance, by the scales it went through.
    ready: dict[str, dict[_Scales, Port]] = field(default_factory=dict)
    # Conversions by tensor, type written and scales of what they read or write, as indices of
    # ``layers``.
    conversions: dict[tuple[str, str, _Scales], int] = field(default_factory=dict)

    def add(self, nodes: tuple[Node, ...], claim: Claim | None) -> None:
        """Add the layer of ``nodes`` and the conversions that it needs before it."""
        names = {node.name for node in nodes}
        written = {t for node in nodes for t in node.outputs}
        edges = tuple(
            Edge(t, node.name, i)
            for node in nodes
            for i, t in enumerate((*node.inputs, *captured_tensors(node.proto)))
            if t and t not in written and t not in self.graph.initializers
        )
        reads = {edge: self._read(edge, claim) for edge in edges}
        if _takes_any(claim):
            reads = self._alike(reads)
        scale = self._output_scale(nodes, claim)
        outputs = []
        for tensor in (t for node in nodes for t in node.outputs if t):
            if any(e.node not in names for e in self.graph.edges_of(tensor)):
                port = Port(self._output_type(tensor, claim, reads, scale), tensor=tensor)
                self.ready[tensor] = {() if scale is None else (scale,): port}
                outputs.append(port)
        op = _operator(nodes, claim)
        layer = Layer(
            name="+".join(node.name for node in nodes),
            op=op,
            nodes=tuple(node.name for node in nodes),
            inputs=tuple(reads.values()),
            outputs=tuple(outputs),
            kind="no-op" if op == NO_OP else "compute",
        )
        self.layers.append(PredictedLayer(layer, nodes, claim, edges))

    def finish(self) -> None:
        """Convert what leaves the graph to the types it declares."""
        for index, tensor in enumerate(self.graph.outputs):
            edge = Edge(tensor, "", index)
            declared = _type_name(self.graph, tensor)
            port = self._float(edge) if self._is_float(tensor) else self._port(tensor)
            if port.dtype != declared and self._is_float(tensor):
                self._reformat(edge, port, declared)

    def _is_float(self, tensor: str) -> bool:
        return self.graph.type_of(tensor).is_float

    def _port(self, tensor: str) -> Port:
        """What was written of ``tensor``; a graph input is there in its declared type."""
        if tensor not in self.ready:
            self.ready[tensor] = {(): Port(_type_name(self.graph, tensor), tensor=tensor)}
        return next(iter(self.ready[tensor].values()))

    def _read(self, edge: Edge, claim: Claim | None) -> Port:
        if not self._is_float(edge.tensor):
            return self._port(edge.tensor)
        if claim is not None and edge in claim.demanded and claim.fusion.inputs != FLOAT:
            return self._integers(edge)
        is_like = claim is not None and claim.like == edge
        port = self._float(edge, is_like)
        if port.dtype == self.base or _takes_any(claim):
            return port
        if is_like and self._is_dequantized(edge):
            return port
        return self._reformat(edge, port, self.base)

    def _alike(self, reads: dict[Edge, Port]) -> dict[Edge, Port]:
        """One float type for a layer that takes any."""
        floats = {port.dtype for port in reads.values() if port.dtype in _FLOATS}
        if len(floats) <= 1:
            return reads
        return {
            edge: self._reformat(edge, port, self.base)
            if port.dtype in floats - {self.base}
            else port
            for edge, port in reads.items()
        }

    def _integers(self, edge: Edge) -> Port:
        """The tensor in the scale that ``edge`` has, through the conversions it takes."""
        self._port(edge.tensor)
        ready = self.ready[edge.tensor]
        chain = self._chain(edge)
        for length in range(1, len(chain) + 1):
            scales = chain[:length]
            if scales in ready:
                self._serve(edge, self.integer, scales)
                continue
            source = ready[scales[:-1]] if length > 1 else next(iter(ready.values()))
            kind: Kind = "quantize" if source.dtype != self.integer else "requantize"
            ready[scales] = self._convert(edge, kind, source, self.integer, scales)
        return ready[chain]

    def _chain(self, edge: Edge) -> _Scales:
        found = (self.form.scales.get(edge), self.form.second.get(edge))
        return tuple(scale for scale in found if scale is not None)

    def _is_dequantized(self, edge: Edge) -> bool:
        return edge in self.form.scales or () not in self.ready[edge.tensor]

    def _float(self, edge: Edge, is_like: bool = False) -> Port:
        """The tensor in float: as written, or through the DQ of the pair on ``edge``."""
        port = self._port(edge.tensor)
        if edge not in self.form.scales and port.dtype != self.integer:
            return port
        is_paired = edge in self.form.scales
        source = self._integers(edge) if is_paired else port
        scales = self._chain(edge) if is_paired else next(iter(self.ready[edge.tensor]))
        # Under weak typing DQ writes the type of its scale, FP32, where a residual is added;
        # elsewhere the type that its reader computes in.
        dtype = FLOAT if is_like and self.target.typing == "weak" else self.base
        if edge.is_graph_output:
            dtype = _type_name(self.graph, edge.tensor)
        known = self._serve(edge, dtype, scales)
        return known or self._convert(edge, "dequantize", source, dtype, scales)

    def _reformat(self, edge: Edge, source: Port, dtype: str) -> Port:
        return self._serve(edge, dtype, ()) or self._convert(edge, "reformat", source, dtype, ())

    def _convert(self, edge: Edge, kind: Kind, source: Port, dtype: str, scales: _Scales) -> Port:
        port = Port(dtype, tensor=edge.tensor)
        layer = Layer(f"{kind} {edge.tensor}", "Reformat", (), (source,), (port,), kind)
        self.conversions[edge.tensor, dtype, scales] = len(self.layers)
        self.layers.append(PredictedLayer(layer, (), None, (edge,)))
        return port

    def _serve(self, edge: Edge, dtype: str, scales: _Scales) -> Port | None:
        """What an earlier conversion wrote for other edges, noting that it serves ``edge`` too."""
        index = self.conversions.get((edge.tensor, dtype, scales))
        if index is None:
            return None
        known = self.layers[index]
        self.layers[index] = replace(known, edges=(*known.edges, edge))
        return known.layer.outputs[0]

    def _output_scale(self, nodes: Sequence[Node], claim: Claim | None) -> Scale | None:
        if claim is None or claim.fusion.outputs == FLOAT:
            return None
        if claim.fusion.outputs == "same":
            found = {self.form.last(edge) for edge in claim.demanded}
            return next(iter(found)) if found else None
        return _readers_scale(nodes, self.form, self.graph)

    def _output_type(
        self,
        tensor: str,
        claim: Claim | None,
        reads: Mapping[Edge, Port],
        scale: Scale | None,
    ) -> str:
        if not self._is_float(tensor):
            return _type_name(self.graph, tensor)
        if scale is not None:
            return self.integer
        floats = [port.dtype for port in reads.values() if port.dtype in _FLOATS]
        if claim is None or claim.fusion.outputs == "same":
            return floats[0] if floats else self.base
        if claim.like is not None and claim.like in reads:
            like = reads[claim.like].dtype
            return like if like in _FLOATS else self.base
        if claim.fusion.float_type is not None:
            return claim.fusion.float_type
        readers = self.graph.edges_of(tensor)
        if self.target.typing == "weak" and claim.demanded and _all_leave(readers):
            return _type_name(self.graph, tensor)  # Kernels that read INT8 write FP32 as well.
        return self.base


_FLOATS = frozenset({"float", "float16", "bfloat16", "double"})


def _takes_any(claim: Claim | None) -> bool:
    """Whether the layer computes in the float type that it gets."""
    return claim is None or claim.fusion.outputs == "same"


def _all_leave(edges: Iterable[Edge]) -> bool:
    return all(edge.is_graph_output for edge in edges)


def _type_name(graph: Graph, tensor: str) -> str:
    dtype = graph.type_of(tensor).dtype
    return UNKNOWN if dtype is None else str(TensorProto.DataType.Name(dtype)).lower()


def _operator(nodes: Sequence[Node], claim: Claim | None) -> str:
    if claim is None:
        return nodes[0].op
    names = claim.fusion.op
    if len(names) == 1:
        return names[0]
    # One name per operator that the pattern's first fused node may have.
    first = claim.fusion.nodes[0]
    alternatives = claim.match.rule.pattern[first].op
    return dict(zip(alternatives, names, strict=False)).get(claim.match.nodes[first].op, names[0])
