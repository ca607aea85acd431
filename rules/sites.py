"""From matches to sites, and from a choice of layouts to a placement."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from placer.graph import Edge, Graph, Node
from placer.graph.dependence import data_tensors
from placer.graph.port_arithmetic import integer_ports
from placer.graph.weights import has_weights
from placer.quantization import Format, Placement
from placer.rules.match import Match
from placer.rules.matcher import Matches, Overlap, match_rules_with_overlaps
from placer.rules.schema import Layout, Rule
from placer.rules.target import ANY_TARGET, Target

# How a layout is called that quantizes to a format of its own, behind the rule's name for it.
_IN = " in "


@dataclass(frozen=True)
class ResolvedLayout:
    """A layout of one site in terms of the graph's edges and tensors.

    ``own``: of the edges that it quantizes, those into the site's own nodes. ``format``: of its
    pairs, where it is another than the scheme's own. ``beside_others``: whether it quantizes only
    what other nodes read, too, and is to be the default where these quantize it.
    """

    quantize: frozenset[Edge]
    shared: tuple[tuple[str, ...], ...]
    keep_float: frozenset[Edge]
    requires: frozenset[Edge]
    all_or_none: tuple[frozenset[Edge], ...] = ()
    own: frozenset[Edge] = frozenset()
    format: Format | None = None
    beside_others: bool = False

    @property
    def tensors(self) -> frozenset[str]:
        """All tensors that the layout names, or names an edge of."""
        edges = self.quantize.union(self.keep_float, self.requires, *self.all_or_none)
        return frozenset(edge.tensor for edge in edges).union(*self.shared)


@dataclass(frozen=True, eq=False)
class Site:
    """A decision at one match: mutually exclusive layouts, one of which is the default.

    ``signature`` is equal for sites of equal structure: same rule, operators, attributes and
    tensor shapes. Such sites are decided together. ``barred``: layouts that nobody may propose,
    as the user forces nodes; the search still reckons with them.
    """

    match: Match
    layouts: Mapping[str, ResolvedLayout]
    default: str
    signature: str
    barred: frozenset[str] = frozenset()

    @cached_property
    def name(self) -> str:
        """Rule and anchor node, unique in a model."""
        return f"{self.match.rule.id}:{self.match.anchor.name}"

    @cached_property
    def formats_vary(self) -> bool:
        """Whether some layout has another format than the scheme's own."""
        return any(layout.format is not None for layout in self.layouts.values())


def rule_layout(name: str) -> str:
    """The rule's name of the layout that sites call ``name``, in whatever format it is."""
    return name.partition(_IN)[0]


def layout_in(name: str, chosen: Format) -> str:
    """What sites call the rule's layout ``name`` in the format ``chosen``."""
    return f"{name}{_IN}{chosen}"


def find_sites(
    graph: Graph,
    rules: Iterable[Rule],
    target: Target = ANY_TARGET,
    formats: Sequence[Format] = (),
) -> tuple[Site, ...]:
    """Return the sites of ``rules`` in ``graph`` in node order.

    Rules and layouts that do not hold for ``target`` are left out, and so are matches without
    weights that compute the same for all inputs of a shape: that takes next to no time, and what
    such nodes tell, often positions in pixels, is not to be rounded. What dequantizes and quantizes
    the integers that enter and leave the graph is no decision either. ``formats``: those that a
    site may have instead of the scheme's own; each layout that quantizes is there in each of them
    that its rule says it has, if the rule has the nodes in a scheme of that format, too.
    """
    return find_sites_with_overlaps(Matches(graph, target.processor), rules, target, formats)[0]


