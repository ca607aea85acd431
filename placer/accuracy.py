"""Metrics of a candidate's outputs against the float model's, accumulated batch by batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from placer.graph import Graph, Node

_SHAPE_KEEPING = frozenset(
    {"Identity", "Cast", "Sigmoid", "Relu", "Tanh", "Clip", "Exp", "HardSigmoid", "LeakyRelu"}
)


@dataclass(frozen=True)
class ChannelGroup:
    """Indices ``start`` to ``stop`` of an output along ``axis``; the whole if axis is None."""

    output: str
    axis: int | None = None
    start: int = 0
    stop: int = 0

    @property
    def name(self) -> str:
        """E.g. ``output0`` or ``output0[4:84, axis 1]``."""
        if self.axis is None:
            return self.output
        return f"{self.output}[{self.start}:{self.stop}, axis {self.axis}]"

    def cut(self, values: np.ndarray) -> np.ndarray:
        """The part of ``values``."""
        if self.axis is None:
            return values
        index = [slice(None)] * values.ndim
        index[self.axis] = slice(self.start, self.stop)
        return values[tuple(index)]


def channel_groups(graph: Graph) -> tuple[ChannelGroup, ...]:
    """The whole of each output, and its parts where it concatenates several tensors.

    An output that joins heads of different range can hide a dead head in a metric of the whole,
    so each head counts by itself. Heads are found by walking back from the output through
    operators that keep shapes and through Transpose to a Concat; Concats of Concats along the
    same axis are taken apart.
    """
    found: list[ChannelGroup] = []
    for output in graph.outputs:
        found.append(ChannelGroup(output))
        joined = _joining_concat(graph, output)
        if joined is not None:
            node, permutation = joined
            found += _parts(graph, output, node, permutation)
    return tuple(found)


def _joining_concat(graph: Graph, tensor: str) -> tuple[Node, tuple[int, ...] | None] | None:
    """The Concat behind ``tensor`` and where each of the output's axes was in it."""
    permutation: tuple[int, ...] | None = None
    node = graph.producer.get(tensor)
    while node is not None and node.op != "Concat":
        if node.op == "Transpose":
            own = node.attributes.get("perm")
            rank = len(graph.type_of(node.inputs[0]).shape or ())
            order = tuple(own) if own else tuple(reversed(range(rank)))
            permutation = tuple(order[i] for i in permutation) if permutation else order
        elif node.op not in _SHAPE_KEEPING:
            return None
        node = graph.producer.get(node.inputs[0])
    return None if node is None else (node, permutation)


def _parts(
    graph: Graph, output: str, concat: Node, permutation: tuple[int, ...] | None
) -> list[ChannelGroup]:
    sizes = _sizes(graph, concat)
    rank = len(graph.type_of(concat.outputs[0]).shape or ())
    if sizes is None or len(sizes) < 2 or not rank:
        return []
    axis = concat.attributes["axis"] % rank
    if permutation is not None:
        axis = permutation.index(axis)
    bounds = np.cumsum([0, *sizes]).tolist()
    return [ChannelGroup(output, axis, start, stop) for start, stop in itertools.pairwise(bounds)]


def _sizes(graph: Graph, concat: Node) -> list[int] | None:
    """Lengths of the joined parts along the axis; None if one is unknown."""
    sizes: list[int] = []
    for tensor in concat.inputs:
        shape = graph.type_of(tensor).shape
        if shape is None:
            return None
        axis = concat.attributes["axis"] % len(shape)
        inner = graph.producer.get(tensor)
        nested = None
        if inner is not None and inner.op == "Concat":
            same_axis = inner.attributes["axis"] % len(shape) == axis
            nested = _sizes(graph, inner) if same_axis else None
        sizes += nested or [shape[axis]]
    return sizes


