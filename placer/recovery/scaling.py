"""Channels rescaled between layers: cross-layer equalization and SmoothQuant.

A tensor with one scale suffers where its channels differ in size. A factor for each channel moves
the difference from the tensor into the weights that read it, which have scales of their own. What
writes the tensor is divided by the factors, what reads it multiplied: in float nothing changes but
rounding.

Sources: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction"
(2019), section 4.1, for the layers that allow it; Xiao et al., "SmoothQuant" (2023), equation 4,
for the factors: a ** alpha / w ** (1 - alpha), where a is the largest magnitude of a channel of the
tensor and w that of the weights that read it, here relative to each output channel's largest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from placer.calibration.collect import calibrate
from placer.graph import Edge, Graph, Node
from placer.graph.weights import bias_input, weight_input
from placer.model import Model
from placer.recovery.constants import with_constants
from placer.recovery.state import State, Work
from placer.recovery.walk import Walk

# f(s x) = s f(x) for each channel and s > 0, and one output of the channels of the input.
_ELEMENTWISE = frozenset({"Relu", "LeakyRelu", "PRelu", "Identity"})
_POOLS = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"})
# Channels lie along axis 1 of what a convolution reads and writes, else along the last one.
_CONVS = frozenset({"Conv", "ConvTranspose"})
_ALPHAS = (0.5, 0.75)
_METHODS = ("minmax", "mse", "percentile")
# Factors beyond this come from channels that hardly ever have a value.
_MOST = 64.0


@dataclass(frozen=True)
class Seam:
    """A place where channels can be rescaled.

    ``tensors``: those that get other values, the one that is read last. ``divided``: constants of
    what writes them, each with the axis of the channels. ``readers``: with a constant weight at
    input 1 that reads the last tensor at input 0, channels along ``axis`` of it.
    """

    tensors: tuple[str, ...]
    divided: tuple[tuple[str, int], ...]
    readers: tuple[Node, ...]
    axis: int
    channels: int


def equalize(state: State, work: Work) -> tuple[State, int]:
    """Rescale channels from layer to layer (cross-layer equalization); see ``Step``."""
    return _rescaled(state, work, [*_seams_of_layers(state.model, work)])


def smooth(state: State, work: Work) -> tuple[State, int]:
    """Rescale channels behind LayerNormalization (SmoothQuant); see ``Step``."""
    return _rescaled(state, work, [*_seams_of_norms(state.model, work)])


def _seams_of_layers(model: Model, work: Work) -> Iterator[Seam]:
    graph = model.graph
    for node in graph.nodes:
        weight, index = weight_input(graph, node), bias_input(node)
        if weight is None or weight.index != 1 or weight.axis is None or node.op == "MatMul":
            continue
        if node.op == "ConvTranspose" and node.attributes.get("group", 1) != 1:
            continue
        divided = [(weight.tensor, weight.axis)]
        channels = graph.initializers[weight.tensor].dims[weight.axis]
        if index is not None:
            bias = graph.initializers.get(node.inputs[index])
            # Gemm adds whatever broadcasts: a scalar, a row for each sample.
            if bias is None or list(bias.dims) != [channels]:
                continue
            divided.append((node.inputs[index], 0))
        yield from _seam(model, work, node, divided, channels)


def _seams_of_norms(model: Model, work: Work) -> Iterator[Seam]:
    """Behind a LayerNormalization, or the Mul and Add of constants that end a decomposed one."""
    graph = model.graph
    for node in graph.nodes:
        names = _affine_of(graph, node)
        if names:
            channels = math.prod(graph.initializers[names[0]].dims)
            # What the Add of a decomposed norm reads is divided with it.
            inner = [t for t in node.inputs if t not in graph.initializers] * (node.op == "Add")
            divided = [(name, 0) for name in names]
            yield from _seam(model, work, node, divided, channels, inner)


def _affine_of(graph: Graph, node: Node) -> list[str]:
    """Scale and bias of what ``node`` ends, each of shape (channels,)."""
    names: list[str] = []
    if node.op == "LayerNormalization":
        names = [name for name in node.inputs[1:3] if name]
    elif node.op == "Mul":
        names = _affine_of_mul(graph, node)
    elif node.op == "Add":
        names = _affine_of_mul_and_add(graph, node)
    if not graph.initializers.keys() >= set(names):
        return []
    sizes = {tuple(graph.initializers[name].dims) for name in names}
    return names if len(sizes) == 1 and len(sizes.pop()) == 1 else []


def _affine_of_mul(graph: Graph, mul: Node) -> list[str]:
    """The constants of a Mul that no Add of constants follows, which would end the norm."""
    follows = [edge.node for edge in graph.edges_of(mul.outputs[0])]
    last = len(follows) != 1 or not _affine_of_add(graph, follows[0])
    return _constants_of(graph, mul) if last else []


def _affine_of_mul_and_add(graph: Graph, add: Node) -> list[str]:
    """The constants of an Add and of the Mul that it alone reads."""
    outer = _constants_of(graph, add)
    data = [name for name in add.inputs if name not in graph.initializers]
    mul = graph.producer.get(data[0]) if len(data) == 1 else None
    if not outer or mul is None or mul.op != "Mul" or len(graph.edges_of(mul.outputs[0])) != 1:
        return []
    inner = _constants_of(graph, mul)
    return [*inner, *outer] if inner else []


def _constants_of(graph: Graph, node: Node) -> list[str]:
    return [name for name in node.inputs if name in graph.initializers]


def _affine_of_add(graph: Graph, name: str) -> bool:
    node = graph.by_name.get(name)
    return node is not None and node.op == "Add" and bool(_affine_of(graph, node))


def _seam(
    model: Model,
    work: Work,
    node: Node,
    divided: Sequence[tuple[str, int]],
    channels: int,
    inner: Sequence[str] = (),
) -> Iterator[Seam]:
    """The seam behind ``node`` if every reader can take the factors and the pair gains by them.

    ``inner``: tensors in front of its output that get other values, too.
    """
    graph, is_conv = model.graph, node.op in _CONVS
    followed = _followed(graph, node.outputs[0], _ELEMENTWISE | _POOLS if is_conv else _ELEMENTWISE)
    if followed is None:
        return
    tensors, edges = [*inner, *followed], graph.edges_of(followed[-1])
    readers = [graph.by_name[edge.node] for edge in edges if edge.node in graph.by_name]
    if len(readers) < len(edges) or work.placement.edges.isdisjoint(edges):
        return
    if not all(
        _takes_factors(graph, reader, edge, channels) and (reader.op in _CONVS) == is_conv
        for reader, edge in zip(readers, edges, strict=True)
    ):
        return
    constants = [*(name for name, _ in divided), *(reader.inputs[1] for reader in readers)]
    if _are_own(model, constants) and _are_free(work, tensors, constants):
        yield Seam(tuple(tensors), tuple(divided), tuple(readers), 1 if is_conv else -1, channels)


def _followed(graph: Graph, tensor: str, along: Container[str]) -> list[str] | None:
    """``tensor``, and what operators ``along`` make of it one after another.

    None where one of them has several outputs.
    """
    tensors = [tensor]
    while True:
        edge = graph.sole_consumer(tensors[-1])
        if edge is None or edge.input_index != 0:
            return tensors
        follower = graph.by_name[edge.node]
        if follower.op not in along:
            return tensors
        if sum(bool(output) for output in follower.outputs) != 1:
            return None
        tensors.append(follower.outputs[0])


def _takes_factors(graph: Graph, reader: Node, edge: Edge, channels: int) -> bool:
    """Whether the weight of ``reader`` has an input channel for each of ``channels``."""
    weight = weight_input(graph, reader)
    if edge.input_index != 0 or weight is None or weight.index != 1:
        return False
    sizes = graph.initializers[weight.tensor].dims
    if reader.op == "Conv":
        return bool(sizes[1] * reader.attributes.get("group", 1) == channels)
    if reader.op == "Gemm":
        rows = 1 if reader.attributes.get("transB", 0) else 0
        return not reader.attributes.get("transA", 0) and sizes[rows] == channels
    return reader.op == "MatMul" and len(sizes) == 2 and sizes[0] == channels


def _are_own(model: Model, constants: Collection[str]) -> bool:
    """Whether each is a constant that is read once, and whose scale no imported model fixes."""
    graph = model.graph
    imported = () if model.imported is None else model.imported.weights
    return len(set(constants)) == len(constants) and all(
        name in graph.initializers and len(graph.edges_of(name)) == 1 and name not in imported
        for name in constants
    )


def _are_free(work: Work, tensors: Collection[str], constants: Collection[str]) -> bool:
    """Whether no range of ``tensors`` is fixed, nor shared with a tensor that stays as it is."""
    if not work.fixed.isdisjoint(tensors) or not work.fixed.isdisjoint(constants):
        return False
    for group in work.placement.groups:
        shared = {edge.tensor for edge in group.edges}
        if not shared.isdisjoint(tensors) and not shared <= {*tensors, *constants}:
            return False
    return True


def _rescaled(state: State, work: Work, seams: Sequence[Seam]) -> tuple[State, int]:
    """The best of a few strengths and calibration methods on the samples learned from."""
    loss = work.loss
    if not seams or loss is None:
        return state, 0
    attempts = ((loss(tried), tried) for tried in _attempts(state, work, seams))
    _, best = min(attempts, key=itemgetter(0))
    return best, len(seams)


def _attempts(state: State, work: Work, seams: Sequence[Seam]) -> Iterator[State]:
    """The state with the factors of each strength and the ranges of each method."""
    largest = _largest(state.model, seams, work)
    moved = {tensor for seam in seams for tensor in seam.tensors}
    for alpha in _ALPHAS:
        values = _constants(state.model, seams, largest, alpha)
        model = with_constants(state.model, values)
        known = sorted(moved & state.ranges.keys())
        calibration = calibrate(model, known, work.data)
        for method in _METHODS:
            ranges = {**state.ranges, **calibration.ranges(method, work.scheme)}
            yield State(model, with_constants(state.reference, values), ranges)


def _largest(model: Model, seams: Sequence[Seam], work: Work) -> dict[str, np.ndarray]:
    """Largest magnitude of each channel of what is read, the mean over samples, by tensor."""
    by_tensor = {seam.tensors[-1]: seam for seam in seams}
    walk, largest = Walk(model.proto, model.base_dir, by_tensor, work.samples), {}
    for tensor in walk:
        axis = by_tensor[tensor].axis
        each = [
            np.abs(np.moveaxis(value.astype(np.float64), axis, 0)).reshape(value.shape[axis], -1)
            for value in walk.values(tensor)
        ]
        largest[tensor] = np.mean([values.max(axis=1) for values in each], axis=0)
    return largest


def _constants(
    model: Model, seams: Sequence[Seam], largest: Mapping[str, np.ndarray], alpha: float
) -> dict[str, np.ndarray]:
    """The constants of all ``seams`` with their factors; a layer may have some on either side."""
    factors = {
        seam.tensors[-1]: _factors(model, seam, largest[seam.tensors[-1]], alpha) for seam in seams
    }
    values: dict[str, np.ndarray] = {}

    def scale(name: str, by: np.ndarray) -> None:
        values[name] = values.get(name, model.array(name).astype(np.float64)) * by

    for seam in seams:
        factor = factors[seam.tensors[-1]]
        for name, axis in seam.divided:
            shape = [1] * len(model.graph.initializers[name].dims)
            shape[axis] = -1
            scale(name, 1 / factor.reshape(shape))
        for reader in seam.readers:
            scale(reader.inputs[1], _of_inputs(model, reader, factor))
    return values


def _factors(model: Model, seam: Seam, largest: np.ndarray, alpha: float) -> np.ndarray:
    """Of each channel, with a geometric mean of 1; 1 where a channel or its weights are zero."""
    weights = np.zeros(seam.channels)
    for reader in seam.readers:
        weights = np.maximum(weights, _by_input(model, reader))
    alive = (largest > 0) & (weights > 0)
    factor = np.ones(seam.channels)
    if alive.any():
        logs = alpha * np.log(largest[alive]) - (1 - alpha) * np.log(weights[alive])
        logs = np.clip(logs - logs.mean(), -math.log(_MOST), math.log(_MOST))
        factor[alive] = np.exp(logs)
    return factor


def _by_input(model: Model, reader: Node) -> np.ndarray:
    """Largest magnitude of each input channel's weights relative to their output channel's."""
    values = np.abs(model.array(reader.inputs[1]).astype(np.float64))
    if reader.op != "Conv":
        rows = values.T if reader.attributes.get("transB", 0) else values
        relative = rows / np.maximum(rows.max(axis=0, keepdims=True), np.finfo(np.float64).tiny)
        return np.asarray(relative.max(axis=1))
    whole = values.reshape(len(values), -1).max(axis=1).reshape(-1, *[1] * (values.ndim - 1))
    relative = values / np.maximum(whole, np.finfo(np.float64).tiny)
    groups = reader.attributes.get("group", 1)
    by_group = relative.reshape(groups, -1, *values.shape[1:])
    by_channel = by_group.max(axis=(1, *range(3, by_group.ndim)))
    return np.asarray(by_channel.reshape(-1))


def _of_inputs(model: Model, reader: Node, factors: np.ndarray) -> np.ndarray:
    """``factors`` (channels,) shaped to multiply the weight's input channels."""
    sizes = tuple(model.graph.initializers[reader.inputs[1]].dims)
    if reader.op == "Conv":
        groups = reader.attributes.get("group", 1)
        rows = np.repeat(factors.reshape(groups, -1), sizes[0] // groups, axis=0)
        return rows.reshape(sizes[0], sizes[1], *[1] * (len(sizes) - 2))
    if reader.op == "Gemm" and reader.attributes.get("transB", 0):
        return factors.reshape(1, -1)
    return factors.reshape(-1, 1)
