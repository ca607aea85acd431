"""Metrics of a candidate's outputs against the float model's, accumulated batch by batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from onnx import numpy_helper

from placer.graph import Graph, Node
from placer.graph.external_data import is_external

# Operators of which each output element depends on the input element at the same position alone.
_ELEMENT_WISE = frozenset(
    "Identity Cast Sigmoid Relu Tanh Clip Exp HardSigmoid LeakyRelu Add Sub Mul Div Round".split()
)
# Operators that keep the elements and their order, so every axis with as many elements before it.
_RESHAPING = frozenset("Reshape Flatten Squeeze Unsqueeze".split())

# For each axis of a tensor the axis of the graph output it became; None if it was merged.
_Axes = tuple[int | None, ...]


class Span(NamedTuple):
    """Indices ``start`` to ``stop`` (excluded) along ``axis``."""

    axis: int
    start: int
    stop: int


@dataclass(frozen=True)
class ChannelGroup:
    """A part of a graph output: the elements within all ``spans``; the whole if there are none."""

    output: str
    spans: tuple[Span, ...] = ()

    @property
    def name(self) -> str:
        """E.g. ``output0``, ``output0[4:84, axis 1]`` or ``out[0:64, axis 1; 4:5, axis 2]``."""
        if not self.spans:
            return self.output
        spans = "; ".join(f"{s.start}:{s.stop}, axis {s.axis}" for s in self.spans)
        return f"{self.output}[{spans}]"

    def cut(self, values: np.ndarray) -> np.ndarray:
        """The part of ``values``, an array of the output's rank."""
        index = [slice(None)] * values.ndim
        for axis, start, stop in self.spans:
            index[axis] = slice(start, stop)
        return values[tuple(index)]


def channel_groups(graph: Graph) -> tuple[ChannelGroup, ...]:
    """The whole of each output, and its parts where it concatenates several tensors.

    An output that joins heads of different range can hide a dead head in a metric of the whole,
    so each head counts by itself. Heads are found by walking back from the output to a Concat and
    on from its inputs: through element-wise operators with one input that is not constant,
    through Transpose, and through Reshape as far as it keeps the Concat's axis: YOLOv5 joins boxes
    and scores along its last axis and flattens the grid before that (ONNX Runtime issue 14233).
    Concats of Concats along one axis yield one span, along several axes (e.g. heads by channel,
    then strides by anchor) one span per axis. ScatterND that writes a slice, as PyTorch exports
    ``y[..., :2] = xy``, joins what it writes and what it leaves. Only tensors of known shape are
    followed.
    """
    groups: list[ChannelGroup] = []
    for output in graph.outputs:
        shape = graph.type_of(output).shape
        axes = tuple(range(len(shape))) if shape else ()
        parts = [ChannelGroup(output, spans) for spans in _parts(graph, output, axes, {})]
        groups += [ChannelGroup(output), *(parts if len(parts) > 1 else ())]
    return tuple(groups)


def _parts(
    graph: Graph, tensor: str, axes: _Axes, spans: Mapping[int, Span]
) -> Iterator[tuple[Span, ...]]:
    """The spans of all tensors that were joined into ``tensor``, which itself fills ``spans``."""
    concat, axes = _joining_node(graph, tensor, axes)
    if concat is not None and concat.op == "ScatterND":
        yield from _slices(graph, concat, axes, spans)
        return
    shapes = [graph.type_of(t).shape for t in concat.inputs] if concat else []
    axis = concat.attributes["axis"] % len(axes) if concat else 0
    joined = axes[axis] if concat else None
    sizes = [shape[axis] for shape in shapes if shape]
    if concat is None or joined is None or len(sizes) < len(shapes):
        yield tuple(sorted(spans.values()))
        return
    start = spans[joined].start if joined in spans else 0
    for part, size in zip(concat.inputs, sizes, strict=True):
        if size:
            span = Span(joined, start, start + size)
            yield from _parts(graph, part, axes, {**spans, joined: span})
        start += size


