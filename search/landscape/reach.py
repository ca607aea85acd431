"""How far a change of a site reaches: the nodes whose layers it may alter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from placer.graph import Graph, Node
from placer.rules.connected import connected
from placer.rules.sites import Site
from placer.search.landscape.alike import Alike
from placer.search.landscape.moves import Move, Piece

# What becomes of a layer depends on layers beside it. A change further away than this many nodes
# leaves it as it is, but for layers of many nodes and pairs that move past many
# (``LayerModel.spans``, ``LayerModel.linked``).
REACH = 4
KEPT_PARTS = 1 << 14


class Reach:
    """Takes changes apart into pieces: sites that may do something to one node are in one piece."""

    def __init__(
        self,
        graph: Graph,
        sites: Sequence[Site],
        spans: Sequence[frozenset[str]],
        linked: Sequence[frozenset[str]],
        alike: Alike | None = None,
    ) -> None:
        """``spans``: nodes that may be one layer, however many there are.

        ``linked``: nodes of one long layer, and nodes that a pair is next to wherever it moves.
        ``alike``: tells the sites of which a change does the same; without it each is unlike all.
        """
        own = {name: span for span in spans for name in span}
        near: dict[str, list[frozenset[str]]] = {}
        for link in linked:
            for name in link:
                near.setdefault(name, []).append(link)
        self._sites = sites
        self._balls = tuple(_ball(graph, site, own, near) for site in sites)
        self._sites_at: dict[int, list[int]] = {}
        for index in range(len(sites)):
            for node in self.nodes([index]):
                self._sites_at.setdefault(node, []).append(index)
        self._pieces: dict[Move, Piece] = {}
        self._known: dict[tuple[int, tuple[int, ...]], dict[object, int]] = {}
        self._apart: dict[Move, tuple[Piece, ...]] = {}
        # The number of what is around sites, and the sites there: see ``Alike.of``.
        self._around = (
            None
            if alike is None
            else lru_cache(maxsize=None)(lambda own: alike.of(own, self.ball(own)))
        )
        self._far_apart = lru_cache(maxsize=KEPT_PARTS)(self._split)

    def apart(self, move: Move) -> tuple[Piece, ...]:
        """The pieces of ``move``."""
        if move not in self._apart:
            layouts = dict(move)
            self._apart[move] = tuple(
                self._piece(tuple((site, layouts[site]) for site in part))
                for part in self._far_apart(tuple(layouts))
            )
        return self._apart[move]

    def ball(self, sites: Iterable[int]) -> frozenset[int]:
        """Indices of the nodes to whose layers changes of ``sites`` may do something."""
        return frozenset(node for site in sites for node in self._balls[site])

    def nodes(self, sites: Iterable[int]) -> frozenset[int]:
        """Indices of the nodes of ``sites`` themselves."""
        return frozenset(n.index for i in sites for n in self._sites[i].match.nodes.values())

    def _split(self, sites: tuple[int, ...]) -> list[tuple[int, ...]]:
        """``sites`` in parts that are far from each other."""
        parts = connected([self._balls[site] for site in sites])
        return [tuple(sites[i] for i in part) for part in parts]

    def _piece(self, move: Move) -> Piece:
        if move not in self._pieces:
            self._pieces[move] = self._make_piece(move)
        return self._pieces[move]

    def _make_piece(self, move: Move) -> Piece:
        nodes = self.ball(site for site, _ in move)
        if self._around is not None:
            number, near = self._around(tuple(site for site, _ in move))
            key = number, tuple(layout for _, layout in move)
            known = self._known.setdefault(key, {})
            return Piece(move, near, tuple(sorted(nodes)), known, number)
        sites = {site for node in nodes for site in self._sites_at.get(node, ())}
        own = tuple(site for site, _ in move)
        return Piece(move, tuple(sorted(sites)), tuple(sorted(nodes)), alike=own)


def _ball(
    graph: Graph,
    site: Site,
    spans: Mapping[str, frozenset[str]],
    linked: Mapping[str, Sequence[frozenset[str]]],
) -> frozenset[int]:
    """Indices of the nodes within ``REACH`` of the site's.

    ``spans``: by name the nodes with which a node may be one layer; it is no step to these.
    ``linked``: by name those to which it is one step wherever they stand.
    """
    seen: set[int] = set()
    around = list(site.match.nodes.values())
    for step in range(REACH + 1):
        border = []
        for node in around:
            for name in spans.get(node.name, (node.name,)):
                other = graph.by_name[name]
                if other.index not in seen:
                    seen.add(other.index)
                    border.append(other)
        around = []
        if step < REACH:
            around = [near for node in border for near in _around(graph, node)]
            links = {link for node in border for link in linked.get(node.name, ())}
            around += [graph.by_name[name] for link in links for name in link]
    return frozenset(seen)


def _around(graph: Graph, node: Node) -> list[Node]:
    """The nodes that write what ``node`` reads, read what it writes or read its graph inputs."""
    writers = [graph.producer[t] for t in node.inputs if t in graph.producer]
    tensors = (*node.outputs, *(t for t in node.inputs if t in graph.inputs))
    edges = (e for t in tensors for e in graph.edges_of(t) if not e.is_graph_output)
    return [*writers, *(graph.by_name[edge.node] for edge in edges)]


def sharing(
    owned: Sequence[Collection[int]], near: Sequence[Collection[int]]
) -> tuple[tuple[int, int], ...]:
    """All pairs of numbers of which one is ``near`` something that the other has ``owned``."""
    owners: dict[int, list[int]] = {}
    for number, those in enumerate(owned):
        for one in those:
            owners.setdefault(one, []).append(number)
    pairs = {
        (other, number)
        for number, those in enumerate(near)
        for one in those
        for other in owners.get(one, ())
        if other < number
    }
    return tuple(sorted(pairs))
