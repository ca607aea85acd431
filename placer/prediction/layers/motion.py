"""Q/DQ motion: where an engine moves the pairs of a placement before it fuses layers.

TensorRT moves Q backward and DQ forward past nodes that commute with quantization (TensorRT
documentation, explicit quantization, Q/DQ layer optimizations). Both only add pairs that change
no value, so the motion-normal form of a placement is the placement with all of them added:
placements that move to the same pairs have the same form.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from placer.graph import Edge
from placer.quantization import Format, Placement
from placer.quantization.placement import ScaleGroup


class Scale(NamedTuple):
    """Which of a placement's scales.

    ``tensors``: those whose common range it covers. ``format``: of the values, None where it is the
    scheme's own. ``signed``: what reads it needs signed integers, whatever the scheme's are.
    ``apart``: Q is a layer of its own, and what writes the tensor writes floats. ``variant``: see
    ``ScaleGroup``.
    """

    tensors: frozenset[str]
    format: Format | None = None
    signed: bool = False
    apart: bool = False
    variant: int = 0


Scales = tuple[Scale, ...]  # The scales a tensor is quantized with, in turn; none: float.


@dataclass(frozen=True)
class Passage:
    """A node past which Q and DQ move: all its data inputs and all readers of its outputs.

    ``backward``: Q moves; ``forward``: DQ does. ``per_channel``: DQ moves past it with unequal
    scales too. ``forward_first``: DQ moves before any Q
    does, past this and what is linked with it. ``inside``: between several nodes that Q passes at
    once, which it does if none of these edges was given a pair. ``apart``: the edges of ``before``
    on which Q that moved is a layer of its own. ``without``: formats that do not. ``whole``: DQ
    moves only where no reader behind has a pair yet. ``turns``: it is a Transpose.
    """

    before: tuple[Edge, ...]
    after: tuple[Edge, ...]
    backward: bool = True
    forward: bool = True
    per_channel: bool = False
    forward_first: bool = False
    inside: tuple[Edge, ...] = ()
    apart: tuple[Edge, ...] = ()
    without: tuple[Format, ...] = ()
    whole: bool = False
    turns: bool = False


@dataclass(frozen=True)
class NormalForm:
    """The pairs of a placement after motion.

    ``scales``: the scale of each edge that carries a pair, given or moved there.
    ``second``: where a Q moved onto an edge that has a pair of another scale: the tensor passes
    through both. ``back``: the edges of ``scales`` that a Q moved onto; ``given``: those that
    had a pair before.
    """

    scales: Mapping[Edge, Scale]
    second: Mapping[Edge, Scale]
    back: Set[Edge] = frozenset()
    given: Set[Edge] = frozenset()

    def last(self, edge: Edge) -> Scale | None:
        """The scale in which the node at ``edge`` gets its integers; None for a float edge."""
        return self.second.get(edge, self.scales.get(edge))

    def chain(self, edge: Edge) -> Scales:
        """The scales that the tensor goes through at ``edge``."""
        first = self.scales.get(edge)
        if first is None:
            return ()
        second = self.second.get(edge)
        return (first,) if second is None else (first, second)

    def canonical(self) -> frozenset[frozenset[tuple[Edge, bool]]]:
        """Which pairs share a scale, whatever its range: equal for equal forms."""
        groups: dict[Scale, set[tuple[Edge, bool]]] = {}
        for edges, is_second in ((self.scales, False), (self.second, True)):
            for edge, scale in edges.items():
                groups.setdefault(scale, set()).add((edge, is_second))
        return frozenset(frozenset(group) for group in groups.values())


@dataclass
class FormDraft:
    """A normal form as it is made; see there."""

    scales: dict[Edge, Scale]
    second: dict[Edge, Scale] = field(default_factory=dict)
    back: set[Edge] = field(default_factory=set)

    def move_back(self, passage: Passage) -> bool:
        """Move the Q of all readers before the node if they have one scale; whether any moved."""
        scale = common_scale(passage.after, self.scales)
        if (
            scale is None
            or scale.format in passage.without
            or common_scale(passage.before, self.scales) is not None
        ):
            return False
        if passage.per_channel and scale == _joint(passage.before, self.scales):
            return False  # It came from there.
        changed = False
        for edge in passage.before:
            if edge not in self.scales:
                self.scales[edge] = scale
                self.back.add(edge)
                changed = True
            elif self.scales[edge] != scale and edge not in self.second:
                self.second[edge] = scale
                changed = True
        return changed

    def move_forward(self, passage: Passage) -> bool:
        """Move the DQ of all inputs behind the node if they have one scale, or may differ."""
        read = ChainMap(self.second, self.scales) if self.second else self.scales
        scale = common_scale(passage.before, read)
        if scale is None and passage.per_channel:
            scale = _joint(passage.before, read)
        missing = [edge for edge in passage.after if edge not in self.scales]
        if scale is None or scale.format in passage.without or not missing:
            return False
        if passage.whole and len(missing) < len(passage.after):
            return False  # The Q that is there and the one that comes would be two.
        self.scales.update(dict.fromkeys(missing, scale))
        return True

    def form(self) -> NormalForm:
        """What there is now."""
        return NormalForm(self.scales, self.second, self.back)


def scales_of(placement: Placement) -> dict[Edge, Scale]:
    """The scale of each quantized edge, before pairs move.

    Groups of the same tensors have the same range, so the same scale, unless a file has several.
    """
    return {edge: scale_of(group) for group in placement.groups for edge in group.edges}


def scale_of(group: ScaleGroup) -> Scale:
    """The scale of a placement's group."""
    tensors = frozenset(edge.tensor for edge in group.edges)
    return Scale(tensors, group.format, variant=group.variant)


