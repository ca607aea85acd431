"""Which nodes an engine may take as one layer.

The ``fuses`` of a pack's layouts are read as claims on nodes. A claim is met (``LayerCandidate``)
if the edges that its layout quantizes carry a pair after motion, no pair stands inside the layer,
and the readers of its output agree as ``outputs`` demands. Met claims take their nodes in order:
those that read integers, then by priority, number of nodes, number of quantized edges, and the
later nodes first, unless the rule says otherwise for the engine (``later_input`` and
``earlier_input_when``, ``fewer_products_when``, ``first_when``) or the file
(``earlier_input_if_normalized``); of the same nodes those that write integers in any case.
Nodes that no claim takes are layers of their own and compute in float.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from placer.graph import Edge, Graph, Node
from placer.prediction.layers.branches import find_branches, has_scalar_operands
from placer.rules.block_operators import block_of
from placer.rules.blocked import blocked_edges, equal_edges
from placer.rules.factors import is_moved_factor
from placer.rules.fusion_schema import Fusion
from placer.rules.match import Match
from placer.rules.matcher import Matches
from placer.rules.schema import Layout, Rule
from placer.rules.target import Target

FLOAT = "float"  # ONNX's name of FP32
ANY = "any"  # Of ``Fusion.reads``
NO_TYPES = (FLOAT, "readers", "each", "same")  # Of ``Fusion.outputs``: not integers in any case.
_POSITION = attrgetter("index")
_WITH_PAIRS = {"none": False, "some": True, None: None}  # By ``Fusion.pairs``.


@dataclass(frozen=True, eq=False, slots=True)
class Claim:
    """A layer that a rule says the engine builds if the placement allows it.

    ``demanded``: edges that must carry a pair and are read as integers. ``absorbed``: edges between
    the nodes that must carry a pair. ``paired``: both; ``bare``: edges that must be float.
    ``beside``: by edge of ``demanded`` those of which one must carry the same pair, where any must.
    ``in_place``: edges read in the type that is written. ``passed``: nodes that run before the
    layer though they read what it writes. ``movers``: nodes that run after it though some of its
    nodes stand behind them. Of overlapping claims alike in all else the one of the fewest
    ``products`` is met, then that of the highest ``input_index``, then that of the first nodes if
    ``goes_first``. ``sums``: edges to sums
    past which the engine moves what follows the layer, each with the other operand's. ``formats``:
    those of its pairs for which it is built (None: the scheme's own), where not for all.
    ``with_pairs``: True if it is built only in a model of which an activation carries a pair, False
    if only where none does. ``undequantized``: edges on which no dequantization stands. ``copied``:
    edges on which others read what the layer writes, but compute its last nodes by themselves.
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
    products: int = 0
    input_index: int = 0
    goes_first: bool = False
    passed: frozenset[str] = frozenset()
    movers: frozenset[str] = frozenset()
    beside: tuple[tuple[Edge, tuple[Edge, ...]], ...] = ()
    sums: tuple[tuple[Edge, Edge], ...] = ()
    formats: frozenset[str | None] | None = None
    with_pairs: bool | None = None
    undequantized: tuple[Edge, ...] = ()
    copied: frozenset[Edge] = frozenset()

    @property
    def rank(self) -> tuple[bool, int, int, int, int, int, tuple[int, ...], bool]:
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
            self.products,
            -self.input_index,
            order,
            self.fusion.outputs in NO_TYPES,
        )


@dataclass(frozen=True)
class _Offer:
    """A layer that a rule's layout fuses; ``reads``: references to the edges that it demands.

    ``by_input``: 1 where the engine goes by the fusion's ``later_input``, -1 where the other way.
    ``by_products``: whether it goes by the products that the first node sums, before that.
    ``block``: channels of a block of ONNX Runtime's on the target's processor.
    """

    layout: str
    fusion: Fusion
    reads: tuple[str, ...]
    by_input: int
    by_products: bool
    goes_first: bool
    formats: frozenset[str | None] | None
    block: int


def _direction(fusion: Fusion, target: Target) -> int:
    if any(map(target.meets, fusion.later_input_when)):
        return 1
    return -1 if any(map(target.meets, fusion.earlier_input_when)) else 0


def _formats(fusion: Fusion, target: Target) -> frozenset[str | None] | None:
    if fusion.integers is None:
        return None
    is_own = target.integer in (None, fusion.integers)
    return frozenset({fusion.integers, None} if is_own else {fusion.integers})


