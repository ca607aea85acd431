"""Which nodes an engine may take as one layer, and which of these layers it builds.

The ``fuses`` of a pack's layouts are read as claims on nodes. A claim is met if the edges that its
layout quantizes carry a pair after motion, no pair stands inside the layer, and the readers of its
output agree as ``outputs`` demands. Met claims take their nodes in order: those that read integers,
then by priority, number of nodes, number of quantized edges, and the later nodes first, unless the
rule says otherwise for the engine (``later_input``, ``first_when``). Nodes that no claim takes are
layers of their own and compute in float.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from placer.graph import Edge, Graph, Node
from placer.prediction.motion import NormalForm, Scale
from placer.quantization import Format
from placer.rules.fusion_schema import Fusion
from placer.rules.match import Match
from placer.rules.matcher import Matches
from placer.rules.schema import Layout, Rule
from placer.rules.target import Target

FLOAT = "float"  # ONNX's name of FP32
ANY = "any"  # Of ``Fusion.reads``
_POSITION = attrgetter("index")
_KEYWORDS = (FLOAT, "readers", "each", "same")


# The scales that a tensor is written in, what is taken first by those who need none; None: float.
Written = tuple[Scale | None, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Claim:
    """A layer that a rule says the engine builds if the placement allows it.

    ``demanded``: edges that must carry a pair and are read as integers. ``absorbed``: edges between
    the nodes that must carry a pair. ``paired``: both; ``bare``: edges that must be float.
    ``in_place``: edges read in the type that is written. ``passed``: nodes that run before the
    layer though they read what it writes. Of overlapping claims alike in all else
    the one of the highest ``input_index`` is met, then that of the first nodes if ``goes_first``.
    """

    match: Match
    layout: str
    fusion: Fusion
    nodes: tuple[Node, ...]
    demanded: tuple[Edge, ...]
    absorbed: tuple[Edge, ...]
    in_place: tuple[Edge, ...]
    paired: tuple[Edge, ...]
    bare: tuple[Edge, ...]
    like: Edge | None
    input_index: int = 0
    goes_first: bool = False
    passed: frozenset[str] = frozenset()

    @property
    def rank(self) -> tuple[bool, int, int, int, int, tuple[int, ...]]:
        """Sorts claims: the first to be met takes its nodes."""
        if self.goes_first:
            order = tuple([node.index for node in self.nodes])
        else:
            order = tuple([-node.index for node in reversed(self.nodes)])
        return (
            not self.demanded,
            -self.match.rule.priority,
            -len(self.nodes),
            -len(self.demanded),
            -self.input_index,
            order,
        )


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
        written = {tensor for node in self.nodes for tensor in node.outputs}
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
            names |= self.claim.passed
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
        edges = (edge for edge in self.readers if edge.tensor == tensor)
        found = dict.fromkeys(form.scales.get(edge) for edge in edges)
        return tuple(sorted(found, key=lambda scale: scale is not None))

    def _output_scale(self, form: NormalForm) -> Scale | None:
        if self.claim is None or self.claim.fusion.outputs == FLOAT:
            return None
        if self.claim.fusion.outputs == "same":
            found = {form.last(edge) for edge in self.claim.demanded}
            return next(iter(found)) if found else None
        return self._readers_scale(form)

    def rounds(self, form: NormalForm) -> bool:
        """Whether a kernel that takes others along and writes float is read through one pair."""
        fusion = None if self.claim is None else self.claim.fusion
        is_kernel = fusion is not None and fusion.takes is not None and fusion.outputs == FLOAT
        return is_kernel and self._readers_scale(form) is not None

    def is_met(self, form: NormalForm) -> bool:
        """Whether the engine builds the layer that is claimed."""
        claim = self.claim
        return claim is None or (self._fits_pairs(claim, form) and self._fits_readers(claim, form))

    def _fits_pairs(self, claim: Claim, form: NormalForm) -> bool:
        scales = form.scales
        for edge in claim.paired:
            if edge not in scales:
                return False
        return all(edge not in scales for edge in claim.bare) and self._fits_formats(claim, form)

    def _fits_formats(self, claim: Claim, form: NormalForm) -> bool:
        """Whether all that is read as integers has one format, and the layout has that.

        No product takes operands of two types: "Input and filter have to be the same type"
        (TensorRT-RTX 1.7.1).
        """
        found = self._formats(claim, form)
        if found <= {None}:
            return True
        layout = claim.match.rule.layouts[claim.layout]
        return len(found) == 1 and all(one is not None and layout.has_format(one) for one in found)

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
            found = {form.last(edge) for edge in claim.demanded}
            return found == {scales.get(edge) for edge in self.readers}
        if fusion.readers_agree and len({scales.get(edge) for edge in self.readers}) > 1:
            return False
        if claim.fusion.outputs == "same":
            return len({form.last(edge) for edge in claim.demanded}) <= 1
        return claim.fusion.outputs in _KEYWORDS or self._readers_scale(form) is not None

    def _readers_scale(self, form: NormalForm) -> Scale | None:
        """The scale in which everything that reads the outputs wants them.

        None also where that is in another format than what the layer reads, which no kernel is
        known to write.
        """
        found = {form.scales.get(edge) for edge in self.readers}
        scale = next(iter(found)) if len(found) == 1 else None
        if scale is None or self.claim is None:
            return scale
        return scale if self._formats(self.claim, form) <= {scale.format} else None


@dataclass(frozen=True)
class _Offer:
    """A layer that a rule's layout fuses; ``reads``: references to the edges that it demands.

    ``by_input``: whether the engine goes by the fusion's ``later_input``.
    """

    layout: str
    fusion: Fusion
    reads: tuple[str, ...]
    by_input: bool
    goes_first: bool


def _offers(rule: Rule, target: Target) -> list[_Offer]:
    return [
        _Offer(
            name,
            fusion,
            tuple(r for r in _reads(layout, fusion) if not r.endswith(".*")),
            any(map(target.meets, fusion.later_input_when)),
            any(map(target.meets, fusion.first_when)),
        )
        for name, layout in rule.layouts.items()
        if target.meets(layout.when)
        for fusion in layout.fuses
        if target.meets(fusion.when)
    ]


def _reads(layout: Layout, fusion: Fusion) -> Sequence[str]:
    """The edges that must carry a pair."""
    if fusion.reads is None:
        return layout.quantize
    return [] if fusion.reads == ANY else fusion.reads


def find_claims(matches: Matches, rule: Rule, target: Target) -> Iterator[Claim]:
    offers = _offers(rule, target)
    if not offers:
        return
    # A pair before an optional node leaves that node out of the layer.
    for match in matches.of(rule, smaller=True):
        for offer in offers:
            nodes = [node for name in offer.fusion.nodes for node in match.row(name)]
            if nodes:
                if len(nodes) > 1:
                    nodes.sort(key=_POSITION)
                yield _claim(match, offer, tuple(nodes), matches.graph)


def _claim(match: Match, offer: _Offer, nodes: tuple[Node, ...], graph: Graph) -> Claim:
    fusion = offer.fusion
    inner = _inner(nodes, graph)
    absorbed = _edges(match, fusion.absorbs, graph)
    names = [node.name for node in nodes]
    demanded = _edges(match, offer.reads, graph)
    if demanded:
        demanded = tuple([e for e in demanded if e.node in names and e not in inner])
    like = _edges(match, [fusion.float_like], graph) if fusion.float_like else ()
    told = [fusion.later_input] if fusion.later_input and offer.by_input else []
    return Claim(
        match=match,
        layout=offer.layout,
        fusion=fusion,
        nodes=nodes,
        demanded=demanded,
        absorbed=absorbed,
        in_place=_edges(match, fusion.in_place, graph),
        paired=tuple(dict.fromkeys(demanded + absorbed)) if absorbed else demanded,
        bare=_edges(match, fusion.bare, graph)
        + (() if fusion.reads == ANY else tuple([e for e in inner if e not in absorbed])),
        like=like[0] if like else None,
        input_index=max((e.input_index for e in _edges(match, told, graph)), default=0),
        goes_first=offer.goes_first,
        passed=frozenset(node.name for name in fusion.passes for node in match.row(name)),
    )


def _inner(nodes: Sequence[Node], graph: Graph) -> tuple[Edge, ...]:
    """The edges between ``nodes``."""
    if len(nodes) == 1:
        return ()
    written = {tensor for node in nodes for tensor in node.outputs}
    return tuple(
        [
            edge
            for node in nodes
            for edge in graph.edges_into(node)
            if edge.tensor in written and edge.input_index < len(node.inputs)
        ]
    )


def _edges(match: Match, references: Sequence[str], graph: Graph) -> tuple[Edge, ...]:
    if len(references) > 1:
        return tuple(dict.fromkeys([e for r in references for e in match.edges(r, graph)]))
    return match.edges(references[0], graph) if references else ()
