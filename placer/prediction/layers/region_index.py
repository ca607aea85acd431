"""Which regions of a graph the pair of an edge concerns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from placer.graph import Edge, Graph
from placer.prediction.layers.regions import Region


@dataclass(frozen=True)
class RegionIndex:
    """Finds ``regions``, which are all of ``graph``, by edge."""

    graph: Graph
    regions: Sequence[Region]

    def concerned(self, edges: Iterable[Edge]) -> set[Region]:
        """The regions in which it matters what pairs ``edges`` carry."""
        return {region for edge in edges for region in self._at(edge)}

    def _at(self, edge: Edge) -> Iterator[Region]:
        reader = edge.input_index if edge.is_graph_output else edge.node
        producer = self.graph.producer.get(edge.tensor)
        for place in (reader, None if producer is None else producer.name):
            if place in self._region_of:
                yield self._region_of[place]
        yield from self._looking_at.get(edge, ())

    @cached_property
    def _region_of(self) -> Mapping[str | int | None, Region]:
        """The region of each node, by name, and of each graph output, by position."""
        first = len(self.graph.nodes)
        return {
            candidate.nodes[0].name if candidate.nodes else candidate.position - first: region
            for region in self.regions
            for candidate in region.alone
        }

    @cached_property
    def _looking_at(self) -> Mapping[Edge, Sequence[Region]]:
        """The regions with a claim that depends on the pair of an edge, wherever that is."""
        regions_of: dict[Edge, list[Region]] = {}
        for region in self.regions:
            for edge in region.outside:
                regions_of.setdefault(edge, []).append(region)
        return regions_of
