"""Which types the layer of a candidate reads and writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from placer.graph import Edge, Node
from placer.plan import Port
from placer.plan.dtypes import is_quantized
from placer.prediction.layers.claims import FLOAT, Claim
from placer.prediction.layers.conversions import BuildTarget, TensorFormats, type_name
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.prediction.layers.motion import Scale

FLOATS = frozenset({"float", "float16", "bfloat16", "double"})
CONVS = frozenset({"Conv", "ConvTranspose"})
_SOFTMAX = frozenset({"Softmax", "LogSoftmax"})
_INTEGER_PRODUCTS = frozenset({"MatMulInteger", "ConvInteger"})


@dataclass(frozen=True, eq=False)
class LayerTypes:
    """The types of one candidate's layer.

    ``feeds_float_conv``: a Conv reads in float what is written. ``formats``: what there is of each
    float tensor that is read or written.
    """

    candidate: LayerCandidate
    target: BuildTarget
    feeds_float_conv: bool
    formats: Mapping[str, TensorFormats]

    def computes_in(self, edge: Edge) -> str:
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
        is_conv = any(node.op in CONVS for node in nodes) and not reads_integers(claim)
        return FLOAT if is_conv and self.formats[edge.tensor].forced else self.target.base

    def written(self, tensor: str, reads: Mapping[Edge, Port], scale: Scale | None) -> str:
        """The type of ``tensor`` where ``reads`` are read; ``scale``: None where it is a float."""
        claim = self.candidate.claim
        if self._is_cast_that_leaves(tensor) or (scale is None and self._stays_half(tensor)):
            return type_name(self.target.graph, tensor)
        if tensor not in self.formats:
            multiplies = claim is not None and claim.nodes[-1].op in _INTEGER_PRODUCTS
            told = claim.fusion.float_type if claim is not None and multiplies else None
            return told or type_name(self.target.graph, tensor)
        dtypes = [port.dtype for port in reads.values()]
        if scale is not None:
            same = claim is not None and claim.fusion.outputs == "same"
            read = next(filter(is_quantized, dtypes if same else ()), None)
            return read or self.target.integer_of(tensor, scale)
        return self._written_float(tensor, claim, reads)

    def _written_float(self, tensor: str, claim: Claim | None, reads: Mapping[Edge, Port]) -> str:
        """The type of ``tensor``, which is a float, where ``reads`` are read."""
        if claim is None or claim.fusion.outputs == "same":
            floats = (port.dtype for port in reads.values() if port.dtype in FLOATS)
            return next(floats, self.target.base)
        if claim.like is not None and claim.like in reads:
            like = reads[claim.like].dtype
            return like if like in FLOATS else self.target.base
        if claim.fusion.float_type is not None:
            return claim.fusion.float_type
        if self.target.target.typing == "weak":
            return self._weak_type(tensor, claim, reads)
        return self.target.base

    def _is_cast_that_leaves(self, tensor: str) -> bool:
        """Whether a Cast alone makes ``tensor``, a float output: it writes the declared type."""
        kinds = [node.op for node in self.candidate.nodes]
        return kinds == ["Cast"] and _all_leave(self.target.graph.edges_of(tensor))

    def _stays_half(self, tensor: str) -> bool:
        """Whether the engine leaves ``tensor`` in the type of the file, or converts it to that."""
        if not self.target.behaviour.half_kernels:
            return False
        kinds = [node.op for node in self.candidate.nodes]
        return kinds == ["Cast"] or type_name(self.target.graph, tensor) == "float16"

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
            return FLOAT if up or self.feeds_float_conv else self.target.base
        forced = any(self.formats[e.tensor].forced for e in reads if e.tensor in self.formats)
        return FLOAT if forced and FLOAT in {p.dtype for p in reads.values()} else self.target.base

    def _last_softmax(self, tensor: str) -> Node | None:
        """The Softmax that alone reads ``tensor`` and writes a graph output, if there is one.

        It computes in that output's type, and a kernel reading INT8 writes that for it (Keras
        ResNet50 with pairs on RTX 3090).
        """
        graph = self.target.graph
        node = graph.sole_reader(tensor)
        if node is None or node.op not in _SOFTMAX:
            return None
        return node if _all_leave(graph.edges_of(node.outputs[0])) else None


def reads_integers(claim: Claim | None) -> bool:
    """Whether the layer needs operands that are quantized."""
    return claim is not None and bool(claim.demanded)


def takes_any(claim: Claim | None) -> bool:
    """Whether the layer computes in the float type that it reads."""
    return claim is None or claim.fusion.outputs == "same"


def _all_leave(edges: Iterable[Edge]) -> bool:
    return all(edge.is_graph_output for edge in edges)
