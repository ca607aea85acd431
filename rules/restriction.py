"""Sites whose layouts leave nodes float, or quantize them, as the user asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from placer.graph import Edge, Graph
from placer.rules.sites import ResolvedLayout, Site


@dataclass(frozen=True)
class _Inputs:
    """Whose inputs a site's layouts quantize; an output of the graph counts as its maker's."""

    site: Site
    graph: Graph

    def quantized(self, layout: ResolvedLayout) -> list[str]:
        """The node of each input that ``layout`` quantizes."""
        return [self._node(edge) for edge in _quantized(layout)]

    def own(self, edges: Iterable[Edge]) -> dict[Edge, str]:
        """Those of ``edges`` that are inputs of the site's own nodes, with the node."""
        names = {node.name for node in self.site.match.nodes.values()}
        return {edge: name for edge in edges if (name := self._node(edge)) in names}

    def _node(self, edge: Edge) -> str:
        producer = self.graph.producer.get(edge.tensor) if edge.is_graph_output else None
        return edge.node if producer is None else producer.name


def _quantized(layout: ResolvedLayout) -> frozenset[Edge]:
    return layout.quantize.union(*layout.all_or_none)


def restricted(sites: Sequence[Site], graph: Graph, excluded: frozenset[str]) -> tuple[Site, ...]:
    """``sites`` with those layouts only that leave ``excluded`` nodes, by name, float.

    At sites of an excluded node no layout is left that quantizes one of its inputs. A neighbour
    quantizes one only if it takes that for its own inputs to be quantized, as with engines that
    need a pair on both sides: the excluded node then reads the dequantized tensor. A graph output
    counts as an input of the node that makes it. A default that is gone gives way to the layout
    that is most like it. Sites without a layout left are left out.
    """
    left = [_without(site, _Inputs(site, graph), excluded) for site in sites]
    return tuple(site for site in left if site.layouts)


def without_tensors(sites: Sequence[Site], tensors: frozenset[str]) -> tuple[Site, ...]:
    """``sites`` with those layouts only that quantize none of ``tensors``.

    A default that is gone gives way to the layout that is most like it. Sites without a layout
    left are left out.
    """
    left = []
    for site in sites:
        read = {n: {e.tensor for e in _quantized(lay)} for n, lay in site.layouts.items()}
        left.append(_with_layouts(site, [n for n in read if tensors.isdisjoint(read[n])]))
    return tuple(site for site in left if site.layouts)


def _without(site: Site, inputs: _Inputs, excluded: frozenset[str]) -> Site:
    """With the layouts that quantize inputs of ``excluded`` where their own nodes need it only."""
    inputs_of = {name: inputs.own(_quantized(layout)) for name, layout in site.layouts.items()}
    names = [name for name in inputs_of if excluded.isdisjoint(inputs_of[name].values())]
    clean = [n for n in names if excluded.isdisjoint(inputs.quantized(site.layouts[n]))]
    needed = [
        n
        for n in names
        if not any(inputs_of[n].keys() <= inputs_of[other].keys() for other in clean)
    ]
    return _with_layouts(site, [name for name in names if name in clean or name in needed])


def _with_layouts(site: Site, names: Sequence[str]) -> Site:
    """``site`` with some of its layouts; decided apart from sites that have others."""
    if len(names) == len(site.layouts):
        return site
    wanted = site.layouts[site.default].quantize
    nearest = min(names, key=lambda n: len(site.layouts[n].quantize ^ wanted), default="")
    return replace(
        site,
        layouts={name: site.layouts[name] for name in names},
        default=site.default if site.default in names else nearest,
        signature=f"{site.signature} {' '.join(names)}",
    )


@dataclass(frozen=True)
class Forced:
    """Sites that quantize what the user forces.

    ``nodes``: those of the user's that some site can quantize. ``edges``: what each site that
    decides on them quantizes of its own nodes' inputs whatever is proposed, by its name.
    """

    sites: tuple[Site, ...]
    nodes: frozenset[str]
    edges: Mapping[str, frozenset[Edge]]


def forced(sites: Sequence[Site], graph: Graph, wanted: frozenset[str]) -> Forced:
    """``sites`` whose layouts that leave ``wanted`` nodes, by name, float are barred.

    Of a site's layouts those stay that quantize inputs of the most of these nodes; if none does, as
    of a Relu that runs in the layer of its Conv, those that quantize any input of the site's nodes.
    Sites that follow others cannot be forced. A neighbour's layouts that keep one of the forced
    edges float are barred too, if others are left.
    """
    offered: dict[str, list[str]] = {}
    nodes: set[str] = set()
    for site in sites:
        wanted_here = wanted & {node.name for node in site.match.nodes.values()}
        names = _forcing(site, _Inputs(site, graph), wanted_here) if wanted_here else []
        if names:
            offered[site.name] = names
            nodes |= wanted_here
    by_name = {site.name: site for site in sites}
    edges = {
        name: frozenset.intersection(*(_own_edges(by_name[name], n, graph) for n in names))
        for name, names in offered.items()
    }
    needed = frozenset[Edge]().union(*edges.values())
    forced_sites = []
    for site in sites:
        names = offered.get(site.name, list(site.layouts))
        yielding = [n for n in names if needed.isdisjoint(site.layouts[n].keep_float)]
        forced_sites.append(_with_offered(site, yielding or names))
    return Forced(tuple(forced_sites), frozenset(nodes), edges)


def _own_edges(site: Site, layout: str, graph: Graph) -> frozenset[Edge]:
    """The inputs of the site's own nodes that ``layout`` quantizes."""
    return frozenset(_Inputs(site, graph).own(site.layouts[layout].quantize))


def _forcing(site: Site, inputs: _Inputs, wanted_here: frozenset[str]) -> list[str]:
    """The layouts of ``site`` that quantize its nodes ``wanted_here``, if there are any."""
    decided = {name: lay for name, lay in site.layouts.items() if not lay.requires}
    read = {name: set(inputs.own(_quantized(lay)).values()) for name, lay in decided.items()}
    most = max((len(nodes & wanted_here) for nodes in read.values()), default=0)
    if most:
        return [name for name, nodes in read.items() if len(nodes & wanted_here) == most]
    return [name for name, nodes in read.items() if nodes]


def _with_offered(site: Site, names: Sequence[str]) -> Site:
    """``site`` with all layouts but ``names`` barred; decided apart from sites that have others."""
    if len(names) == len(site.layouts):
        return site
    wanted = site.layouts[site.default].quantize
    nearest = min(names, key=lambda n: len(site.layouts[n].quantize ^ wanted))
    return replace(
        site,
        default=site.default if site.default in names else nearest,
        signature=f"{site.signature} forced {' '.join(names)}",
        barred=frozenset(site.layouts) - frozenset(names),
    )