@dataclass
class GroupSums:
    """Running sums over one channel group, in float64."""

    reference: float = 0.0
    candidate: float = 0.0
    product: float = 0.0
    error: float = 0.0
    max_abs: float = 0.0

    def add(self, reference: np.ndarray, candidate: np.ndarray) -> None:
        """Add one batch; shapes must be equal."""
        ref = reference.astype(np.float64).ravel()
        can = candidate.astype(np.float64).ravel()
        self.reference += float(ref @ ref)
        self.candidate += float(can @ can)
        self.product += float(ref @ can)
        difference = can - ref
        self.error += float(difference @ difference)
        if difference.size:
            # np.maximum keeps NaN, which max() would lose.
            self.max_abs = float(np.maximum(self.max_abs, np.abs(difference).max()))

    @property
    def noise(self) -> float:
        """Error power over signal power; 0 without error, infinite where it is not finite."""
        if self.error == 0:
            return 0.0
        ratio = self.error / self.reference if self.reference else math.inf
        return ratio if math.isfinite(ratio) else math.inf

    @property
    def sqnr(self) -> float:
        """10 log10(signal power / error power) in dB; inf without error."""
        if self.noise == 0:
            return math.inf
        return -math.inf if math.isinf(self.noise) else -10 * math.log10(self.noise)

    @property
    def cosine(self) -> float:
        """Cosine of the angle between reference and candidate; 1 if both are zero."""
        norm = math.sqrt(self.reference) * math.sqrt(self.candidate)
        if norm == 0:
            return 1.0 if self.error == 0 else 0.0
        return self.product / norm


@dataclass
class ClassCounts:
    """Running counts over one output's class axis: 1 for rank 2, else the last."""

    positions: int = 0
    agreeing: int = 0
    labelled: int = 0
    correct: int = 0
    reference_correct: int = 0

    def add(self, reference: np.ndarray, candidate: np.ndarray, labels: np.ndarray | None) -> None:
        """Add one batch; ``labels`` has one class index per position or is None."""
        if reference.ndim < 2:
            return
        expected, got = reference.argmax(axis=-1), candidate.argmax(axis=-1)
        # argmax of NaN is the NaN's position, which agrees with nothing.
        valid = np.isfinite(candidate.astype(np.float64)).all(axis=-1)
        self.positions += expected.size
        self.agreeing += int(((expected == got) & valid).sum())
        if labels is not None and labels.size == expected.size:
            truth = labels.reshape(expected.shape)
            self.labelled += truth.size
            self.correct += int(((got == truth) & valid).sum())
            self.reference_correct += int((expected == truth).sum())

    @property
    def agreement(self) -> float:
        """Fraction of positions with the float model's class."""
        return self.agreeing / self.positions if self.positions else math.nan

    @property
    def top1(self) -> float:
        """Fraction of labelled positions with the right class; NaN without labels."""
        return self.correct / self.labelled if self.labelled else math.nan

    @property
    def reference_top1(self) -> float:
        """The float model's ``top1``."""
        return self.reference_correct / self.labelled if self.labelled else math.nan


@dataclass
class Comparison:
    """Sums over all batches, by channel group and by output."""

    groups: Mapping[ChannelGroup, GroupSums]
    classes: Mapping[str, ClassCounts] = field(default_factory=dict)

    @staticmethod
    def of(groups: tuple[ChannelGroup, ...]) -> Comparison:
        """An empty comparison of these groups."""
        outputs = dict.fromkeys(group.output for group in groups)
        return Comparison({g: GroupSums() for g in groups}, {o: ClassCounts() for o in outputs})

    def add(
        self,
        reference: Mapping[str, np.ndarray],
        candidate: Mapping[str, np.ndarray],
        labels: np.ndarray | None,
    ) -> None:
        """Add one batch of outputs."""
        for group, sums in self.groups.items():
            sums.add(group.cut(reference[group.output]), group.cut(candidate[group.output]))
        for output, counts in self.classes.items():
            counts.add(reference[output], candidate[output], labels)


def finite(value: float) -> float | None:
    """``value`` for JSON, which has no infinity and no NaN: those become null."""
    return value if math.isfinite(value) else None
