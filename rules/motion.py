"""Q/DQ motion: where an engine moves the pairs of a placement before it fuses layers.

TensorRT moves Q backward and DQ forward past nodes that commute with quantization (TensorRT
documentation, explicit quantization, Q/DQ layer optimizations). Both only add pairs that change
no value, so the motion-normal form of a placement is the placement with all of them added:
placements that move to the same pairs have the same form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from placer.graph import Edge, Graph
from placer.placement import Placement
from placer.rules.matcher import Match, find_matches
from placer.rules.schema import Motion, Rule

Scale = int  # Which of a placement's scales; the number itself means nothing.


@dataclass(frozen=True)
class Passage:
    """A node past which Q and DQ move: all its data inputs and all readers of its outputs."""

    before: tuple[Edge, ...]
    after: tuple[Edge, ...]


@dataclass(frozen=True)
class NormalForm:
    """The pairs of a placement after motion.

    ``scales``: the scale of each edge that carries a pair, given or moved there.
    ``second``: where a Q moved onto an edge that has a pair of another scale: the tensor passes
    through both.
    """

    scales: Mapping[Edge, Scale]
    second: Mapping[Edge, Scale]

    def last(self, edge: Edge) -> Scale | None:
        """The scale in which the node at ``edge`` gets its integers; None for a float edge."""
        return self.second.get(edge, self.scales.get(edge))

    def canonical(self) -> frozenset[frozenset[tuple[Edge, bool]]]:
        """Which pairs share a scale, without numbers: equal for equal forms."""
        groups: dict[Scale, set[tuple[Edge, bool]]] = {}
        for edges, is_second in ((self.scales, False), (self.second, True)):
            for edge, scale in edges.items():
                groups.setdefault(scale, set()).add((edge, is_second))
        return frozenset(frozenset(group) for group in groups.values())


def find_passages(graph: Graph, rules: Iterable[Rule]) -> tuple[Passage, ...]:
    """The nodes of ``graph`` that rules let Q and DQ pass, in node order."""
    found = [
        (match.anchor.index, _passage(match, motion, graph))
        for rule in rules
        if (motion := rule.motion) is not None
        for match in find_matches(graph, rule)
    ]
    return tuple(passage for _, passage in sorted(found, key=lambda item: item[0]))


def _passage(match: Match, motion: Motion, graph: Graph) -> Passage:
    inside = {node.name for node in match.nodes.values()}
    before = (e for t in match.tensors[motion.before] for e in graph.edges_of(t))
    after = (e for t in match.tensors[motion.after] for e in graph.edges_of(t))
    return Passage(
        before=tuple(e for e in before if e.node in inside and e.tensor not in graph.initializers),
        after=tuple(after),
    )


def normal_form(placement: Placement, passages: Sequence[Passage]) -> NormalForm:
    """Move the pairs of ``placement`` until nothing changes.

    Linear in the number of passages for each sweep; a sweep carries a pair over a whole chain.
    """
    scales = _scales(placement)
    second: dict[Edge, Scale] = {}
    changed = True
    while changed:
        moves = [_backward(passage, scales, second) for passage in reversed(passages)]
        moves += [_forward(passage, scales) for passage in passages]
        changed = any(moves)
    return NormalForm(scales, second)


def _scales(placement: Placement) -> dict[Edge, Scale]:
    """Number the groups; groups of the same tensors have the same range, so the same scale."""
    numbers: dict[frozenset[str], Scale] = {}
    found = {}
    for group in placement.sorted():
        number = numbers.setdefault(frozenset(edge.tensor for edge in group), len(numbers))
        found.update(dict.fromkeys(group, number))
    return found


def _backward(passage: Passage, scales: dict[Edge, Scale], second: dict[Edge, Scale]) -> bool:
    """Move the Q of all readers before the node if they have one scale."""
    scale = _common(passage.after, scales)
    if scale is None or _common(passage.before, scales) is not None:
        return False
    changed = False
    for edge in passage.before:
        if edge not in scales:
            scales[edge] = scale
            changed = True
        elif scales[edge] != scale and edge not in second:
            second[edge] = scale
            changed = True
    return changed


def _forward(passage: Passage, scales: dict[Edge, Scale]) -> bool:
    """Move the DQ of all inputs behind the node if they have one scale."""
    scale = _common(passage.before, scales)
    missing = [edge for edge in passage.after if edge not in scales]
    if scale is None or not missing:
        return False
    scales.update(dict.fromkeys(missing, scale))
    return True


def _common(edges: Sequence[Edge], scales: Mapping[Edge, Scale]) -> Scale | None:
    """The scale that all ``edges`` have, None if they differ or one is float."""
    found = {scales.get(edge) for edge in edges}
    return next(iter(found)) if len(found) == 1 else None
