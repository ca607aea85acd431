"""The step of one layer candidate in the plan: its layer, and the conversions that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from placer.graph import Edge, Node
from placer.plan import Layer, Port
from placer.prediction.layers.claims import ANY, FLOAT, Claim
from placer.prediction.layers.conversions import (
    BuildTarget,
    Conversion,
    PredictedLayer,
    TensorDraft,
    TensorFormats,
    type_name,
)
from placer.prediction.layers.integer_readers import NO_ROUNDED, Rounded
from placer.prediction.layers.layer_candidate import LayerCandidate, Written
from placer.prediction.layers.layer_types import FLOATS, LayerTypes, reads_integers, takes_any
from placer.prediction.layers.layouts import (
    Layout,
    can_read,
    fills_groups,
    joins_last_axis,
    joins_row_major,
    written_layout,
)
from placer.prediction.layers.motion import Scale, Scales

NO_OP = "NoOp"
# No layer but a reformat of each input that its producer does not write into the joined tensor.
IN_PLACE_CONCAT = "ConcatInPlace"


@dataclass(frozen=True, eq=False)
class PairedCandidate:
    """A candidate and the pairs around it: what of its step does not hang on other steps.

    ``chains``: the scales on each of its ``reads``. ``written``: those that each of its ``writes``
    is written in. ``feeds_float_conv``: a Conv reads in float what is written. ``constants``: edges
    on which constants are read that are dequantized in every run. ``rounds``: what reads it in
    integers converts what is written, whatever it could take along itself. ``rounded``: see
    ``integer_readers``. ``verdicts``: of each of its ``reads``, see ``Operand``. ``moved``: the
    scale of the integers that it moves for a layer that runs before it, though nodes of that stand
    behind it.
    ``chained``: the scale that it rounds its integers to after the one of ``written``.
    """

    candidate: LayerCandidate
    chains: tuple[Scales, ...] = ()
    written: tuple[Written, ...] = ()
    feeds_float_conv: bool = False
    constants: tuple[Edge, ...] = ()
    rounds: bool = False
    rounded: Rounded = NO_ROUNDED
    verdicts: tuple[bool | None, ...] = ()
    moved: Scale | None = None
    chained: Scale | None = None


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

    @cached_property
    def _types(self) -> LayerTypes:
        feeds_float_conv = self.paired.feeds_float_conv
        return LayerTypes(self.candidate, self.target, feeds_float_conv, self.tensors.formats)

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
        moved = self.paired.moved
        if moved is not None:
            written = tuple((moved,) for _ in written)
        reads = {
            edge: Port(self.target.integer_of(edge.tensor, moved), tensor=edge.tensor)
            if moved is not None
            else self.tensors.as_float(edge, in_place=True)
            if edge in floats
            else self._read(edge, claim)
            for edge in self.candidate.reads
        }
        if takes_any(claim):
            reads = self._alike(reads)
        op = _operator(nodes, claim)
        if op == IN_PLACE_CONCAT:
            reads = {edge: self._copied(edge, port) for edge, port in reads.items()}
        reads = {edge: self._laid_out(edge, port, op) for edge, port in reads.items()}
        if _adds_residual(nodes):
            self._cut_out([edge for edge in reads if self._operator_at(edge) == "Add"])
        outputs = []
        rounded = self.paired.rounded
        for tensor, scales in zip(self.candidate.writes, written, strict=True):
            kept = [s for s in scales if s is None or (tensor, s) not in rounded.alone] or [None]
            ready = tuple(
                (self._scales_of(scale), self._types.written(tensor, reads, scale))
                for scale in kept
            )
            if tensor in self.tensors.formats:
                forced = ready[0][1] == FLOAT and reads_integers(claim) and not _is_like(claim)
                layout = self._layout(reads, ready[0][1])
                away = [((s,), self.target.base) for name, s in rounded.alone if name == tensor]
                besides = frozenset((s,) for name, s in rounded.besides if name == tensor)
                self.tensors.formats[tensor] = self.tensors.formats[tensor]._replace(
                    ready=(*ready, *away),
                    forced=forced,
                    layout=layout,
                    rounded=self.paired.rounds,
                    besides=besides,
                    owned=_owns_buffer(nodes, self.candidate.writes),
                    by_conv=len(self.candidate.writes) == 1 and nodes[0].op == "Conv",
                    part_of=nodes[0] if op == NO_OP and nodes[0].op in _CUTS else None,
                )
                outputs += [Port(self.target.base, tensor=tensor) for _ in besides]
            outputs += [Port(dtype, tensor=tensor) for _, dtype in ready]
        layer = Layer(
            name="+".join(node.name for node in nodes),
            op=op,
            nodes=self.target.names(nodes),
            inputs=(*reads.values(), *map(self.tensors.constant, self.paired.constants)),
            outputs=tuple(outputs),
            kind="no-op" if op in (NO_OP, IN_PLACE_CONCAT) else "compute",
        )
        predicted = PredictedLayer(layer, nodes, claim, self.candidate.reads)
        self.tensors.layers += [predicted] * predicted.copies

    def _scales_of(self, written: Scale | None) -> Scales:
        """What is written goes through these."""
        chained = self.paired.chained
        if written is None:
            return ()
        return (written,) if chained is None else (written, chained)

    def write_output(self) -> None:
        """Convert what leaves the graph to the type it declares."""
        (edge,) = self.candidate.reads
        stored = self.target.stored.get(edge.tensor)
        port = self.tensors.as_integers(edge) if stored else self.tensors.as_float(edge)
        declared = stored or type_name(self.target.graph, edge.tensor)
        if stored and port.dtype != declared:
            self.tensors.convert(edge, "requantize", port, declared, self.tensors.chains[edge])
        elif port.dtype != declared:
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
        wanted = self._types.computes_in(edge)
        # Under strong typing a Cast stands behind an FP32 input, before whatever takes any type but
        # operators of other domains, which stay as they are.
        is_foreign = any(node.domain not in ("", "ai.onnx") for node in self.candidate.nodes)
        keeps = takes_any(claim) and (is_foreign or self.target.target.typing != "strong")
        if port.dtype == wanted or (keeps and wanted == self.target.base):
            return port
        if is_like and self.tensors.is_dequantized(edge):
            return port
        return self.tensors.reformat(edge, port, wanted)

    def _as_rounded(self, edge: Edge) -> Port:
        """The tensor for a node that takes Q along unless the layer before did.

        One of two operands is read as integers if the other carries no pair and, of a product, the
        zero point is not 0 (plans of OpenVINO 2026.4.1).
        """
        graph, chains = self.target.graph, self.tensors.chains
        verdict = dict(zip(self.candidate.reads, self.paired.verdicts, strict=False)).get(edge)
        if verdict is not None:
            return self.tensors.as_integers(edge) if verdict else self.tensors.as_it_is(edge)
        node = graph.by_name[edge.node]
        others = [e for e in graph.edges_into(node) if e != edge]
        data = [e for e in others if e.tensor not in graph.initializers]
        if chains[edge] and self.tensors.formats[edge.tensor].rounded:
            shifts = self.target.has_zero_point
            is_scaled = node.op == "Mul" and shifts is not None and not shifts(chains[edge][-1])
            if not data or not (is_scaled or any(map(chains.get, data))):
                return self.tensors.as_integers(edge)
        return self.tensors.as_it_is(edge)

    def _copied(self, edge: Edge, port: Port) -> Port:
        """What a Concat joins: ``port``, copied unless what writes it writes it in place.

        A conversion writes in place, and so does a producer that Convs alone read besides, unless
        it is a Conv that adds a residual or one of several that are a layer (YOLOv5 and YOLOv8:
        what a Resize, a MaxPool or an Add reads, too, is copied, and what is joined along the last
        axis; hehern bevfusion: so are Resizes; a GoogLeNet's log, jetson-inference issue 1630:
        Convs that are one are "not movable"), but not into the middle of a group of channels (the
        fuser: 80 channels are copied, 256 not).
        """
        if edge.tensor not in self.tensors.formats:
            return port
        graph = self.target.graph
        weak = self.target.target.typing == "weak"
        join = self.candidate.nodes[0]
        if weak and joins_row_major(graph, join, port.dtype):
            return port if self.tensors.formats[edge.tensor].by_conv else self._copy(edge, port)
        fits = not weak or fills_groups(graph, join, edge.tensor, port.dtype)
        if fits and self.tensors.is_converted(edge, port):
            return port
        producer = graph.producer.get(edge.tensor)
        others = (other for other in graph.edges_of(edge.tensor) if other != edge)
        alone = all(o.node and graph.by_name[o.node].op == "Conv" for o in others)
        owned = producer is None or producer.op in _OWN_BUFFER
        owned = owned or self.tensors.formats[edge.tensor].owned
        owned = owned or joins_last_axis(graph, join)
        return port if fits and alone and not owned else self._copy(edge, port)

    def _copy(self, edge: Edge, port: Port) -> Port:
        chain = self.tensors.chains[edge]
        return self.tensors.convert(edge, "reformat", port, port.dtype, chain, joins=True)

    def _operator_at(self, edge: Edge) -> str:
        return self.target.graph.by_name[edge.node].op

    def _cut_out(self, residuals: Sequence[Edge]) -> None:
        """Add the layers of Splits whose parts a Conv adds: its kernel reads no part of a tensor.

        A YOLOv8 with four outputs (8.6) and a YOLO26n (10.7, RTX 30), both in FP16, copy the part
        that a bottleneck adds where Conv, SiLU and Add are one layer, and not where the Add is in
        a pointwise layer; a Conv and Add of the YOLO26n's attention also in FP32.
        """
        for edge in residuals:
            formats = self.tensors.formats.get(edge.tensor)
            if formats is None or formats.part_of is None:
                continue
            node, port = formats.part_of, Port(formats.ready[0][1], tensor=edge.tensor)
            whole = Port(port.dtype, tensor=node.inputs[0])
            layer = Layer(node.name, "Slice", (node.name,), (whole,), (port,), "compute")
            self.tensors.layers.append(PredictedLayer(layer, (node,), None, (edge,)))
            self.tensors.formats[edge.tensor] = formats._replace(part_of=None)

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
        floats = {port.dtype for port in reads.values() if port.dtype in FLOATS}
        if len(floats) <= 1:
            return reads
        return {
            edge: self.tensors.reformat(edge, port, self.target.base)
            if port.dtype in floats - {self.target.base}
            else port
            for edge, port in reads.items()
        }


def _adds_residual(nodes: Sequence[Node]) -> bool:
    return {"Conv", "Add"} <= {node.op for node in nodes}


def _owns_buffer(nodes: Sequence[Node], writes: Sequence[str]) -> bool:
    """Whether a Conv adds a residual, or is one with others."""
    return _adds_residual(nodes) or (nodes[0].op == "Conv" and len(writes) > 1)


_CUTS = ("Split", "Slice")

# Operators whose layers do not write into a joined tensor: a Resize is one of its own (hehern
# bevfusion), a Reshape and a Split of channels none, so that what they pass on is copied (a YOLOv8m
# on Orin, TensorRT 8.5).
_OWN_BUFFER = frozenset({"Resize", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Split"})


def _overwritten_in_float(claim: Claim | None, written: Sequence[Written]) -> Sequence[Edge]:
    """The edges whose tensors are overwritten with floats."""
    if claim is None or any(scale is not None for scales in written for scale in scales):
        return ()
    return claim.in_place


def _is_like(claim: Claim | None) -> bool:
    return claim is not None and claim.like is not None


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
