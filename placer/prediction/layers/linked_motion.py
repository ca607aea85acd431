"""Q/DQ motion link by link: what moves in one says nothing of another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from placer.graph import Edge
from placer.prediction.layers.clamp_motion import move_pairs_and_clamps
from placer.prediction.layers.clamps import Exceeds
from placer.prediction.layers.motion import NormalForm, Scale, move_pairs, repeated
from placer.prediction.layers.passages import Link


@dataclass(frozen=True)
class LinkedMotion:
    """Where pairs move. ``links``: by edge the one that its tensor is in.

    ``has_zero_point``: of a scale; where it has one, a pair that stands before a node and behind
    it, too, is a layer there. ``outlasts``: whether a clamp stays before Q of a scale; None: all
    do.
    """

    links: Mapping[Edge, Link]
    has_zero_point: Callable[[Scale], bool] | None = None
    outlasts: Exceeds | None = None

    def moved(self, edges: Iterable[Edge], given: Mapping[Edge, Scale]) -> NormalForm:
        """Where the ``given`` pairs of all links that ``edges`` are in move."""
        scales, second = dict[Edge, Scale](), dict[Edge, Scale]()
        for link in {self.links[edge] for edge in edges if edge in self.links}:
            form = self._moved(link, given)
            scales.update(form.scales)
            second.update(form.second)
        return NormalForm(scales, second)

    def linked(self, edges: Iterable[Edge]) -> frozenset[Edge]:
        """``edges`` and all that are in a link with one of them."""
        edges = frozenset(edges)
        return edges.union(*(self.links[edge].edges for edge in edges if edge in self.links))

    def _moved(self, link: Link, given: Mapping[Edge, Scale]) -> NormalForm:
        of_link = {e: given[e] for e in link.edges if e in given}
        if self.outlasts is None:
            form = move_pairs(of_link, link.passages)
        else:
            form = move_pairs_and_clamps(of_link, link.passages, self.outlasts)
        if self.has_zero_point is not None:
            again = (e for e in repeated(of_link, link.passages) if self.has_zero_point(of_link[e]))
            twice = {edge: of_link[edge] for edge in again} | dict(form.second)
            form = NormalForm(form.scales, twice)
        return link.with_apart(link.with_signs(form, of_link), of_link)
