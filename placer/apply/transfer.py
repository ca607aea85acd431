"""Find the edges of a placement in another file of its network: retrained, re-exported, renamed."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from placer.errors import InputError
from placer.graph import Edge, Graph
from placer.graph.matching import Correspondence, correspond
from placer.graph.structure import GRAPH_OUTPUT, Structure, structure_of
from placer.model import Model
from placer.quantization import Placement, Range, Ranges, union
from placer.quantization.placement import ScaleGroup
from placer.quantization.placement_file import Group, Pin, PlacementFile

MAX_CANDIDATES = 3


@dataclass(frozen=True)
class Found:
    """An edge of the placement file and the model's edge that it is.

    ``by_name``: the node is called the same in both. ``operators``: what its operator was and is,
    where exporters write one for the other; None where it is the same, or the file does not tell.
    """

    source: Edge
    edge: Edge
    operators: tuple[str, str] | None = None

    @property
    def by_name(self) -> bool:
        """See the class."""
        if self.edge.is_graph_output:
            return self.source.tensor == self.edge.tensor
        return self.source.node == self.edge.node


@dataclass(frozen=True)
class Lost:
    """An edge of the placement file that the model does not have.

    ``operator``: of its node; empty if the file does not tell. ``candidates``: nodes of the model
    that it might have become, the most likely first.
    """

    edge: Edge
    operator: str
    reason: str
    candidates: tuple[str, ...]


@dataclass(frozen=True)
class BrokenGroup:
    """A scale group of which only a part is found: it shares its scale with fewer edges."""

    kept: tuple[Edge, ...]
    lost: tuple[Edge, ...]


@dataclass(frozen=True, eq=False)
class Transferred:
    """What ``transfer_placement`` finds.

    ``ranges``: the file's, by the model's tensors; they are those of the other weights.
    ``pinned``: of these tensors, what the user gave (``placer.quantization.overrides``).
    ``is_exact``: the models have the same structure, node by node; None if the file does not tell.
    ``new_nodes``: nodes of the model that correspond to none, in order; none if ``is_exact`` is
    None.
    """

    placement: Placement
    ranges: Ranges
    pinned: Mapping[str, Pin]
    found: tuple[Found, ...]
    lost: tuple[Lost, ...]
    broken: tuple[BrokenGroup, ...]
    is_exact: bool | None
    new_nodes: tuple[str, ...]


def transfer_placement(file: PlacementFile, model: Model) -> Transferred:
    """Find the edges of ``file`` in ``model``, by name and by structure.

    With the structure in the file, nodes are matched by what is around them, and names only
    decide between nodes that are alike. Files of earlier versions have none: there, names alone.
    Raises InputError if the file contradicts itself, or if it has edges and the model none of them.
    """
    finder = _Finder(file, model.graph)
    groups = [
        _TransferredGroup.of(group, finder)
        for group in sorted(file.groups, key=lambda group: sorted(group.edges))
    ]
    found = tuple(edge for group in groups for edge in group.found)
    lost = tuple(edge for group in groups for edge in group.lost)
    if lost and not found:
        raise InputError(
            f"{file.path}: none of its {len(lost)} edges is found in {model.path}; "
            "give the placement of this network, or run placer optimize"
        )
    ranges, pinned = _ranges_and_pins(groups)
    matched = finder.correspondence
    return Transferred(
        placement=_placement(groups, None if file.base == "float" else file.base),
        ranges=ranges,
        pinned=pinned,
        found=found,
        lost=lost,
        broken=tuple(
            BrokenGroup(tuple(sorted(group.edges)), tuple(lost.edge for lost in group.lost))
            for group in groups
            if group.edges and group.lost
        ),
        is_exact=None if matched is None else matched.is_exact,
        new_nodes=() if matched is None else tuple(_new_nodes(matched)),
    )


@dataclass(frozen=True)
class _TransferredGroup:
    """A scale group of the file, and what is found of it."""

    source: Group
    found: tuple[Found, ...]
    lost: tuple[Lost, ...]

    @staticmethod
    def of(group: Group, finder: _Finder) -> _TransferredGroup:
        results = [finder.find(edge) for edge in sorted(group.edges)]
        return _TransferredGroup(
            group,
            tuple(result for result in results if isinstance(result, Found)),
            tuple(result for result in results if isinstance(result, Lost)),
        )

    @property
    def edges(self) -> frozenset[Edge]:
        return frozenset(found.edge for found in self.found)


def _placement(groups: Sequence[_TransferredGroup], base: str | None) -> Placement:
    per_tensor = frozenset(
        found.edge
        for group in groups
        for found in group.found
        if found.source in group.source.per_tensor
    )
    found = (group for group in groups if group.edges)
    scale_groups = frozenset(ScaleGroup(group.edges, group.source.format) for group in found)
    return Placement(scale_groups, per_tensor, base)


def _ranges_and_pins(
    groups: Sequence[_TransferredGroup],
) -> tuple[dict[str, Range], dict[str, Pin]]:
    """By tensor of the model the range of all groups that it is in, and what is pinned of it."""
    ranges: dict[str, Range] = {}
    pinned: dict[str, Pin] = {}
    for group in groups:
        if group.source.range is None:
            continue
        for tensor in {edge.tensor for edge in group.edges}:
            known = [ranges[tensor]] if tensor in ranges else []
            ranges[tensor] = union([group.source.range, *known])
            if group.source.pinned is not None:
                pinned[tensor] = group.source.pinned
    return ranges, pinned


def _new_nodes(matched: Correspondence) -> Iterator[str]:
    partners = set(matched.pairs.values())
    for name, position in matched.target.nodes.items():
        if position not in partners:
            yield name


class _Finder:
    """Finds edges of a file in a graph."""

    def __init__(self, file: PlacementFile, graph: Graph) -> None:
        self._file = file
        self._graph = graph
        self._target = structure_of(graph)
        self.correspondence = (
            None if file.structure is None else correspond(file.structure, self._target)
        )

    def find(self, edge: Edge) -> Found | Lost:
        """The model's edge, or why there is none."""
        if self.correspondence is None:
            return self._by_name(edge)
        source = self._position(edge, self.correspondence.source)
        vertex = self.correspondence.source.vertices[source]
        operator = "" if vertex.op == GRAPH_OUTPUT else vertex.op
        partner = self.correspondence.pairs.get(source)
        if partner is None:
            alike = self._unpaired(vertex.kind)
            return Lost(edge, operator, "no node corresponds to its own", _closest(edge, alike))
        found = self._target.vertices[partner]
        if vertex.op == GRAPH_OUTPUT:
            match = Edge(found.name, "", self._target.outputs.index(partner))
            return self._checked(edge, match, operator, found.op)
        index = self.correspondence.input_index(source, edge.input_index)
        if index is None:
            return Lost(edge, operator, f"node '{found.name}' has no such input", (found.name,))
        match = Edge(found.inputs[index], found.name, index)
        return self._checked(edge, match, operator, found.op)

    def _position(self, edge: Edge, source: Structure) -> int:
        if edge.is_graph_output and edge.input_index < len(source.outputs):
            return source.outputs[edge.input_index]
        position = source.nodes.get(edge.node)
        if position is None or edge.input_index >= len(source.vertices[position].inputs):
            raise InputError(
                f"{self._file.path}: field 'structure' does not have the edge {edge}; "
                "let placer write the file"
            )
        return position

    def _by_name(self, edge: Edge) -> Found | Lost:
        reads = self._graph.outputs if edge.is_graph_output else ()
        if edge.node in self._graph.by_name:
            reads = self._graph.by_name[edge.node].inputs
        if edge.input_index >= len(reads) or not reads[edge.input_index]:
            reason = "the model has no such node or input, and the file tells no structure"
            return Lost(edge, "", reason, _closest(edge, list(self._graph.by_name)))
        match = Edge(reads[edge.input_index], edge.node, edge.input_index)
        return self._checked(edge, match, "", "")

    def _checked(self, edge: Edge, match: Edge, was: str, operator: str) -> Found | Lost:
        if self._graph.type_of(match.tensor).is_quantizable:
            is_other = was and was != operator
            return Found(edge, match, (was, operator) if is_other else None)
        return Lost(edge, was, f"'{match.tensor}' is not a float32, float16 or bfloat16 tensor", ())

    @cached_property
    def _unpaired_by_kind(self) -> Mapping[str, list[str]]:
        by_kind: dict[str, list[str]] = {}
        if self.correspondence is not None:
            for name in _new_nodes(self.correspondence):
                vertex = self._target.vertices[self._target.nodes[name]]
                by_kind.setdefault(vertex.kind, []).append(name)
        return by_kind

    def _unpaired(self, kind: str) -> list[str]:
        return self._unpaired_by_kind.get(kind, [])


def _closest(edge: Edge, names: list[str]) -> tuple[str, ...]:
    if edge.is_graph_output:
        return ()
    return tuple(difflib.get_close_matches(edge.node, names, MAX_CANDIDATES, cutoff=0.5))
