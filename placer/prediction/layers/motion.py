"""Q/DQ motion: where an engine moves the pairs of a placement before it fuses layers.

TensorRT moves Q backward and DQ forward past nodes that commute with quantization (TensorRT
documentation, explicit quantization, Q/DQ layer optimizations). Both only add pairs that change
no value, so the motion-normal form of a placement is the placement with all of them added:
placements that move to the same pairs have the same form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
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


class Bounds(NamedTuple):
    """Between which numbers a Relu or Clip leaves what it reads."""

    low: float = -math.inf
    high: float = math.inf


# Whether Q of a scale covers numbers outside of the bounds, so that it does not clamp to them.
Exceeds = Callable[[Scale, Bounds], bool]
RELU = Bounds(low=0.0)
Scales = tuple[Scale, ...]  # The scales a tensor is quantized with, in turn; none: float.


@dataclass(frozen=True)
class Passage:
    """A node past which Q and DQ move: all its data inputs and all readers of its outputs.

    ``backward``: Q moves; ``forward``: DQ does. ``per_channel``: DQ moves past it with unequal
    scales too. ``forward_first``: DQ moves before any Q
    does, past this and what is linked with it. ``inside``: between several nodes that Q passes at
    once, which it does if none of these edges was given a pair. ``apart``: the edges of ``before``
    on which Q that moved is a layer of its own. ``without``: formats that do not. ``whole``: DQ
    moves only where no reader behind has a pair yet. ``clamps``: to what the node clamps, if Q
    passes it only where that does so, too. ``turns``: it is a Transpose.
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
    clamps: Bounds | None = None
    turns: bool = False


@dataclass(frozen=True)
class NormalForm:
    """The pairs of a placement after motion.

    ``scales``: the scale of each edge that carries a pair, given or moved there.
    ``second``: where a Q moved onto an edge that has a pair of another scale: the tensor passes
    through both. ``back``: the edges of ``scales`` that a Q moved onto.
    """

    scales: Mapping[Edge, Scale]
    second: Mapping[Edge, Scale]
    back: Set[Edge] = frozenset()

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


# The parts of a normal form as it is made.
_Draft = tuple[dict[Edge, Scale], dict[Edge, Scale], set[Edge]]


def normal_form(placement: Placement, passages: Sequence[Passage]) -> NormalForm:
    """Move the pairs of ``placement`` until nothing changes.

    Groups of the same tensors have the same range, so the same scale, unless a file has several.
    """
    given = {edge: scale_of(group) for group in placement.groups for edge in group.edges}
    return move_pairs(given, passages)


def scale_of(group: ScaleGroup) -> Scale:
    """The scale of a placement's group."""
    tensors = frozenset(edge.tensor for edge in group.edges)
    return Scale(tensors, group.format, variant=group.variant)


def move_pairs(
    given: Mapping[Edge, Scale], passages: Sequence[Passage], outlasts: Exceeds | None = None
) -> NormalForm:
    """Move pairs of ``given`` scales until nothing changes.

    Linear in the number of passages for each sweep; a sweep carries a pair over a whole chain.
    ``outlasts``: whether a clamp stays before Q of a scale; those that go away do so last.
    """
    scales = dict(given)
    second: dict[Edge, Scale] = {}
    moved: set[Edge] = set()
    clamps = [passage for passage in passages if passage.clamps is not None]
    passages = [passage for passage in passages if passage.clamps is None]
    if any(passage.forward_first for passage in passages):
        early = [p for p in passages if p.forward and not p.per_channel]
        changed = True
        while changed:
            moves = [_forward(passage, scales) for passage in early]
            changed = any(moves)
    back = [p for p in passages if p.backward and given.keys().isdisjoint(p.inside)]
    back.reverse()
    changed = True
    while changed:
        moves = [_backward(passage, scales, second, moved) for passage in back]
        moves += [_forward(passage, scales) for passage in passages if passage.forward]
        changed = any(moves)
    if outlasts is not None and clamps:
        turns = [passage for passage in back if passage.turns]
        _move_past_clamps((scales, second, moved), clamps[::-1], turns, outlasts)
    return NormalForm(scales, second, moved)


def _move_past_clamps(
    form: _Draft, clamps: Sequence[Passage], turns: Sequence[Passage], outlasts: Exceeds
) -> None:
    """Move Q past the clamps that do nothing before it, and past Transposes.

    ONNX Runtime 1.32.0 takes out the last clamp of a row, moves Q past Transposes, and takes out
    the rest. ``clamps`` and ``turns``: the last first.
    """
    read_by_q = set(form[0])
    for passage in clamps:
        goes = read_by_q.issuperset(passage.after) and _go_on(passage, form, outlasts)
        if goes and passage.clamps != RELU:
            read_by_q.update(passage.before)  # A Relu before a Clip is one with it.
    moves = [True]
    while any(moves):
        moves = [_backward(passage, *form) for passage in turns]
    for passage in clamps:
        _go_on(passage, form, outlasts)


def _go_on(passage: Passage, form: _Draft, outlasts: Exceeds) -> bool:
    """Move Q past a clamp that does nothing before it."""
    scale = _common(passage.after, form[0])
    if scale is None or passage.clamps is None or outlasts(scale, passage.clamps):
        return False
    return _backward(passage, *form)


def repeated(given: Mapping[Edge, Scale], passages: Sequence[Passage]) -> Iterator[Edge]:
    """The edges of ``given`` pairs that a DQ moves forward to whose scale is the same.

    But not behind a Concat: its inputs are quantized by then, most of them by the layer that would
    requantize. ``passages``: in node order.
    """
    known = dict(given)
    for passage in passages:
        scale = _common(passage.before, known) if passage.forward else None
        if scale is None:
            continue
        for edge in passage.after:
            again = known.setdefault(edge, scale) == scale and edge in given
            if again and not passage.per_channel:
                yield edge


def _backward(
    passage: Passage, scales: dict[Edge, Scale], second: dict[Edge, Scale], moved: set[Edge]
) -> bool:
    """Move the Q of all readers before the node, to ``moved`` edges, if they have one scale."""
    scale = _common(passage.after, scales)
    if (
        scale is None
        or scale.format in passage.without
        or _common(passage.before, scales) is not None
    ):
        return False
    if passage.per_channel and scale == _joint(passage.before, scales):
        return False  # It came from there.
    changed = False
    for edge in passage.before:
        if edge not in scales:
            scales[edge] = scale
            moved.add(edge)
            changed = True
        elif scales[edge] != scale and edge not in second:
            second[edge] = scale
            changed = True
    return changed


def _forward(passage: Passage, scales: dict[Edge, Scale]) -> bool:
    """Move the DQ of all inputs behind the node if they have one scale, or may differ."""
    scale = _common(passage.before, scales)
    if scale is None and passage.per_channel:
        scale = _joint(passage.before, scales)
    missing = [edge for edge in passage.after if edge not in scales]
    if scale is None or scale.format in passage.without or not missing:
        return False
    if passage.whole and len(missing) < len(passage.after):
        return False  # The Q that is there and the one that comes would be two.
    scales.update(dict.fromkeys(missing, scale))
    return True


def _common(edges: Sequence[Edge], scales: Mapping[Edge, Scale]) -> Scale | None:
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