def _offers(rule: Rule, target: Target) -> list[_Offer]:
    return [
        _Offer(
            name,
            fusion,
            tuple(r for r in _reads(layout, fusion) if not r.endswith(".*")),
            _direction(fusion, target),
            any(map(target.meets, fusion.fewer_products_when)),
            any(map(target.meets, fusion.first_when)),
            _formats(fusion, target),
            block_of(target.processor),
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
    """The layers that ``rule`` says that an engine makes, wherever its pattern matches."""
    offers = _offers(rule, target)
    if not offers:
        return
    # A pair before an optional node leaves that node out of the layer.
    for match in matches.of(rule, smaller=True):
        for offer in offers:
            if not all(match.tensors.get(tensor) for tensor in offer.fusion.present):
                continue
            if not has_scalar_operands(match, offer.fusion, matches.graph):
                continue
            nodes = [node for name in offer.fusion.nodes for node in match.row(name)]
            if len(nodes) > 1:
                nodes.sort(key=_POSITION)
            if nodes:
                yield _claim(match, offer, tuple(nodes), matches.graph)
            if branches := find_branches(match, offer.fusion, matches.graph):
                whole = sorted({*nodes, *branches}, key=_POSITION)
                yield _claim(match, offer, tuple(whole), matches.graph)


def _claim(match: Match, offer: _Offer, nodes: tuple[Node, ...], graph: Graph) -> Claim:
    fusion = offer.fusion
    inner = _inner(nodes, graph)
    absorbed = _edges(match, fusion.absorbs, graph)
    taking = {node.name for name in fusion.pairs_before for node in match.row(name)}
    demanded = _edges(match, offer.reads, graph)
    if demanded:
        names = [node.name for node in nodes]
        demanded = tuple([e for e in demanded if e.node in names and e not in inner])
    like = _edges(match, [fusion.float_like], graph) if fusion.float_like else ()
    later_edges = _edges(match, [fusion.later_input] if fusion.later_input else [], graph)
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
        + _blocked(match, offer, graph)
        + _bare_inside(inner, absorbed, taking, fusion),
        like=like[0] if like else None,
        products=_products(offer, nodes[0], later_edges, graph),
        input_index=_by_input(offer, later_edges, graph)
        * max((e.input_index for e in later_edges), default=0),
        goes_first=offer.goes_first and not _are_normalized(offer, later_edges, graph),
        passed=frozenset(node.name for name in fusion.passes for node in match.row(name)),
        sums=_sums(match, fusion, graph),
        formats=offer.formats,
        with_pairs=False if _is_scaled(match, fusion, graph) else _WITH_PAIRS[fusion.pairs],
        undequantized=_edges(match, fusion.undequantized, graph),
    )


def _is_scaled(match: Match, fusion: Fusion, graph: Graph) -> bool:
    """Whether a factor was moved into one of the tensors that ``fusion`` needs unscaled."""
    tensors = (t for name in fusion.unscaled for t in match.tensors.get(name, ()))
    return any(is_moved_factor(tensor, graph) for tensor in tensors)


def _bare_inside(
    inner: Sequence[Edge], absorbed: Container[Edge], taking: Container[str | None], fusion: Fusion
) -> tuple[Edge, ...]:
    """The edges of ``inner`` that keep the layer from being built if they carry a pair."""
    if fusion.reads == ANY:
        return ()
    return tuple([e for e in inner if e not in absorbed and e.node not in taking])


def _sums(match: Match, fusion: Fusion, graph: Graph) -> tuple[tuple[Edge, Edge], ...]:
    """The edges of ``past_sum`` that lead to sums, each with that of the other operand."""
    edges = _edges(match, [fusion.past_sum], graph) if fusion.past_sum else ()
    inputs_of = [(e, graph.edges_into(graph.by_name[e.node])) for e in edges if e.node]
    return tuple((e, inputs[1 - e.input_index]) for e, inputs in inputs_of if len(inputs) == 2)


def _by_input(offer: _Offer, later_edges: Sequence[Edge], graph: Graph) -> int:
    """``offer.by_input``, the other way where the file has a norm behind each input."""
    return (
        -1 if offer.by_input == 1 and _are_normalized(offer, later_edges, graph) else offer.by_input
    )


def _are_normalized(offer: _Offer, later_edges: Sequence[Edge], graph: Graph) -> bool:
    """Whether the fusion goes by norms, and the file has one behind each input."""
    norms = [t in graph.normalized for e in later_edges for t in graph.by_name[e.node].inputs]
    return offer.fusion.earlier_input_if_normalized and bool(norms) and all(norms)


def _products(offer: _Offer, node: Node, later_edges: Sequence[Edge], graph: Graph) -> int:
    """How many products a Conv sums for each value, where the engine goes by that; else 0."""
    if not offer.by_products or _are_normalized(offer, later_edges, graph):
        return 0
    shape = graph.type_of(node.inputs[1]).shape
    return math.prod(shape[1:]) if shape is not None else 0


def _blocked(match: Match, offer: _Offer, graph: Graph) -> tuple[Edge, ...]:
    """The edges that are bare where what the layer reads lies in blocks."""
    read = _edges(match, [offer.fusion.blocked], graph) if offer.fusion.blocked else ()
    return tuple(
        e
        for edge in read
        for e in (
            edge,
            *(blocked_edges(edge.tensor, graph, offer.block) or ()),
            *equal_edges(graph.by_name[edge.node], graph, offer.block),
        )
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
