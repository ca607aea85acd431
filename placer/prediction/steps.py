"""What one layer candidate adds to the plan: its layer, and the conversions that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from onnx import TensorProto

from placer.graph import Edge, Graph, Node
from placer.plan import Kind, Layer, Port
from placer.prediction.claims import ANY, FLOAT, Claim, LayerCandidate, Written
from placer.prediction.layouts import Layout, can_read, fills_groups, written_layout
from placer.prediction.motion import Scale, Scales
from placer.rules.target import Target

UNKNOWN = "unknown"  # Type of a tensor that inference found none for.
NO_OP = "NoOp"
# No layer but a reformat of each input that its producer does not write into the joined tensor.
IN_PLACE_CONCAT = "ConcatInPlace"


@dataclass(frozen=True, eq=False)
class PredictedLayer:
    """A layer of the predicted plan and where it comes from.

    ``claim`` is None for a node that no rule covers and for conversions. ``edges``: for a
    conversion, the edges that it serves; else all data edges that the layer reads. ``ordinal``:
    for a conversion, how many of its kind and tensor come before it.
    """

    layer: Layer
    nodes: tuple[Node, ...]
    claim: Claim | None
    edges: tuple[Edge, ...]
    ordinal: int = 0


class Conversion(NamedTuple):
    """A conversion of ``tensor``: type written, and the scales that what it reads or writes has."""

    tensor: str
    dtype: str
    scales: Scales
    kind: Kind
    ordinal: int


class TensorFormats(NamedTuple):
    """What there is of a float tensor.

    ``ready``: types by the scales that the tensor went through; what was written comes first.
    ``forced``: a kernel that reads INT8 wrote FP32 though the engine computes in FP16. ``layout``:
    of what was written; conversions write any.
    """

    ready: tuple[tuple[Scales, str], ...]
    conversions: tuple[Conversion, ...] = ()
    forced: bool = False
    layout: Layout = "linear"


@dataclass(frozen=True, eq=False)
class Step:
    """What a candidate adds to the plan.

    ``layers``: those of the ``conversions`` that nothing before the candidate needed, which have
    the first edge that they serve, then the candidate's own. ``served``: further edges of
    conversions, also of earlier ones. ``formats``: what there is afterwards, of
    ``LayerCandidate.format_tensors``.
    """

    candidate: LayerCandidate
    layers: tuple[PredictedLayer, ...]
    conversions: tuple[Conversion, ...]
    served: tuple[tuple[Conversion, Edge], ...]
    formats: Mapping[str, TensorFormats]


@dataclass(frozen=True)
class BuildTarget:
    """What layers are predicted for."""

    graph: Graph
    target: Target
    base: str
    integer: str


@dataclass
class StepDraft:
    """The step of one candidate as it grows.

    ``feeds_float_conv``: a Conv reads in float what is written. ``chains``: by edge that the
    candidate reads. ``formats``: of all float tensors of the candidate.
    """

    candidate: LayerCandidate
    target: BuildTarget
    feeds_float_conv: bool
    chains: Mapping[Edge, Scales]
    formats: dict[str, TensorFormats]
    layers: list[PredictedLayer] = field(default_factory=list)
    conversions: list[Conversion] = field(default_factory=list)
    served: list[tuple[Conversion, Edge]] = field(default_factory=list)

    def step(self) -> Step:
        """What was added."""
        return Step(
            self.candidate,
            tuple(self.layers),
            tuple(self.conversions),
            tuple(self.served),
            self.formats,
        )

    def add_layer(self, written: Sequence[Written]) -> None:
        """Add the layer and the conversions before it.

        ``written``: the scales that each of the candidate's tensors is written in.
        """
        nodes, claim = self.candidate.nodes, self.candidate.claim
        floats = _overwritten_in_float(claim, written)
        reads = {
            edge: self._float(edge) if edge in floats else self._read(edge, claim)
            for edge in self.candidate.reads
        }
        if _takes_any(claim):
            reads = self._alike(reads)
        op = _operator(nodes, claim)
        if op == IN_PLACE_CONCAT:
            reads = {edge: self._copied(edge, port) for edge, port in reads.items()}
        reads = {edge: self._laid_out(edge, port, op) for edge, port in reads.items()}
        outputs = []
        for tensor, scales in zip(self.candidate.writes, written, strict=True):
            ready = tuple(
                (() if scale is None else (scale,), self._output_type(tensor, claim, reads, scale))
                for scale in scales
            )
            if tensor in self.formats:
                forced = ready[0][1] == FLOAT and _reads_integers(claim) and not _is_like(claim)
                layout = self._layout(reads, ready[0][1])
                self.formats[tensor] = self.formats[tensor]._replace(
                    ready=ready, forced=forced, layout=layout
                )
            outputs += [Port(dtype, tensor=tensor) for _, dtype in ready]
        layer = Layer(
            name="+".join(node.name for node in nodes),
            op=op,
            nodes=tuple(node.name for node in nodes),
            inputs=tuple(reads.values()),
            outputs=tuple(outputs),
            kind="no-op" if op in (NO_OP, IN_PLACE_CONCAT) else "compute",
        )
        self.layers.append(PredictedLayer(layer, nodes, claim, self.candidate.reads))

    def write_output(self) -> None:
        """Convert what leaves the graph to the type it declares."""
        (edge,) = self.candidate.reads
        port = self._float(edge)
        declared = type_name(self.target.graph, edge.tensor)
        if port.dtype != declared:
            self._reformat(edge, port, declared)
        else:
            self._laid_out(edge, port, "")

    def _port(self, tensor: str) -> Port:
        """What was written of ``tensor``; a graph input is there in its declared type."""
        available = self.formats.get(tensor)
        return Port(
            type_name(self.target.graph, tensor) if available is None else available.ready[0][1],
            tensor=tensor,
        )

    def _read(self, edge: Edge, claim: Claim | None) -> Port:
        if edge.tensor not in self.formats:
            return self._port(edge.tensor)
        if claim is not None and edge in claim.demanded and claim.fusion.inputs != FLOAT:
            return self._integers(edge)
        if claim is not None and claim.fusion.reads == ANY:
            return self._as_it_is(edge)
        is_like = claim is not None and claim.like == edge
        port = self._float(edge, is_like)
        wanted = self._computes_in(edge)
        if port.dtype == wanted or (_takes_any(claim) and wanted == self.target.base):
            return port
        if is_like and self._is_dequantized(edge):
            return port
        return self._reformat(edge, port, wanted)

    def _as_it_is(self, edge: Edge) -> Port:
        """What there is of the tensor, as near to what ``edge`` needs as there is."""
        ready, chain = dict(self.formats[edge.tensor].ready), self.chains[edge]
        for length in range(len(chain), -1, -1):
            if chain[:length] in ready:
                return Port(ready[chain[:length]], tensor=edge.tensor)
        return self._port(edge.tensor)

    def _computes_in(self, edge: Edge) -> str:
        """The float type that the layer computes in, as far as it depends on ``edge``.

        Under weak typing a float Conv stays in the FP32 that a kernel reading INT8 had to write
        (hehern bevfusion: Conv_144), and a Softmax in front of a graph output computes in its type
        (ResNet50 on RTX 3090).
        """
        nodes, claim = self.candidate.nodes, self.candidate.claim
        if self.target.target.typing != "weak":
            return self.target.base
        if nodes and nodes[-1].op in _SOFTMAX and _all_leave(self.candidate.readers):
            return type_name(self.target.graph, nodes[-1].outputs[0])
        is_conv = any(node.op in CONVS for node in nodes) and not _reads_integers(claim)
        return FLOAT if is_conv and self.formats[edge.tensor].forced else self.target.base

    def _copied(self, edge: Edge, port: Port) -> Port:
        """What a Concat joins: ``port``, copied unless what writes it writes it in place.

        A conversion writes in place, and so does a producer that nothing else reads (hehern
        bevfusion: inputs read elsewhere, and Resizes, are copied), but not into the middle of a
        group of channels (the fuser: 80 channels are copied, 256 not).
        """
        if edge.tensor not in self.formats:
            return port
        graph, chain = self.target.graph, self.chains[edge]
        weak = self.target.target.typing == "weak"
        fits = not weak or fills_groups(graph, self.candidate.nodes[0], edge.tensor, port.dtype)
        if fits and self._is_converted(edge, port):
            return port
        producer = graph.producer.get(edge.tensor)
        alone = len(graph.edges_of(edge.tensor)) == 1
        if fits and producer is not None and alone and producer.op not in _OWN_BUFFER:
            return port
        return self._convert(edge, "reformat", port, port.dtype, chain)

    def _laid_out(self, edge: Edge, port: Port, op: str) -> Port:
        """``port``, reformatted where the layer does not read its layout; see ``layouts``.

        What a conversion wrote is laid out as its readers need it. There is evidence for weak
        typing only.
        """
        available = self.formats.get(edge.tensor)
        if available is None or self.target.target.typing != "weak":
            return port
        converted = any(not layer.nodes and edge in layer.edges for layer in self.layers)
        if converted or any(edge == served for _, served in self.served):
            return port
        node = self.target.graph.by_name.get(edge.node)
        tensor = edge.tensor, port.dtype, available.layout
        if can_read(self.target.graph, (op, node), tensor):
            return port
        chain = self.chains[edge]
        known = self._serve(edge, port.dtype, chain)
        return known or self._convert(edge, "reformat", port, port.dtype, chain)

    def _layout(self, reads: Mapping[Edge, Port], dtype: str) -> Layout:
        """The layout that the layer writes ``dtype`` in; told apart under weak typing only."""
        if self.target.target.typing != "weak":
            return "linear"
        integer, base = self.target.integer, self.target.base
        layouts, computes = list[Layout](), base
        for edge, port in reads.items():
            if port.dtype == integer:
                computes = integer
            if edge.tensor in self.formats:
                is_quantized_here = port.dtype == integer and self._is_converted(edge, port)
                layout = self.formats[edge.tensor].layout
                layouts.append("grouped" if is_quantized_here else layout)
        nodes = self.candidate.nodes
        return written_layout(self.target.graph, nodes, (computes, dtype), layouts, base)

    def _is_converted(self, edge: Edge, port: Port) -> bool:
        """Whether ``edge`` reads what a conversion wrote."""
        written = port.dtype, self.chains[edge]
        return any((c.dtype, c.scales) == written for c in self.formats[edge.tensor].conversions)

    def _alike(self, reads: dict[Edge, Port]) -> dict[Edge, Port]:
        """One float type for a layer that takes any."""
        floats = {port.dtype for port in reads.values() if port.dtype in _FLOATS}
        if len(floats) <= 1:
            return reads
        return {
            edge: self._reformat(edge, port, self.target.base)
            if port.dtype in floats - {self.target.base}
            else port
            for edge, port in reads.items()
        }

    def _integers(self, edge: Edge) -> Port:
        """The tensor in the scale that ``edge`` has, through the conversions it takes."""
        integer = self.target.integer
        chain = self.chains[edge]
        for length in range(1, len(chain) + 1):
            ready = dict(self.formats[edge.tensor].ready)
            scales = chain[:length]
            if scales in ready:
                self._serve(edge, integer, scales)
                continue
            source = ready[scales[:-1]] if length > 1 else next(iter(ready.values()))
            kind: Kind = "quantize" if source != integer else "requantize"
            self._convert(edge, kind, Port(source, tensor=edge.tensor), integer, scales)
            available = self.formats[edge.tensor]
            self.formats[edge.tensor] = available._replace(
                ready=(*available.ready, (scales, integer))
            )
        return Port(dict(self.formats[edge.tensor].ready)[chain], tensor=edge.tensor)

    def _is_dequantized(self, edge: Edge) -> bool:
        return bool(self.chains[edge]) or () not in dict(self.formats[edge.tensor].ready)

    def _float(self, edge: Edge, is_like: bool = False) -> Port:
        """The tensor in float: as written, or through the DQ of the pair on ``edge``."""
        port = self._port(edge.tensor)
        chain = self.chains[edge]
        if not chain and port.dtype != self.target.integer:
            return port
        source = self._integers(edge) if chain else port
        scales = chain or self.formats[edge.tensor].ready[0][0]
        # Under weak typing DQ writes the type of its scale, FP32, where a residual is added;
        # elsewhere the type that its reader computes in.
        dtype = FLOAT if is_like and self.target.target.typing == "weak" else self.target.base
        if edge.is_graph_output:
            dtype = type_name(self.target.graph, edge.tensor)
        known = self._serve(edge, dtype, scales)
        return known or self._convert(edge, "dequantize", source, dtype, scales)

    def _reformat(self, edge: Edge, source: Port, dtype: str) -> Port:
        return self._serve(edge, dtype, ()) or self._convert(edge, "reformat", source, dtype, ())

    def _convert(self, edge: Edge, kind: Kind, source: Port, dtype: str, scales: Scales) -> Port:
        port = Port(dtype, tensor=edge.tensor)
        available = self.formats[edge.tensor]
        ordinal = sum(known.kind == kind for known in available.conversions)
        conversion = Conversion(edge.tensor, dtype, scales, kind, ordinal)
        self.formats[edge.tensor] = available._replace(
            conversions=(*available.conversions, conversion)
        )
        layer = Layer(f"{kind} {edge.tensor}", "Reformat", (), (source,), (port,), kind)
        self.conversions.append(conversion)
        self.layers.append(PredictedLayer(layer, (), None, (edge,), ordinal))
        return port

    def _serve(self, edge: Edge, dtype: str, scales: Scales) -> Port | None:
        """What an earlier conversion wrote for other edges, noting that it serves ``edge`` too."""
        for known in self.formats[edge.tensor].conversions:
            if (known.dtype, known.scales) == (dtype, scales):
                self.served.append((known, edge))
                return Port(dtype, tensor=edge.tensor)
        return None

    def _output_type(
        self,
        tensor: str,
        claim: Claim | None,
        reads: Mapping[Edge, Port],
        scale: Scale | None,
    ) -> str:
        if tensor not in self.formats:
            return type_name(self.target.graph, tensor)
        if scale is not None:
            return self.target.integer
        floats = [port.dtype for port in reads.values() if port.dtype in _FLOATS]
        if claim is None or claim.fusion.outputs == "same":
            return floats[0] if floats else self.target.base
        if claim.like is not None and claim.like in reads:
            like = reads[claim.like].dtype
            return like if like in _FLOATS else self.target.base
        if claim.fusion.float_type is not None:
            return claim.fusion.float_type
        if self.target.target.typing == "weak":
            return self._weak_type(tensor, claim, reads)
        return self.target.base

    def _weak_type(self, tensor: str, claim: Claim, reads: Mapping[Edge, Port]) -> str:
        """The float type that the builder chooses where it may."""
        leaves = _all_leave(self.target.graph.edges_of(tensor))
        if leaves and (claim.demanded or claim.nodes[-1].op in _SOFTMAX):
            return type_name(self.target.graph, tensor)
        if claim.demanded:
            # Kernels that read INT8 write FP32 as well: for a float Conv, which does not read the
            # format in which they write FP16; a ConvTranspose's always (hehern bevfusion).
            up = any(node.op == "ConvTranspose" for node in claim.nodes)
            return FLOAT if up or self.feeds_float_conv else self.target.base
        forced = any(self.formats[e.tensor].forced for e in reads if e.tensor in self.formats)
        return FLOAT if forced and FLOAT in {p.dtype for p in reads.values()} else self.target.base


_FLOATS = frozenset({"float", "float16", "bfloat16", "double"})
CONVS = frozenset({"Conv", "ConvTranspose"})
_SOFTMAX = frozenset({"Softmax", "LogSoftmax"})
# Operators whose layers do not write into a joined tensor: a Resize is one of its own (hehern
# bevfusion), a Reshape none, so that what it passes on is copied (a YOLOv8m on Orin, TensorRT 8.5).
_OWN_BUFFER = frozenset({"Resize", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})


def _overwritten_in_float(claim: Claim | None, written: Sequence[Written]) -> Sequence[Edge]:
    """The edges whose tensors are overwritten with floats."""
    if claim is None or any(scale is not None for scales in written for scale in scales):
        return ()
    return claim.in_place


def _is_like(claim: Claim | None) -> bool:
    return claim is not None and claim.like is not None


def _reads_integers(claim: Claim | None) -> bool:
    return claim is not None and bool(claim.demanded)


def _takes_any(claim: Claim | None) -> bool:
    """Whether the layer computes in the float type that it gets."""
    return claim is None or claim.fusion.outputs == "same"


def _all_leave(edges: Iterable[Edge]) -> bool:
    return all(edge.is_graph_output for edge in edges)


def type_name(graph: Graph, tensor: str) -> str:
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