def _slices(
    graph: Graph, node: Node, axes: _Axes, spans: Mapping[int, Span]
) -> Iterator[tuple[Span, ...]]:
    """The spans that a row of ScatterND nodes wrote along one axis, and those between."""
    written: list[Span] = []
    last: Node | None = node
    while last is not None and last.op == "ScatterND":
        cut = _written(graph, last)
        if cut is None or (written and cut.axis != written[0].axis):
            break
        written.append(cut)
        last = graph.producer.get(last.inputs[0])
    joined = axes[written[0].axis] if written else None
    if joined is None:
        yield tuple(sorted(spans.values()))
        return
    size = (graph.type_of(node.outputs[0]).shape or ())[written[0].axis]
    cuts = sorted({0, size, *(edge for one in written for edge in (one.start, one.stop))})
    start = spans[joined].start if joined in spans else 0
    for low, high in itertools.pairwise(cuts):
        span = Span(joined, start + low, start + high)
        yield tuple(sorted({**spans, joined: span}.values()))


def _written(graph: Graph, node: Node) -> Span | None:
    """What a ScatterND writes if that is a slice along one axis, by its constant indices."""
    shape, constant = graph.type_of(node.inputs[0]).shape, graph.initializers.get(node.inputs[1])
    if shape is None or constant is None or is_external(constant):
        return None
    depth = constant.dims[-1] if constant.dims else 0
    if not math.prod(constant.dims) or not 0 < depth <= len(shape):
        return None
    places = numpy_helper.to_array(constant).reshape(-1, depth)
    low, high = places.min(axis=0).tolist(), (places.max(axis=0) + 1).tolist()
    edges = list(zip(low, high, strict=True))
    cut = [axis for axis, edge in enumerate(edges) if edge != (0, shape[axis])]
    inside = math.prod(after - before for before, after in edges)
    if len(cut) != 1 or low[cut[0]] < 0 or len(np.unique(places, axis=0)) != inside:
        return None
    return Span(cut[0], low[cut[0]], high[cut[0]])


def _joining_node(graph: Graph, tensor: str, axes: _Axes) -> tuple[Node | None, _Axes]:
    """The Concat or ScatterND that ``tensor`` comes from, if any, and what its axes became."""
    while axes and (node := graph.producer.get(tensor)) and node.domain in ("", "ai.onnx"):
        if node.op in ("Concat", "ScatterND"):
            return node, axes
        variable = [t for t in node.inputs if t and t not in graph.initializers]
        if len(variable) != 1:
            break
        before, after = graph.type_of(variable[0]).shape, graph.type_of(tensor).shape
        if before is None or after is None:
            break
        tensor, axes = variable[0], _axes_before(node, before, after, axes)
    return None, axes


def _axes_before(node: Node, before: tuple[int, ...], after: tuple[int, ...], axes: _Axes) -> _Axes:
    """What the axes of the node's input became; empty if the node cannot be followed."""
    if node.op == "Transpose":
        permutation = node.attributes.get("perm") or range(len(before))[::-1]
        return tuple(became for _, became in sorted(zip(permutation, axes, strict=True)))
    if node.op in _RESHAPING:
        kept = {(math.prod(after[:i]), size): axes[i] for i, size in enumerate(after) if size > 1}
        return tuple(kept.get((math.prod(before[:i]), size)) for i, size in enumerate(before))
    return axes if node.op in _ELEMENT_WISE and before == after else ()


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
        # A candidate may overflow: the sums carry NaN and infinity on to a value that fails.
        with np.errstate(invalid="ignore", over="ignore"):
            self.reference += float(ref @ ref)
            self.candidate += float(can @ can)
            self.product += float(ref @ can)
            difference = can - ref
            self.error += float(difference @ difference)
        if difference.size:
            # np.maximum keeps NaN, which max() would lose.
            self.max_abs = float(np.maximum(self.max_abs, np.abs(difference).max()))

    def add_mismatch(self, reference: np.ndarray) -> None:
        """Add one batch whose candidate has another shape, so an error without bound."""
        ref = reference.astype(np.float64).ravel()
        self.reference += float(ref @ ref)
        self.error = self.max_abs = math.inf
        self.product = math.nan

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
        return decibels(self.noise)

    @property
    def cosine(self) -> float:
        """Cosine of the angle between reference and candidate; 1 without error."""
        if self.error == 0:
            return 1.0
        norm = math.sqrt(self.reference) * math.sqrt(self.candidate)
        # A product that is NaN stays so: where nothing compares, no angle may pass.
        return self.product / norm if norm else 0.0 * self.product