def find_sites_with_overlaps(
    matches: Matches,
    rules: Iterable[Rule],
    target: Target = ANY_TARGET,
    formats: Sequence[Format] = (),
) -> tuple[tuple[Site, ...], tuple[Overlap, ...]]:
    """As ``find_sites``, and the matches that gave way to others."""
    rules = tuple(rules)
    data = data_tensors(matches.graph)
    arithmetic = {node for port in integer_ports(matches.graph) for node in port.nodes}

    def is_decided(match: Match) -> bool:
        if not match.rule.decides:
            return False
        # Layers with weights are computed in every run where the batch is dynamic (DETR's queries).
        nodes = match.nodes.values()
        if not arithmetic.isdisjoint(nodes):
            return False
        return any(has_weights(matches.graph, n) or not data.isdisjoint(n.outputs) for n in nodes)

    def kept_for(target: Target) -> tuple[tuple[Match, ...], tuple[Overlap, ...]]:
        held = [rule for rule in rules if target.meets(rule.when)]
        return match_rules_with_overlaps(matches, held, is_decided)

    targets = {chosen: replace(target, integer=chosen) for chosen in formats}
    known = {chosen: frozenset(kept_for(own)[0]) for chosen, own in targets.items()}

    def formats_of_site(match: Match) -> dict[Format, Target]:
        return {chosen: own for chosen, own in targets.items() if match in known[chosen]}

    kept, overlaps = kept_for(target)
    sites = (_site(match, matches.graph, target, formats_of_site(match)) for match in kept)
    return tuple(sites), overlaps


def place(sites: Sequence[Site], choices: Mapping[str, str]) -> Placement:
    """Return the placement in which each site has the layout ``choices[site.name]``.

    Sites without a choice take their default. The quantized edges are the union over sites;
    an edge that any chosen layout keeps float is float. A layout with ``requires`` counts only
    once other sites have quantized those edges (repeated until nothing changes). A layout with
    ``all_or_none`` quantizes a set only if no layout keeps an edge of it float. An edge has the
    format of the sites whose node reads it; where none of them quantizes it, that of the others;
    where they differ, the scheme's own. A layout with ``requires`` takes that of the edges that it
    requires.
    """
    chosen = [s.layouts[choices.get(s.name, s.default)] for s in sites]
    vary = any(site.formats_vary for site in sites)
    edges, shared, votes = apply_layouts(chosen, kept_float(chosen), vary)
    return Placement.of(edges, shared, formats_of(votes))


Shared = tuple[tuple[str, ...], ...]  # Tensors that layouts want one scale for.
# The format that a site wants an edge in, and whether the edge is into its own nodes.
Vote = tuple[Edge, Format | None, bool]
Settled = tuple[frozenset[Edge], Shared, frozenset[Vote]]


def kept_float(layouts: Iterable[ResolvedLayout]) -> frozenset[Edge]:
    """The edges that layouts keep float, whatever others choose."""
    return frozenset(e for layout in layouts if not layout.requires for e in layout.keep_float)


def apply_layouts(
    chosen: Sequence[ResolvedLayout], floats: frozenset[Edge], with_formats: bool
) -> Settled:
    """Quantized edges, tensors that are to share a scale, and votes if ``with_formats``."""
    edges: set[Edge] = set()
    shared: list[tuple[str, ...]] = []
    votes: set[Vote] = set()
    ready = [layout for layout in chosen if not layout.requires]
    waiting = [layout for layout in chosen if layout.requires]
    while ready:
        for layout in ready:
            shared += layout.shared
            if not layout.quantize:
                continue
            quantized = layout.quantize - floats
            if layout.all_or_none:
                quantized -= _incomplete(layout, floats)
            edges |= quantized
            if with_formats:
                wanted = _wanted(layout, votes)
                votes.update((edge, wanted, edge in layout.own) for edge in quantized)
        ready = [layout for layout in waiting if layout.requires <= edges]
        waiting = [layout for layout in waiting if not layout.requires <= edges]
    return frozenset(edges), tuple(shared), frozenset(votes)


def _wanted(layout: ResolvedLayout, votes: Iterable[Vote]) -> Format | None:
    """The format of what ``layout`` quantizes: its own, or that of all edges that it requires."""
    if not layout.requires:
        return layout.format
    formats = formats_of(votes)
    required = {formats.get(edge) for edge in layout.requires}
    return required.pop() if len(required) == 1 else None


def formats_of(votes: Iterable[Vote]) -> dict[Edge, Format]:
    """The edges that are in another format than the scheme's own; see ``place``."""
    of_site: dict[Edge, set[Format | None]] = {}
    others: dict[Edge, set[Format | None]] = {}
    for edge, wanted, is_own in votes:
        (of_site if is_own else others).setdefault(edge, set()).add(wanted)
    wanted_of = {**others, **of_site}
    agreed = {edge: next(iter(wanted)) for edge, wanted in wanted_of.items() if len(wanted) == 1}
    return {edge: wanted for edge, wanted in agreed.items() if wanted is not None}


