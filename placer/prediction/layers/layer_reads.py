"""What the layer of a candidate reads, and the conversions through which it does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from placer.graph import Edge
from placer.graph.operators import STANDARD_DOMAINS
from placer.plan import Layer, Port
from placer.plan.dtypes import is_quantized
from placer.prediction.layers.claims import ANY, FLOAT, Claim
from placer.prediction.layers.conversions import (
    BuildTarget,
    PredictedLayer,
    TensorDraft,
)
from placer.prediction.layers.integer_operators import is_integer_operator
from placer.prediction.layers.layer_candidate import Written
from placer.prediction.layers.layer_types import FLOATS, LayerTypes, takes_any
from placer.prediction.layers.layouts import (
    can_read,
    fills_groups,
    in_wide_groups,
    joins_last_axis,
    joins_row_major,
    tells_layouts,
)
from placer.prediction.layers.paired_candidate import PairedCandidate

# No layer but a reformat of each input that its producer does not write into the joined tensor.
IN_PLACE_CONCAT = "ConcatInPlace"

# Operators whose layers do not write into a joined tensor: a Resize is one of its own (hehern
# bevfusion), a Reshape none, so that what it passes on is copied. So is a part of the channels, of
# which no layer is made (a YOLOv8m on Orin, TensorRT 8.5), be it a Slice's or a Split's: the parser
# makes a Slice of each part of a Split (onnx-tensorrt, onnxOpImporters.cpp).
_OWN_BUFFER = frozenset({"Resize", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True, eq=False)
class LayerReads:
    """The operands of one candidate's layer; conversions are added to ``tensors``."""

    paired: PairedCandidate
    target: BuildTarget
    tensors: TensorDraft
    types: LayerTypes

    def ports(self, written: Sequence[Written], op: str) -> dict[Edge, Port]:
        """What the layer ``op`` reads where it writes its tensors in the scales ``written``."""
        candidate = self.paired.candidate
        overwritten = _overwritten_in_float(candidate.claim, written)
        reads = {edge: self._port(edge, edge in overwritten) for edge in candidate.reads}
        if takes_any(candidate.claim):
            reads = self._alike(reads)
        if op == IN_PLACE_CONCAT:
            reads = {edge: self._copied(edge, port) for edge, port in reads.items()}
        wide = any(in_wide_groups(port.dtype) for port in reads.values())
        return {edge: self.laid_out(edge, port, op, wide) for edge, port in reads.items()}

    def _port(self, edge: Edge, is_overwritten: bool) -> Port:
        moved = self.paired.moved
        if moved is not None:
            return Port(self.target.integer_of(edge.tensor, moved), tensor=edge.tensor)
        if is_overwritten:
            return self.tensors.as_float(edge, in_place=True)
        return self._read(edge)

    def _read(self, edge: Edge) -> Port:
        claim, wants_integers = self.paired.candidate.claim, self._wants_integers(edge)
        if edge.tensor not in self.tensors.formats:
            port = self.tensors.port(edge.tensor)
            is_stored = bool(self.tensors.chains[edge]) and is_quantized(port.dtype)
            is_converted = is_stored and not wants_integers
            return self.tensors.dequantized(edge, port) if is_converted else port
        if wants_integers:
            return self.tensors.as_integers(edge)
        if claim is not None and claim.fusion.reads == ANY:
            return self._as_rounded(edge)
        is_like = claim is not None and claim.like == edge
        port = self.tensors.as_float(edge, is_like)
        wanted = self.types.computes_in(edge)
        # Under strong typing a Cast stands behind an FP32 input, before whatever takes any type but
        # operators of other domains, which stay as they are.
        is_foreign = any(
            node.domain not in STANDARD_DOMAINS for node in self.paired.candidate.nodes
        )
        keeps = takes_any(claim) and (is_foreign or self.target.target.typing != "strong")
        if port.dtype == wanted or (keeps and wanted == self.target.base):
            return port
        if is_like and self.tensors.is_dequantized(edge):
            return port
        return self.tensors.reformat(edge, port, wanted)

    def _wants_integers(self, edge: Edge) -> bool:
        """Whether the layer reads the integers of the pair on ``edge``."""
        claim = self.paired.candidate.claim
        if claim is None:
            is_integer = is_integer_operator(self.paired.candidate.nodes)
            return is_integer and bool(self.tensors.chains[edge])
        return edge in claim.demanded and claim.fusion.inputs != FLOAT

    def _as_rounded(self, edge: Edge) -> Port:
        """The tensor for a node that takes Q along unless the layer before did.

        One of two operands is read as integers if the other carries no pair and, of a product, the
        zero point is not 0 (plans of OpenVINO 2026.4.1).
        """
        graph, chains = self.target.graph, self.tensors.chains
        verdict = dict(zip(self.paired.candidate.reads, self.paired.verdicts, strict=False)).get(
            edge
        )
        if verdict is not None:
            return self.tensors.as_integers(edge) if verdict else self.tensors.as_it_is(edge)
        node = graph.by_name[edge.node]
        others = [e for e in graph.edges_into(node) if e != edge]
        data = [e for e in others if e.tensor not in graph.initializers]
        if chains[edge] and self.tensors.formats[edge.tensor].rounded:
            shifts = self.target.scales.has_zero_point
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
        in_groups = tells_layouts(self.target.target)
        join = self.paired.candidate.nodes[0]
        if in_groups and joins_row_major(graph, join, port.dtype):
            return port if self.tensors.formats[edge.tensor].by_conv else self._copy(edge, port)
        fits = not in_groups or fills_groups(graph, join, edge.tensor, port.dtype)
        if fits and self.tensors.is_converted(edge, port):
            return port
        others = (other for other in graph.edges_of(edge.tensor) if other != edge)
        alone = all(o.node and graph.by_name[o.node].op == "Conv" for o in others)
        is_written_there = fits and alone and not joins_last_axis(graph, join)
        if is_written_there and not self._has_own_buffer(edge.tensor):
            return port
        return self._copy(edge, port)

    def _has_own_buffer(self, tensor: str) -> bool:
        """Whether what writes ``tensor`` writes it nowhere else than into memory of its own."""
        producer = self.target.graph.producer.get(tensor)
        formats = self.tensors.formats[tensor]
        is_part = formats.part_of is not None
        return producer is None or producer.op in _OWN_BUFFER or formats.owned or is_part

    def _copy(self, edge: Edge, port: Port) -> Port:
        chain = self.tensors.chains[edge]
        return self.tensors.convert(edge, "reformat", port, port.dtype, chain, joins=True)

    def cut_out(self, residuals: Iterable[Edge]) -> None:
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

    def laid_out(self, edge: Edge, port: Port, op: str, with_integers: bool = False) -> Port:
        """``port``, reformatted where the layer does not read its layout; see ``layouts``.

        What a conversion wrote is laid out as its readers need it.
        """
        available = self.tensors.formats.get(edge.tensor)
        if available is None or not tells_layouts(self.target.target):
            return port
        if self.tensors.is_served(edge):
            return port
        node = self.target.graph.by_name.get(edge.node)
        tensor = edge.tensor, port.dtype, available.layout
        engine = self.target.base, self.target.target
        if can_read(self.target.graph, (op, node), tensor, engine, with_integers=with_integers):
            return port
        chain = self.tensors.chains[edge]
        known = self.tensors.serve(edge, port.dtype, chain)
        return known or self.tensors.convert(edge, "reformat", port, port.dtype, chain)

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


def _overwritten_in_float(claim: Claim | None, written: Sequence[Written]) -> Sequence[Edge]:
    """The edges whose tensors are overwritten with floats."""
    if claim is None or any(scale is not None for scales in written for scale in scales):
        return ()
    return claim.in_place
