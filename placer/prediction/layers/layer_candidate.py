"""A layer that may be built, and whether a placement's pairs let the engine build it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from placer.graph import Edge, Graph, Node
from placer.graph.weights import bias_input
from placer.prediction.layers.claims import FLOAT, NO_TYPES, Claim
from placer.prediction.layers.clamps import CLAMPS, Bounds, bounds_of
from placer.prediction.layers.dequantized import is_dequantized
from placer.prediction.layers.integer_operators import is_integer_operator
from placer.prediction.layers.motion import NormalForm, Scale
from placer.quantization import Format
from placer.quantization.scheme import FLOAT8, INT32, MOVED_FORMATS

# What passes on integers of any number of bits; MaxPool and Resize pass on 8 (DropQDQNodesRules).
_MOVING = frozenset(
    "DepthToSpace Expand Flatten Gather Reshape Slice Split Squeeze Tile Transpose "
    "Unsqueeze".split()
)
_MOVING_8_BITS = _MOVING | {"MaxPool", "Resize"}
_PACKED = frozenset({"int4", "uint4"})  # What products read that take their weight alone as stored.
_ADDED = frozenset({INT32})
_WIDE = frozenset({"int16", "uint16"})
# The scales that a tensor is written in, what is taken first by those who need none; None: float.
Written = tuple[Scale | None, ...]


@dataclass(frozen=True, eq=False)
class LayerCandidate:
    """What is computed at one place of the execution order, or a graph output that is written.

    ``position``: index of the last node, by which all that the candidate reads has been computed;
    graph outputs come after all nodes and have neither nodes nor a claim. ``claim`` is None for a
    node that is a layer of its own.
    """

    position: int
    nodes: tuple[Node, ...]
    claim: Claim | None
    graph: Graph

    @cached_property
    def reads(self) -> tuple[Edge, ...]:
        """Edges on which data comes from other candidates, in order of nodes and inputs."""
        if not self.nodes:
            index = self.position - len(self.graph.nodes)
            return (Edge(self.graph.outputs[index], "", index),)
        movers = [] if self.claim is None else [self.graph.by_name[n] for n in self.claim.movers]
        written = {tensor for node in (*self.nodes, *movers) for tensor in node.outputs}
        return tuple(
            edge
            for node in self.nodes
            for edge in self.graph.edges_into(node)
            if edge.tensor not in written and edge.tensor not in self.graph.initializers
        )

    @cached_property
    def readers(self) -> tuple[Edge, ...]:
        """Edges on which other candidates read what this one writes."""
        names = {node.name for node in self.nodes}
        if self.claim is not None:
            names |= self.claim.passed | self.claim.movers
        written = (tensor for node in self.nodes for tensor in node.outputs)
        return tuple(e for t in written for e in self.graph.edges_of(t) if e.node not in names)

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """Tensors that other candidates read."""
        return tuple(dict.fromkeys(edge.tensor for edge in self.readers))

    @cached_property
    def format_tensors(self) -> tuple[str, ...]:
        """Float tensors read or written."""
        tensors = dict.fromkeys((*(edge.tensor for edge in self.reads), *self.writes))
        return tuple(tensor for tensor in tensors if self.graph.type_of(tensor).is_float)

    def output_scales(self, form: NormalForm) -> tuple[Written, ...]:
        """Of each tensor of ``writes`` the scales in which it is written."""
        if self.claim is not None and self.claim.fusion.outputs == "each":
            return tuple(self._scales_of(tensor, form) for tensor in self.writes)
        return ((self._output_scale(form),),) * len(self.writes)

    def _scales_of(self, tensor: str, form: NormalForm) -> Written:
        """Those that its readers need, floats first."""
        copied = frozenset() if self.claim is None else self.claim.copied
        edges = (e for e in self.readers if e.tensor == tensor and e not in copied)
        scales = dict.fromkeys(form.scales.get(edge) for edge in edges) or {None: None}
        return tuple(sorted(scales, key=lambda scale: scale is not None))

    def _output_scale(self, form: NormalForm) -> Scale | None:
        if self.claim is None and is_integer_operator(self.nodes):
            return self._readers_scale(form)
        if self.claim is None or self.claim.fusion.outputs == FLOAT:
            return None
        if self.claim.fusion.outputs == "same":
            scales = {form.last(edge) for edge in self.claim.demanded}
            return next(iter(scales)) if scales else None
        return self._readers_scale(form)

    def clamped_scales(self, form: NormalForm) -> frozenset[tuple[Scale, Bounds | None]]:
        """The scales of pairs behind a Relu or Clip among its nodes, and what that clamps to.

        None: its bounds are computed.
        """
        found = ((form.scales.get(edge), bounds) for edge, bounds in self._behind_clamps)
        return frozenset((scale, bounds) for scale, bounds in found if scale is not None)

    @cached_property
    def _behind_clamps(self) -> tuple[tuple[Edge, Bounds | None], ...]:
        return tuple(
            (edge, bounds_of(node, self.graph))
            for node in self.nodes
            if node.op in CLAMPS
            for edge in self.graph.edges_of(node.outputs[0])
        )

    def rounds(self, form: NormalForm) -> bool:
        """Whether a kernel that takes others along and writes float is read through one pair.

        Or what moves floats because their Q is a conversion of type behind it.
        """
        fusion = None if self.claim is None else self.claim.fusion
        if fusion is None or fusion.outputs != FLOAT:
            return False
        moves = fusion.one_scale and not fusion.is_no_op
        return (fusion.takes is not None or moves) and self._readers_scale(form) is not None

    def is_met(self, form: NormalForm) -> bool:
        """Whether the engine builds the layer that is claimed."""
        claim = self.claim
        return claim is None or (self._fits_pairs(claim, form) and self._fits_readers(claim, form))

    @cached_property
    def _constants(self) -> tuple[Edge, ...]:
        edges = (edge for node in self.nodes for edge in self.graph.edges_into(node))
        return tuple(edge for edge in edges if edge.tensor in self.graph.initializers)

    def _fits_pairs(self, claim: Claim, form: NormalForm) -> bool:
        scales = form.scales
        for edge in claim.paired:
            if edge not in scales:
                return False
        if claim.fusion.one_scale and not _have_one_scale(claim.paired, form):
            return False
        for edge, others in claim.beside:
            # A pair that moved here was given to another tensor: its DQ stands elsewhere.
            is_given = edge.tensor in scales[edge].tensors
            if is_given and all(scales.get(other) != scales[edge] for other in others):
                return False
        if any(is_dequantized(edge, scales, self.graph) for edge in claim.undequantized):
            return False
        return self._fits_bare(claim, form) and self._fits_formats(claim, form)

    def _fits_bare(self, claim: Claim, form: NormalForm) -> bool:
        """Whether no pair is where none may be.

        To a product that takes its weight alone as stored, 16 bits, which none reads, are none.
        """
        paired = [
            form.scales[edge]
            for edge in claim.bare
            if edge in form.scales and not self._is_added(edge, form.scales[edge])
        ]
        alone = len(claim.nodes) == 1 and self._reads_constants_alone(claim)
        return not paired or (alone and all(scale.format in _WIDE for scale in paired))

    def _reads_constants_alone(self, claim: Claim) -> bool:
        return bool(claim.demanded) and all(edge in self._constants for edge in claim.demanded)

    def _fits_formats(self, claim: Claim, form: NormalForm) -> bool:
        """Whether all that is read as integers has one format, and the layout has that.

        No product takes operands of two types: "Input and filter have to be the same type"
        (TensorRT-RTX 1.7.1).
        """
        if claim.fusion.inputs == FLOAT or claim.fusion.is_no_op:
            return True
        formats = self._formats(claim, form)
        if claim.formats is not None and not formats <= claim.formats:
            return False
        stored = [
            (edge, form.scales[edge])
            for edge in self._constants
            if edge in form.scales and not self._is_added(edge, form.scales[edge])
        ]
        if any(scale.format is not None and self._is_bias(edge) for edge, scale in stored):
            return False  # Products of integers add an int32 bias.
        known = formats.union(scale.format for _, scale in stored)
        if known <= {None, *_PACKED} and self._reads_constants_alone(claim):
            return True
        if not known.isdisjoint(MOVED_FORMATS) and any(n.op not in _MOVING for n in claim.nodes):
            return False
        return formats <= {None} or _has_one_format(claim, formats)

    def _is_added(self, edge: Edge, scale: Scale) -> bool:
        """Whether a Gemm of integers adds what it reads on ``edge``.

        A Conv's bias has a format only where its scale is not that of the products.
        """
        is_gemm = self.graph.by_name[edge.node].op == "Gemm" if edge.node else False
        return scale.format in _ADDED and is_gemm and self._is_bias(edge)

    def _is_bias(self, edge: Edge) -> bool:
        """Whether ``edge`` is added to products of the layer; constants alone are asked for."""
        node = self.graph.by_name[edge.node]
        is_summed = node.op == "Add" and any(other.op == "MatMul" for other in self.nodes)
        return is_summed or edge.input_index == bias_input(node)

    def reads_another_format(self, form: NormalForm) -> bool:
        """Whether it computes on another 8-bit format than the scheme's, or moves FP8."""
        if self.claim is None or self.claim.fusion.is_no_op:
            return False
        formats = self._formats(self.claim, form)
        formats -= {None, *MOVED_FORMATS}
        moves = FLOAT8 not in formats and all(node.op in _MOVING_8_BITS for node in self.nodes)
        return bool(formats) and not moves

    @staticmethod
    def _formats(claim: Claim, form: NormalForm) -> set[Format | None]:
        """Those of what the claimed layer reads as integers."""
        if claim.fusion.inputs == FLOAT:
            return set()
        scales = (form.last(edge) for edge in claim.paired)
        return {scale.format for scale in scales if scale is not None}

    def _fits_readers(self, claim: Claim, form: NormalForm) -> bool:
        scales, fusion = form.scales, claim.fusion
        if fusion.readers_quantized is not None and self._readers_scale(form) is None:
            return False
        if fusion.readers_quantized == "as-read":
            demanded = {form.last(edge) for edge in claim.demanded}
            return demanded == {scales.get(edge) for edge in self.readers}
        if fusion.readers_agree and len({scales.get(edge) for edge in self.readers}) > 1:
            return False
        if claim.fusion.outputs == "same":
            return len({form.last(edge) for edge in claim.demanded}) <= 1
        return claim.fusion.outputs in NO_TYPES or self._readers_scale(form) is not None

    def _readers_scale(self, form: NormalForm) -> Scale | None:
        """The scale in which everything that reads the outputs wants them.

        None also where Q is apart, and where that is in another format than what the layer reads,
        which no kernel is known to write.
        """
        scales = {form.scales.get(edge) for edge in self.readers}
        scale = next(iter(scales)) if len(scales) == 1 else None
        if scale is not None and scale.apart:
            return None
        if scale is None or self.claim is None:
            return scale
        return scale if self._formats(self.claim, form) <= {scale.format} else None


def _has_one_format(claim: Claim, formats: Set[Format | None]) -> bool:
    """Whether all of ``formats`` are one that the layout of ``claim`` may have."""
    layout = claim.match.rule.layouts[claim.layout]
    return len(formats) == 1 and all(one is not None and layout.has_format(one) for one in formats)


def _have_one_scale(edges: Sequence[Edge], form: NormalForm) -> bool:
    """Whether the pairs on ``edges`` have one scale, and no edge has two pairs."""
    return len({form.scales[edge] for edge in edges}) == 1 and form.second.keys().isdisjoint(edges)
