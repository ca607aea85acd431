"""Parts of a model's outputs that metrics judge by themselves: what a Concat joined.

An output that joins heads of different range can hide a dead head in a metric of the whole, so each
head counts by itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from onnx import numpy_helper

from placer.graph import Graph, Node
from placer.graph.external_data import is_external
from placer.graph.operators import STANDARD_DOMAINS

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

    Parts are found by walking back from the output to a Concat and on from its inputs: through
    element-wise operators with one input that is not constant, through Transpose, and through
    Reshape as far as it keeps the Concat's axis: YOLOv5 joins boxes and scores along its last axis
    and flattens the grid before that (ONNX Runtime issue 14233).
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
    while axes and (node := graph.producer.get(tensor)) and node.domain in STANDARD_DOMAINS:
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
