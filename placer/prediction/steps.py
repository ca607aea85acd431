"""What one layer candidate adds to the plan: its layer, and the conversions that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from placer.graph import Edge, Node
from placer.plan import Layer, Port
from placer.plan.dtypes import is_quantized
from placer.prediction.claims import ANY, FLOAT, Claim
from placer.prediction.conversions import (
    BuildTarget,
    Conversion,
    PredictedLayer,
    TensorDraft,
    TensorFormats,
    type_name,
)
from placer.prediction.layer_candidate import LayerCandidate, Written
from placer.prediction.layouts import Layout, can_read, fills_groups, written_layout
from placer.prediction.motion import Scale, Scales

NO_OP = "NoOp"
# No layer but a reformat of each input that its producer does not write into the joined tensor.
IN_PLACE_CONCAT = "ConcatInPlace"


@dataclass(frozen=True, eq=False)
class PairedCandidate:
    """A candidate and the pairs around it: what of its step does not hang on other steps.

    ``chains``: the scales on each of its ``reads``. ``written``: those that each of its ``writes``
    is written in. ``feeds_float_conv``: a Conv reads in float what is written. ``constants``: edges
    on which constants are read that are dequantized in every run. ``rounds``: what reads it in
    integers converts what is written, whatever it could take along itself.
    """

    candidate: LayerCandidate
    chains: tuple[Scales, ...] = ()
    written: tuple[Written, ...] = ()
    feeds_float_conv: bool = False
    constants: tuple[Edge, ...] = ()
    rounds: bool = False


@dataclass(frozen=True, eq=False)
class Step:
    """What a candidate adds to the plan.

    ``layers``: those of the ``conversions`` that nothing before the candidate needed, which have
    the first edge that they serve, then the candidate's own. ``served``: further edges of
    conversions, also of earlier ones. ``formats``: what there is afterwards, of
    ``LayerCandidate.format_tensors``.
    """

    paired: PairedCandidate
    layers: tuple[PredictedLayer, ...]
    conversions: tuple[Conversion, ...]
    served: tuple[tuple[Conversion, Edge], ...]
    formats: Mapping[str, TensorFormats]


@dataclass
class StepDraft:
    """The step of one candidate as it grows."""

    paired: PairedCandidate
    target: BuildTarget
    tensors: TensorDraft

    @property
    def candidate(self) -> LayerCandidate:
        """What the step is of."""
        return self.paired.candidate

    def step(self) -> Step:
        """What was added."""
        return Step(
            self.paired,
            tuple(self.tensors.layers),
            tuple(self.tensors.conversions),
            tuple(self.tensors.served),
            self.tensors.formats,
        )

    def add_layer(self, written: Sequence[Written]) -> None:
        """Add the layer and the conversions before it.

        ``written``: the scales that each of the candidate's tensors is written in.
        """
        nodes, claim = self.candidate.nodes, self.candidate.claim
        floats = _overwritten_in_float(claim, written)
        reads = {
            edge: self.tensors.as_float(edge) if edge in floats else self._read(edge, claim)
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
            if tensor in self.tensors.formats:
                forced = ready[0][1] == FLOAT and _reads_integers(claim) and not _is_like(claim)
                layout = self._layout(reads, ready[0][1])
                self.tensors.formats[tensor] = self.tensors.formats[tensor]._replace(
                    ready=ready, forced=forced, layout=layout, rounded=self.paired.rounds
                )
            outputs += [Port(dtype, tensor=tensor) for _, dtype in ready]
        layer = Layer(
            name="+".join(node.name for node in nodes),
            op=op,
            nodes=tuple(node.name for node in nodes),
            inputs=(*reads.values(), *map(self.tensors.constant, self.paired.constants)),
            outputs=tuple(outputs),
            kind="no-op" if op in (NO_OP, IN_PLACE_CONCAT) else "compute",
        )
        predicted = PredictedLayer(layer, nodes, claim, self.candidate.reads)
        self.tensors.layers += [predicted] * predicted.copies

    def write_output(self) -> None:
        """Convert what leaves the graph to the type it declares."""
        (edge,) = self.candidate.reads
        port = self.tensors.as_float(edge)
        declared = type_name(self.target.graph, edge.tensor)
        if port.dtype != declared:
            self.tensors.reformat(edge, port, declared)
        else:
            self._laid_out(edge, port, "")

    def _read(self, edge: Edge, claim: Claim | None) -> Port:
        if edge.tensor not in self.tensors.formats:
            return self.tensors.port(edge.tensor)
        if claim is not None and edge in claim.demanded and claim.fusion.inputs != FLOAT:
            return self.tensors.as_integers(edge)
        if claim is not None and claim.fusion.reads == ANY:
            return self._as_rounded(edge)
        is_like = claim is not None and claim.like == edge
        port = self.tensors.as_float(edge, is_like)
        wanted = self._computes_in(edge)
        if port.dtype == wanted or (_takes_any(claim) and wanted == self.target.base):
            return port
        if is_like and self.tensors.is_dequantized(edge):
            return port
        return self.tensors.reformat(edge, port, wanted)

    def _as_rounded(self, edge: Edge) -> Port:
        """The tensor for a node that takes Q along unless the layer before did."""
        graph, chain = self.target.graph, self.tensors.chains[edge]
        data = [t for t in graph.by_name[edge.node].inputs if t and t not in graph.initializers]
        if chain and self.tensors.formats[edge.tensor].rounded and len(data) == 1:
            return self.tensors.as_integers(edge)
        return self.tensors.as_it_is(edge)

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
        return FLOAT if is_conv and self.tensors.formats[edge.tensor].forced else self.target.base

    def _copied(self, edge: Edge, port: Port) -> Port:
        """What a Concat joins: ``port``, copied unless what writes it writes it in place.

        A conversion writes in place, and so does a producer that nothing else reads (hehern
        bevfusion: inputs read elsewhere, and Resizes, are copied), but not into the middle of a
        group of channels (the fuser: 80 channels are copied, 256 not).
        """
        if edge.tensor not in self.tensors.formats:
            return port
        graph, chain = self.target.graph, self.tensors.chains[edge]
        weak = self.target.target.typing == "weak"
        fits = not weak or fills_groups(graph, self.candidate.nodes[0], edge.tensor, port.dtype)
        if fits and self.tensors.is_converted(edge, port):
            return port
        producer = graph.producer.get(edge.tensor)
        alone = len(graph.edges_of(edge.tensor)) == 1
        if fits and producer is not None and alone and producer.op not in _OWN_BUFFER:
            return port
        return self.tensors.convert(edge, "reformat", port, port.dtype, chain, joins=True)

    def _laid_out(self, edge: Edge, port: Port, op: str) -> Port:
        """``port``, reformatted where the layer does not read its layout; see ``layouts``.

        What a conversion wrote is laid out as its readers need it. There is evidence for weak
        typing only.
        """
        available = self.tensors.formats.get(edge.tensor)
        if available is None or self.target.target.typing != "weak":
            return port
        converted = any(not layer.nodes and edge in layer.edges for layer in self.tensors.layers)
        if converted or any(edge == served for _, served in self.tensors.served):
            return port
        node = self.target.graph.by_name.get(edge.node)
        tensor = edge.tensor, port.dtype, available.layout
        if can_read(self.target.graph, (op, node), tensor):
            return port
        chain = self.tensors.chains[edge]
        known = self.tensors.serve(edge, port.dtype, chain)
        return known or self.tensors.convert(edge, "reformat", port, port.dtype, chain)

    def _layout(self, reads: Mapping[Edge, Port], dtype: str) -> Layout:
        """The layout that the layer writes ``dtype`` in; told apart under weak typing only."""
        if self.target.target.typing != "weak":
            return "linear"
        integer, base = self.target.integer, self.target.base
        layouts, computes = list[Layout](), base
        for edge, port in reads.items():
            if port.dtype == integer:
                computes = integer
            if edge.tensor in self.tensors.formats:
                is_quantized_here = port.dtype == integer and self.tensors.is_converted(edge, port)
                layout = self.tensors.formats[edge.tensor].layout
                layouts.append("grouped" if is_quantized_here else layout)
        nodes = self.candidate.nodes
        return written_layout(self.target.graph, nodes, (computes, dtype), layouts, base)

    def _alike(self, reads: dict[Edge, Port]) -> dict[Edge, Port]:
        """One float type for a layer that takes any."""
        floats = {port.dtype for port in reads.values() if port.dtype in _FLOATS}
        if len(floats) <= 1:
            return reads
        return {
            edge: self.tensors.reformat(edge, port, self.target.base)
            if port.dtype in floats - {self.target.base}
            else port
            for edge, port in reads.items()
        }

    def _output_type(
        self,
        tensor: str,
        claim: Claim | None,
        reads: Mapping[Edge, Port],
        scale: Scale | None,
    ) -> str:
        if tensor not in self.tensors.formats:
            return type_name(self.target.graph, tensor)
        if scale is not None:
            same = claim is not None and claim.fusion.outputs == "same"
            read = [port.dtype for port in reads.values() if same and is_quantized(port.dtype)]
            return read[0] if read else self.target.integer_of(tensor, scale)
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
        last = self._last_softmax(tensor)
        if claim.demanded and last is not None:
            return type_name(self.target.graph, last.outputs[0])
        if claim.demanded:
            # Kernels that read INT8 write FP32 as well: for a float Conv, which does not read the
            # format in which they write FP16; a ConvTranspose's always (hehern bevfusion).
            up = any(node.op == "ConvTranspose" for node in claim.nodes)
            return FLOAT if up or self.paired.feeds_float_conv else self.target.base
        forced = any(
            self.tensors.formats[e.tensor].forced for e in reads if e.tensor in self.tensors.formats
        )
        return FLOAT if forced and FLOAT in {p.dtype for p in reads.values()} else self.target.base

    def _last_softmax(self, tensor: str) -> Node | None:
        """The Softmax that alone reads ``tensor`` and writes a graph output, if there is one.

        It computes in that output's type, and a kernel reading INT8 writes that for it (Keras
        ResNet50 with pairs on RTX 3090).
        """
        graph = self.target.graph
        readers = graph.edges_of(tensor)
        node = graph.by_name.get(readers[0].node) if len(readers) == 1 else None
        if node is None or node.op not in _SOFTMAX:
            return None
        return node if _all_leave(graph.edges_of(node.outputs[0])) else None


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
