"""Sites with isomorphic neighbourhoods: a change has the same effect on the layers at each.

Networks repeat blocks. Two sites are alike if there is nothing near them, by operators, attributes,
types, small constants, order, rules and what the predictor tells besides, by which they differ.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from onnx import TensorProto, numpy_helper

from placer.graph import Graph, Node
from placer.graph.external_data import is_external
from placer.prediction.layers.fixed_properties import FixedProperties
from placer.rules.sites import Site

# Values of constants of more elements than this are weights, of which no rule needs each. Of those
# in between one may ask whether all are alike.
FEW, MANY = 16, 1 << 16


class _Ports(NamedTuple):
    """A node with its tensors.

    ``ends``: the nodes at their other ends, -1 where a tensor is given or leaves the graph.
    ``shared``: the tensors that are given to other nodes, too.
    """

    label: int
    ends: tuple[int, ...]
    shared: tuple[str, ...]


class Alike:
    """Numbers what is around sites; equal numbers mean that it is alike."""

    def __init__(
        self, graph: Graph, sites: Sequence[Site], decided: int, properties: FixedProperties
    ) -> None:
        """``decided``: so many of ``sites``, the first, are decided; of others it is the default.

        ``properties``: what the predictor knows of nodes and tensors.
        """
        self._graph, self._sites, self._decided, self._properties = (
            graph,
            sites,
            decided,
            properties,
        )
        self._sites_at: dict[int, list[int]] = {}
        for number, site in enumerate(sites):
            for node in site.match.nodes.values():
                self._sites_at.setdefault(node.index, []).append(number)
        self._numbers: dict[Hashable, int] = {}

    def of(self, sites: Sequence[int], ball: frozenset[int]) -> tuple[int, tuple[int, ...]]:
        """The number of what is around ``sites``, in the nodes of ``ball``; and the decided sites
        there in an order that is the same wherever the number is.
        """
        places = {node: place for place, node in enumerate(self._in_order(sites, ball))}
        near = {number for node in places for number in self._sites_at.get(node, ())}
        ordered = sorted((self._placed(number, places), number) for number in near)
        ranks = {node: rank for rank, node in enumerate(sorted(places))}
        key = (
            len(sites),
            tuple(ranks[node] for node in places),
            tuple(self._around(places)),
            tuple(position for position, _ in ordered),
        )
        return self._number(key), tuple(number for _, number in ordered if number < self._decided)

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _in_order(self, sites: Sequence[int], ball: frozenset[int]) -> Iterator[int]:
        """The nodes of ``ball`` from ``sites`` outwards, then those that no tensor leads to."""
        matched = (node for site in sites for node in self._sites[site].match.nodes.values())
        ordered = dict.fromkeys(node.index for node in matched)
        waiting = list(ordered)
        for node in waiting:
            for other in self._neighbours[node]:
                if other in ball and other not in ordered:
                    ordered[other] = None
                    waiting.append(other)
        yield from ordered
        yield from sorted(ball - ordered.keys())

    def _placed(self, number: int, places: Mapping[int, int]) -> tuple[tuple[int, ...], int]:
        """Where a site is, and what it is; -1 for nodes that are further away."""
        site = self._sites[number]
        layouts = tuple(site.layouts) if number < self._decided else (site.default,)
        kind = self._number((site.match.rule.id, tuple(site.match.nodes), layouts))
        return tuple(places.get(n.index, -1) for n in site.match.nodes.values()), kind

    def _around(self, places: Mapping[int, int]) -> Iterator[int]:
        """What each node is, what writes what it reads, and what reads what it writes."""
        numbered: dict[str, int] = {}  # What several nodes read and none writes.
        for node in places:
            ports = self._ports[node]
            for end in ports.ends:
                yield places.get(end, -2 - self._labels[end]) if end >= 0 else end
            for tensor in ports.shared:
                yield numbered.setdefault(tensor, len(numbered))
            yield ports.label

    @cached_property
    def _neighbours(self) -> Sequence[Sequence[int]]:
        """By node those that write what it reads, and those that read what it writes."""
        return [list(dict.fromkeys(end for end in p.ends if end >= 0)) for p in self._ports]

    @cached_property
    def _labels(self) -> Sequence[int]:
        """What each node is by itself."""
        return [self._number(self._label(node)) for node in self._graph.nodes]

    def _label(self, node: Node) -> Hashable:
        attributes = sorted(a.SerializeToString(deterministic=True) for a in node.proto.attribute)
        scope = self._graph.scopes.get(node.name, ())
        return node.domain, node.op, tuple(attributes), scope, self._properties.nodes.get(node.name)

    @cached_property
    def _ports(self) -> Sequence[_Ports]:
        """The ports of each node."""
        return [self._ports_of(node) for node in self._graph.nodes]

    def _ports_of(self, node: Node) -> _Ports:
        graph, ends, facts = self._graph, list[int](), list[Hashable]()
        edges = graph.edges_into(node)
        for edge in edges:
            writer = graph.producer.get(edge.tensor)
            position = -1 if writer is None else writer.outputs.index(edge.tensor)
            facts.append((edge.input_index, position, self._tensor(edge.tensor)))
            ends.append(-1 if writer is None else writer.index)
        for tensor in node.outputs:
            readers = self._readers(tensor)
            facts.append((self._tensor(tensor), len(readers)))
            ends += readers
        label = self._number((self._labels[node.index], tuple(facts)))
        given = [e.tensor for e in edges if e.tensor not in graph.producer]
        shared = (tensor for tensor in given if len(graph.edges_of(tensor)) > 1)
        return _Ports(label, tuple(ends), tuple(shared))

    def _readers(self, tensor: str) -> list[int]:
        edges = self._graph.edges_of(tensor)
        return [-1 if e.is_graph_output else self._graph.by_name[e.node].index for e in edges]

    def _tensor(self, tensor: str) -> int:
        graph = self._graph
        edges = graph.edges_of(tensor) if tensor in graph.producer else ()
        readers = tuple(edge.input_index for edge in edges)
        known = graph.type_of(tensor)
        constant = self._constants.get(tensor)
        enters, left_open = tensor in graph.inputs, graph.open_tensors.get(tensor)
        properties = self._properties.of_tensor(tensor)
        return self._number((known, readers, constant, enters, left_open, properties))

    @cached_property
    def _constants(self) -> Mapping[str, Hashable]:
        """What may matter of the values of constants."""
        return {name: _values(tensor) for name, tensor in self._graph.initializers.items()}


def _values(tensor: TensorProto) -> Hashable:
    """All of few values; of many floats the only one that there is, if they are equal."""
    count = math.prod(tensor.dims)
    if is_external(tensor) or not 0 < count <= MANY:
        return None
    values = numpy_helper.to_array(tensor).ravel()
    if count <= FEW or values.dtype.kind in "iub":
        return hashlib.sha256(values.tobytes()).digest()
    return values[:1].tobytes() if (values == values[0]).all() else None
