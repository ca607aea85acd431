"""Sites whose layouts leave nodes float, as the user asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    found = [_without(site, _Inputs(site, graph), excluded) for site in sites]
    return tuple(site for site in found if site.layouts)


def _without(site: Site, inputs: _Inputs, excluded: frozenset[str]) -> Site:
    """With the layouts that quantize inputs of ``excluded`` where their own nodes need it only."""
    own = {name: inputs.own(_quantized(layout)) for name, layout in site.layouts.items()}
    names = [name for name in own if excluded.isdisjoint(own[name].values())]
    clean = [n for n in names if excluded.isdisjoint(inputs.quantized(site.layouts[n]))]
    needed = [n for n in names if not any(own[n].keys() <= own[other].keys() for other in clean)]
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
