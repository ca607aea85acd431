"""Bias correction, and its extension to a scale for each channel.

Quantization shifts the mean of what a layer computes, and cutting off shrinks it. Layers are
corrected one after the other in node order, each with the inputs that the corrected layers before
it give, so that no error is corrected twice.

Sources: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction"
(2019), section 4.2, for the bias, here with measured means; Hubara et al., "Improving Post Training
Neural Quantization: Layer-wise Calibration and Integer Programming" (2020), section 4, for a scale
and a shift for each channel, which they derive from mean and variance and this from least squares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placer.graph import Graph, Node
from placer.graph.operators import STANDARD_DOMAINS
from placer.graph.weights import WeightInput, bias_input, weight_input
from placer.model import Model
from placer.qdq import Inserter
from placer.quantization import EMPTY, Placement, Scheme
from placer.recovery.constants import with_constants
from placer.recovery.state import State, Work
from placer.recovery.walk import Walk

# Samples that say "no error" beside those measured: few samples are not to be trusted blindly.
_PRIOR_SAMPLES = 1.0
# A channel that seems to need more than this is one without signal.
_MOST_SCALE = 2.0


@dataclass(frozen=True)
class Layer:
    """A layer whose output can be corrected.

    ``node``: writes the output, in which channels lie along ``axis``. ``bias``: the initializer
    that is added to it, times ``beta``. ``weight``: with scales of its own for each channel,
    so that a channel times a factor has the same integers; None where it has not.
    """

    node: Node
    axis: int
    bias: str
    beta: float = 1.0
    weight: WeightInput | None = None


def correct_bias(state: State, work: Work) -> tuple[State, int]:
    """Make each channel of each layer have the float model's mean; see ``Step``."""
    return _corrected(state, work, scales=False)


def correct_scale(state: State, work: Work) -> tuple[State, int]:
    """Bring each channel nearest to the float model's by a factor and a shift; see ``Step``.

    Where the weight cannot take the factor, or its layer has no scale for each channel, the shift
    alone. Factors leave the quantized weights as they are, but for values halfway between two
    integers: only scales change.
    """
    return _corrected(state, work, scales=True)


def layers_of(model: Model, scheme: Scheme, placement: Placement = EMPTY) -> list[Layer]:
    """The layers that have a bias of their own to correct, in node order.

    ``placement``: weights that it pins to one scale take no factors.
    """
    graph = model.graph
    read_once = {name for name in graph.initializers if len(graph.edges_of(name)) == 1}
    layers = (_layer(graph, node, read_once) for node in graph.nodes)
    fixed = {edge.tensor for edge in placement.per_tensor}
    fixed.update(() if model.imported is None else model.imported.weights)
    return [
        layer if _takes_factor(layer, scheme, read_once - fixed) else replace(layer, weight=None)
        for layer in layers
        if layer is not None
    ]


def _layer(graph: Graph, node: Node, read_once: set[str]) -> Layer | None:
    if node.domain not in STANDARD_DOMAINS or not graph.type_of(node.outputs[0]).is_float:
        return None
    if node.op == "Add":
        return _layer_of_add(graph, node, read_once)
    weight, index = weight_input(graph, node), bias_input(node)
    if weight is None or weight.axis is None or weight.index != 1:
        return None
    if index is None or node.inputs[index] not in read_once:
        return None
    bias, sizes = node.inputs[index], list(graph.initializers[weight.tensor].dims)
    axis = -1 if node.op == "Gemm" else 1 - len(sizes)
    beta = float(node.attributes.get("beta", 1.0)) if node.op == "Gemm" else 1.0
    groups = node.attributes.get("group", 1) if node.op == "ConvTranspose" else 1
    if not beta or list(graph.initializers[bias].dims) != [sizes[weight.axis] * groups]:
        return None
    return Layer(node, axis, bias, beta, weight)


def _layer_of_add(graph: Graph, node: Node, read_once: set[str]) -> Layer | None:
    """The product by a constant whose bias ``node`` adds."""
    for position, tensor in enumerate(node.inputs):
        product, bias = graph.producer.get(tensor), node.inputs[1 - position]
        if product is None or product.op != "MatMul" or len(graph.edges_of(tensor)) != 1:
            continue
        weight = weight_input(graph, product)
        if weight is None or weight.index != 1 or bias not in read_once:
            continue
        channels = graph.initializers[weight.tensor].dims[-1]
        if list(graph.initializers[bias].dims) == [channels]:
            return Layer(node, -1, bias)
    return None