def move_pairs(given: Mapping[Edge, Scale], passages: Sequence[Passage]) -> NormalForm:
    """Move pairs of ``given`` scales until nothing changes.

    Linear in the number of passages for each sweep; a sweep carries a pair over a whole chain.
    """
    draft = FormDraft(dict(given))
    if any(passage.forward_first for passage in passages):
        early = [p for p in passages if p.forward and not p.per_channel]
        changed = True
        while changed:
            moves = [draft.move_forward(passage) for passage in early]
            changed = any(moves)
    back = [p for p in passages if p.backward and given.keys().isdisjoint(p.inside)]
    back.reverse()
    changed = True
    while changed:
        moves = [draft.move_back(passage) for passage in back]
        moves += [draft.move_forward(passage) for passage in passages if passage.forward]
        changed = any(moves)
    return replace(draft.form(), given=frozenset(given))


def repeated(given: Mapping[Edge, Scale], passages: Sequence[Passage]) -> Iterator[Edge]:
    """The edges of ``given`` pairs that a DQ moves forward to whose scale is the same.

    But not behind a Concat: its inputs are quantized by then, most of them by the layer that would
    requantize. ``passages``: in node order.
    """
    known = dict(given)
    for passage in passages:
        scale = common_scale(passage.before, known) if passage.forward else None
        if scale is None:
            continue
        for edge in passage.after:
            again = known.setdefault(edge, scale) == scale and edge in given
            if again and not passage.per_channel:
                yield edge


def common_scale(edges: Sequence[Edge], scales: Mapping[Edge, Scale]) -> Scale | None:
    """The scale that all ``edges`` have, None if they differ or one is float."""
    distinct = {scales.get(edge) for edge in edges}
    return next(iter(distinct)) if len(distinct) == 1 else None


def _joint(edges: Sequence[Edge], scales: Mapping[Edge, Scale]) -> Scale | None:
    """What stands for the scales of all ``edges``, None if one is float or formats differ."""
    present = [scales[edge] for edge in edges if edge in scales]
    formats = {scale.format for scale in present}
    if len(present) < len(edges) or len(formats) > 1:
        return None
    tensors = frozenset[str]().union(*(scale.tensors for scale in present))
    return Scale(tensors, next(iter(formats), None))