def _incomplete(layout: ResolvedLayout, floats: frozenset[Edge]) -> frozenset[Edge]:
    """Edges of sets that cannot be quantized as a whole."""
    return frozenset(e for edges in layout.all_or_none if edges & floats for e in edges)


def _site(match: Match, graph: Graph, target: Target, formats: Mapping[Format, Target]) -> Site:
    """``formats``: those that the site may be in, each with the target of a scheme of it."""
    offered = {n: lay for n, lay in match.rule.layouts.items() if target.meets(lay.when)}
    layouts = {name: _resolve(layout, match, graph) for name, layout in offered.items()}
    layouts = {n: lay for n, lay in layouts.items() if lay.quantize or not lay.beside_others}
    for chosen, own in formats.items():
        layouts |= {
            layout_in(name, chosen): replace(layouts[name], format=chosen)
            for name, layout in offered.items()
            if name in layouts and layout.has_format(chosen) and own.meets(layout.when)
            if layouts[name].quantize and not layouts[name].requires
        }
    return Site(match, layouts, match.rule.default_layout, _signature(match, graph))


def _resolve(layout: Layout, match: Match, graph: Graph) -> ResolvedLayout:
    inside = {node.name for node in match.nodes.values()}

    def edges(references: Sequence[str]) -> frozenset[Edge]:
        return frozenset(e for reference in references for e in match.edges(reference, graph))

    def tensors(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(t for name in names for t in match.tensors.get(name, ()))

    quantize = edges(layout.quantize)
    if layout.beside_others:
        quantize = frozenset(
            edge
            for edge in quantize
            if _is_read_elsewhere(edge, graph) and not _leaves_graph(edge, graph)
        )
    return ResolvedLayout(
        quantize=quantize,
        shared=tuple(
            tuple(t for name in names for t in match.tensors.get(name, ()))
            for names in layout.share_scale
        ),
        keep_float=_with_those_behind(edges(layout.keep_float), layout.keep_float_past, graph),
        requires=edges(layout.requires),
        all_or_none=tuple(edges(references) for references in layout.all_or_none),
        own=frozenset(edge for edge in quantize if edge.node in inside),
        beside_others=layout.beside_others,
    )


def _is_read_elsewhere(edge: Edge, graph: Graph) -> bool:
    """Whether another node reads the tensor of ``edge``."""
    others = (other for other in graph.edges_of(edge.tensor) if other.node != edge.node)
    return any(not other.is_graph_output for other in others)


def _leaves_graph(edge: Edge, graph: Graph) -> bool:
    """Whether the node of ``edge`` writes graph outputs, which nobody asked to round."""
    return any(tensor in graph.outputs for tensor in graph.by_name[edge.node].outputs)


def _with_those_behind(
    kept: frozenset[Edge], operators: Sequence[str], graph: Graph
) -> frozenset[Edge]:
    """The edges, and those behind nodes of ``operators`` that read no other activations.

    A Concat may read others.
    """
    if not operators:
        return kept
    found, waiting = set(kept), list(kept)
    while waiting:
        node = graph.by_name.get(waiting.pop().node)
        if node is None or node.qualified_op not in operators:
            continue
        others = {edge for edge in graph.edges_into(node) if edge.tensor not in graph.initializers}
        if node.op == "Concat" or others <= found:
            behind = {edge for tensor in node.outputs for edge in graph.edges_of(tensor)} - found
            found |= behind
            waiting += behind
    return frozenset(found)


def _signature(match: Match, graph: Graph) -> str:
    parts = [match.rule.id]
    parts += [f"{name}={_describe(node, graph)}" for name, node in match.nodes.items()]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:12]


def _describe(node: Node, graph: Graph) -> str:
    attributes = ",".join(f"{k}:{v}" for k, v in sorted(node.attributes.items()))
    shapes = ",".join(str(graph.type_of(t).shape) for t in node.inputs)
    return f"{node.op}({attributes})[{shapes}]"