def _takes_factor(layer: Layer, scheme: Scheme, read_once: set[str]) -> bool:
    """Whether the weight, if in ``read_once``, has a scale for each channel of the output."""
    weight = layer.weight
    if weight is None or weight.tensor not in read_once or not scheme.per_channel:
        return False
    # Channels of all groups of a transposed convolution share the scales.
    return layer.node.op != "ConvTranspose" or layer.node.attributes.get("group", 1) == 1


def _corrected(state: State, work: Work, *, scales: bool) -> tuple[State, int]:
    layers = layers_of(state.model, work.scheme, work.placement)
    if not layers:  # Nothing is added to a layer without a bias: it would be another layer.
        return state, 0
    candidate = Inserter(state.model, work.scheme).insert(work.placement, state.ranges)
    by_node = {node.name: node.output[0] for node in candidate.graph.node if node.output}
    stops = {by_node[layer.node.name]: layer for layer in layers}
    floats = [layer.node.outputs[0] for layer in layers]
    exact = Walk(state.reference.proto, state.reference.base_dir, floats, work.samples)
    actual = Walk(candidate, state.model.base_dir, stops, work.samples)
    values: dict[str, np.ndarray] = {}
    changed = 0
    for _, stop in zip(exact, actual, strict=True):
        layer = stops[stop]
        target, computed = exact.values(layer.node.outputs[0]), actual.values(stop)
        affine = _fit(target, computed, layer.axis, scales=scales and layer.weight is not None)
        if affine is None:
            continue
        factor, shift = affine
        actual.replace(
            stop, [_along(factor, v, layer) * v + _along(shift, v, layer) for v in computed]
        )
        values.update(_constants(state.model, layer, factor, shift))
        changed += 1
    return State(with_constants(state.model, values), state.reference, state.ranges), changed


def _fit(
    targets: Sequence[np.ndarray], computed: Sequence[np.ndarray], axis: int, *, scales: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """Factor and shift (channels,) such that factor * computed + shift is nearest to ``targets``.

    None if a value is not finite. With y computed and t its target, both centred, the factor is
    (sum t y + p) / (sum y y + p), where p is sum y y of ``_PRIOR_SAMPLES`` average samples.
    """
    count, sum_t, sum_y = 0, np.float64(0), np.float64(0)
    # One sample at a time: as float64, all of them take several times what the walks keep.
    for t, y in _by_channel(targets, computed, axis):
        count += y.shape[1]
        with np.errstate(invalid="ignore"):  # Infinities of both signs.
            sum_t, sum_y = sum_t + t.sum(axis=1), sum_y + y.sum(axis=1)
    if not count or not (np.isfinite(sum_t).all() and np.isfinite(sum_y).all()):
        return None
    mean_t, mean_y = sum_t / count, sum_y / count
    factor, samples = np.ones_like(mean_y), len(computed)
    if scales:
        both, square = np.zeros_like(mean_y), np.zeros_like(mean_y)
        for t, y in _by_channel(targets, computed, axis):
            centred = y - mean_y[:, None]
            both += np.einsum("ij,ij->i", t - mean_t[:, None], centred)
            square += np.einsum("ij,ij->i", centred, centred)
        prior = square * _PRIOR_SAMPLES / samples
        factor = np.divide(both + prior, square + prior, out=factor, where=square > 0)
        factor = np.clip(factor, 1 / _MOST_SCALE, _MOST_SCALE)
    trusted = samples / (samples + _PRIOR_SAMPLES)
    return factor, mean_y + trusted * (mean_t - mean_y) - factor * mean_y


def _by_channel(
    targets: Sequence[np.ndarray], computed: Sequence[np.ndarray], axis: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Target and computed values of each sample, shape (channels, positions)."""
    for target, value in zip(targets, computed, strict=True):
        both = (np.moveaxis(array.astype(np.float64), axis, 0) for array in (target, value))
        t, y = (array.reshape(array.shape[0], -1) for array in both)
        yield t, y


def _along(values: np.ndarray, tensor: np.ndarray, layer: Layer) -> np.ndarray:
    """``values`` (channels,) shaped to go with ``tensor``, in its type."""
    shape = [1] * tensor.ndim
    shape[layer.axis] = -1
    return values.reshape(shape).astype(tensor.dtype)


def _constants(
    model: Model, layer: Layer, factor: np.ndarray, shift: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """The initializers of ``layer`` that change."""
    bias = model.array(layer.bias).astype(np.float64)
    yield layer.bias, factor * bias + shift / layer.beta
    if layer.weight is not None and layer.weight.axis is not None:
        weight = model.array(layer.weight.tensor).astype(np.float64)
        shape = [1] * weight.ndim
        shape[layer.weight.axis] = -1
        yield layer.weight.tensor, weight * factor.reshape(shape)
