"""Layers brought near to the float model's by their weights: rounded, or also fitted.

Layers are taken one after the other in node order, each with the inputs that the changed layers
before it give. ``least_squares`` says how weights follow from those inputs, and where that is from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add

import numpy as np
from onnx import ModelProto

from placer.model import Model
from placer.qdq import Inserter
from placer.quantization.neighbours import added_in_pairs
from placer.recovery.constants import with_constants
from placer.recovery.least_squares import Moments, Quadratic, fitted, nearest_integers, rounded
from placer.recovery.products import Product, products_of
from placer.recovery.state import State, Work
from placer.recovery.walk import Walk

# Output positions of all samples that a layer is fitted to: so many for each weight of an output,
# within limits.
_ROWS_PER_WEIGHT = 6
_LEAST_ROWS, _MOST_ROWS = 6144, 16384
# The cost grows with the cube of an output's weights: minutes beyond this.
_MOST_WEIGHTS = 4096
_SEED = 0x0DD5
# Samples that say "no error" beside those measured, as for the bias correction.
_PRIOR_SAMPLES = 1.0


def round_weights(state: State, work: Work) -> tuple[State, int]:
    """Round and clip weights so that each layer's output moves least; see ``Step``."""
    return _changed(state, work, fit=False)


def reconstruct(state: State, work: Work) -> tuple[State, int]:
    """Fit weights to what quantization leaves of each layer's inputs, then round; see ``Step``."""
    return _changed(state, work, fit=True)


@dataclass(frozen=True, eq=False)
class _Layer:
    """A product in the candidate: it reads and writes the tensors ``read`` and ``written``.

    ``quantized``: whether its weight has a pair; ``per_channel``: with a scale for each output;
    ``in_pairs``: with room for sums of neighbours.
    """

    product: Product
    read: str
    written: str
    quantized: bool
    per_channel: bool
    in_pairs: bool


@dataclass(frozen=True, eq=False)
class _Found:
    """New constants of a layer, and its outputs with them, by sample."""

    values: dict[str, np.ndarray]
    outputs: list[np.ndarray]


def _changed(state: State, work: Work, *, fit: bool) -> tuple[State, int]:
    candidate = Inserter(state.model, work.scheme).insert(work.placement, state.ranges)
    layers = _layers(state.model, candidate, work, fit=fit)
    if not layers:
        return state, 0
    made = {tensor for node in candidate.graph.node for tensor in node.output}
    by_output = {layer.written: layer for layer in layers}
    left = [layer.read for layer in layers]
    floats = [layer.product.node.outputs[0] for layer in layers]
    exact = Walk(state.reference.proto, state.reference.base_dir, floats, work.samples)
    actual = Walk(candidate, state.model.base_dir, {*by_output, *left} & made, work.samples)
    targets, values = iter(exact), dict[str, np.ndarray]()
    inputs = {name: [sample[name] for sample in work.samples] for name in {*left} - made}
    for stop in actual:
        if stop in left:
            inputs[stop] = actual.values(stop)
        layer = by_output.get(stop)
        if layer is None:
            continue
        target, read = exact.values(next(targets)), inputs[layer.read]
        changed = _change(state.model, layer, read, target, actual.values(stop), fit=fit)
        values.update(changed.values)
        actual.replace(stop, changed.outputs)
        left.remove(layer.read)
        if layer.read not in left:
            del inputs[layer.read]
    return State(with_constants(state.model, values), state.reference, state.ranges), len(layers)


def _layers(model: Model, candidate: ModelProto, work: Work, *, fit: bool) -> list[_Layer]:
    """The layers to change: without ``fit`` only those whose weights are rounded."""
    nodes = {node.name: node for node in candidate.graph.node}
    pinned = {edge.tensor for edge in work.placement.per_tensor}
    layers = []
    for product in products_of(model):
        quantized = product.edge in work.placement.edges
        if work.scheme.is_float8 or product.edge in work.placement.formats:
            continue  # The values of FP8 are no even steps.
        if (fit or quantized) and product.weights(model) <= _MOST_WEIGHTS:
            node = nodes[product.node.name]
            per_channel = work.scheme.per_channel and product.weight not in pinned
            in_pairs = work.scheme.weight_range == "reduced" and (
                added_in_pairs(model.graph, product.node) is not None
            )
            layers.append(
                _Layer(product, node.input[0], node.output[0], quantized, per_channel, in_pairs)
            )
    return layers


def _change(
    model: Model,
    layer: _Layer,
    read: Sequence[np.ndarray],
    target: Sequence[np.ndarray],
    computed: Sequence[np.ndarray],
    *,
    fit: bool,
) -> _Found:
    product = layer.product
    tensor = model.array(product.weight)
    weights = product.matrix(tensor)
    bias = None if product.bias is None else model.array(product.bias).astype(np.float64)
    one, two = _moments(product, tensor.shape, read, target, bias)
    folds = _error(one, bias), _error(two, bias)
    both = one + two
    error = _error(both, bias)
    new = fitted(weights, folds, error) if fit else weights
    old = weights
    if layer.quantized:
        kernel = product.kernel(tensor.shape) if layer.in_pairs else None
        new = rounded(new, error, per_channel=layer.per_channel, kernel=kernel)
        old = nearest_integers(weights, per_channel=layer.per_channel, kernel=kernel)
    values = {product.weight: product.tensor(new, tensor.shape)}
    shift = np.zeros(new.shape[0] * new.shape[1])
    if product.bias is not None and bias is not None:
        trusted = len(read) / (len(read) + _PRIOR_SAMPLES)
        missing = both.t - np.einsum("gok,gk->go", new, both.x)
        shift = trusted * missing.reshape(-1) / max(both.count, 1)
        values[product.bias] = bias + shift
    moves = product.apply(product.tensor(new - old, tensor.shape), shift, read)
    outputs = [y + move.astype(y.dtype) for y, move in zip(computed, moves, strict=True)]
    return _Found(values, outputs)


def _error(moments: Moments, bias: np.ndarray | None) -> Quadratic:
    return moments.around_zero() if bias is None else moments.centred()


def _moments(
    product: Product,
    shape: tuple[int, ...],
    read: Sequence[np.ndarray],
    target: Sequence[np.ndarray],
    bias: np.ndarray | None,
) -> tuple[Moments, Moments]:
    """Of every other sample, and of the rest; a single sample makes both."""
    rng = np.random.default_rng(_SEED)
    weights = shape[0] if product.is_transposed else math.prod(shape[1:])
    rows = int(np.clip(_ROWS_PER_WEIGHT * weights, _LEAST_ROWS, _MOST_ROWS))
    most = -(-rows // len(read))
    halves: list[Moments] = []
    for index, (x, t) in enumerate(zip(read, target, strict=True)):
        count = product.positions(t)
        at = rng.permutation(count)[:most] if count > most else np.arange(count)
        wanted = product.given(t, at).astype(np.float32)
        if bias is not None:
            wanted = wanted - bias.reshape(wanted.shape[1:]).astype(np.float32)
        moments = Moments.of(product.rows(x, at, shape[2:]).astype(np.float32), wanted)
        if index < 2:
            halves.append(moments)
        else:
            halves[index % 2] = add(halves[index % 2], moments)
    return halves[0], halves[-1]