def decibels(noise: float) -> float:
    """SQNR in dB of error power over signal power: inf for 0, -inf for infinity."""
    if noise == 0:
        return math.inf
    return -math.inf if math.isinf(noise) else 10 * math.log10(1 / noise)


@dataclass
class ClassCounts:
    """Running counts over the classes that one output tells.

    A float output scores classes along its last axis (axis 1 for rank 2); an integer output holds
    class indices, of which the largest that was seen tells the number of ``classes``. Labels count
    where there are as many as the output tells classes; ``outside`` counts those of no class. Where
    the float model's best score is not finite it meets no label.
    """

    positions: int = 0
    agreeing: int = 0
    labelled: int = 0
    correct: int = 0
    reference_correct: int = 0
    classes: int = 0
    outside: int = 0

    def add(self, reference: np.ndarray, candidate: np.ndarray, labels: np.ndarray | None) -> None:
        """Add one batch; ``labels`` has one integer per position or is None."""
        expected = _classes(reference)
        if expected is None:
            return
        got = _finite_classes(candidate) if candidate.shape == reference.shape else None
        self.positions += expected.size
        self.agreeing += 0 if got is None else int((got == expected).sum())
        if labels is not None and labels.size == expected.size:
            truth = labels.reshape(expected.shape)
            self.labelled += truth.size
            self.correct += 0 if got is None else int((got == truth).sum())
            classes = _finite_classes(reference)
            self.reference_correct += 0 if classes is None else int((classes == truth).sum())
            if _is_index(reference):
                largest = max(int(truth.max(initial=0)), int(expected.max(initial=0)))
                self.classes = max(self.classes, largest + 1, 2)
                self.outside += int((truth < 0).sum())
            else:
                self.classes = reference.shape[-1]
                self.outside += int(((truth < 0) | (truth >= self.classes)).sum())

    @property
    def agreement(self) -> float:
        """Fraction of positions with the float model's class."""
        return self.agreeing / self.positions if self.positions else math.nan

    @property
    def top1(self) -> float:
        """Fraction of labelled positions with the right class; NaN without labels."""
        return self.correct / self.labelled if self.labelled else math.nan

    @property
    def top1_drop(self) -> float:
        """The float model's ``top1`` minus the candidate's; NaN without labels."""
        # One division: 0.99 - 0.98 is more than 0.01.
        drop = self.reference_correct - self.correct
        return drop / self.labelled if self.labelled else math.nan


def _classes(values: np.ndarray) -> np.ndarray | None:
    """Class index per position; None where no axis holds classes."""
    if _is_index(values):
        return values
    return values.argmax(axis=-1) if values.ndim > 1 and values.shape[-1] else None


def _is_index(values: np.ndarray) -> bool:
    return values.dtype.kind in "iub"


def _finite_classes(values: np.ndarray) -> np.ndarray | None:
    """``_classes``, -1 where the best score is not finite; a score of -inf masks a class."""
    classes = _classes(values)
    if classes is None or _is_index(values):
        return classes
    return np.where(np.isfinite(values.max(axis=-1)), classes, -1)


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
        """Add one batch of outputs.

        A shape that depends on the data (e.g. of detections) may differ: that batch counts as
        wrong altogether. What ``reference`` lacks is not compared.
        """
        for group, sums in self.groups.items():
            if group.output not in reference:
                continue
            expected, got = reference[group.output], candidate[group.output]
            if expected.shape == got.shape:
                sums.add(group.cut(expected), group.cut(got))
            else:
                sums.add_mismatch(group.cut(expected))
        for output, counts in self.classes.items():
            if output in reference:
                counts.add(reference[output], candidate[output], labels)


def finite(value: float) -> float | None:
    """``value`` for JSON, which has no infinity and no NaN: those become null."""
    return value if math.isfinite(value) else None
