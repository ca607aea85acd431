"""Weights that are rounded, or fitted, so that layers give what the float model's give."""

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from placer.calibration.dataset import load_dataset
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.graph.text import parse_model
from placer.model import Model, load_model
from placer.qdq import Inserter
from placer.quantization import Placement, Range, Scheme
from placer.quantization.neighbours import magnitudes
from placer.quantization.numerics import quantize_weight, weight_scale
from placer.recovery.constants import same_layers, with_constants
from placer.recovery.least_squares import Moments, fitted, nearest_integers, rounded
from placer.recovery.products import products_of
from placer.recovery.reconstruction import reconstruct, round_weights
from placer.recovery.state import State, Work

INT8 = Scheme(activation="int8", symmetric=True, bias="float")
UINT8 = Scheme(activation="uint8", symmetric=False, bias="int32")
PER_TENSOR = INT8.model_copy(update={"per_channel": False})
# Every kind of layer: strides, dilations, groups, automatic padding, a transposed Gemm, MatMul.
NETWORK = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4,9,9] x) => (float[1,6] y)
<float[8,4,3,3] a = {0}, float[8] b = {0}, float[8,1,3,3] d = {0}, float[6,4,2,2] e = {0},
 float[6] f = {0}, float[6,6] k = {0}, float[6] l = {0}, float[6,6] m = {0}>
{
    [full] h = Conv<strides = [2,1], pads = [1,0,1,2]>(x, a, b)
    [relu] r = Relu(h)
    [depthwise] i = Conv<group = 8, dilations = [2,1], pads = [2,1,2,1]>(r, d)
    [grouped] j = Conv<group = 2, auto_pad = "SAME_UPPER">(i, e, f)
    [pool] p = GlobalAveragePool(j)
    [flat] q = Flatten(p)
    [gemm] s = Gemm<transB = 1>(q, k, l)
    [tanh] t = Tanh(s)
    [matmul] y = MatMul(t, m)
}
"""
LAYERS = ["full", "depthwise", "grouped", "gemm", "matmul"]


def network(folder: Path) -> Model:
    rng = np.random.default_rng(0)
    proto = parse_model(NETWORK)
    for tensor in proto.graph.initializer:
        values = rng.normal(0, 1 / np.sqrt(np.prod(tensor.dims[1:])), tuple(tensor.dims))
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))
    onnx.save(proto, folder / "m.onnx")
    return load_model(folder / "m.onnx")


def inputs(count: int, seed: int) -> np.ndarray:
    """Channels that have much in common, as those of real layers, shape (count, 4, 9, 9)."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(count, 1, 9, 9))
    return (common + 0.2 * rng.normal(size=(count, 4, 9, 9))).astype(np.float32)


@pytest.mark.parametrize("spread", [0.0, 1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("size", [4, 64])
def test_layers_whose_inputs_hardly_vary_are_rounded_nevertheless(spread: float, size: int):
    """What their means leave of sums in float32 is no positive definite matrix."""
    rng = np.random.default_rng(0)
    mean = 100 * np.abs(rng.standard_normal(size))
    x = (mean + 100 * spread * rng.standard_normal((1000, 1, size))).astype(np.float32)
    weights = rng.standard_normal((1, 8, size))
    whole = Moments.of(x, x @ weights[0].T.astype(np.float32)).centred()
    found = rounded(weights, whole, per_channel=True)
    steps = np.abs(weights).max(axis=2, keepdims=True) / 127
    assert np.all(np.abs(found - weights) < 4 * steps)


def work_of(model: Model, scheme: Scheme) -> Work:
    edges = [edge for name in LAYERS for edge in model.graph.edges_into(model.graph.by_name[name])]
    path = model.path.with_name("data.npz")
    np.savez(path, x=inputs(48, 1))
    return Work(
        Placement.of([edge for edge in edges if edge.input_index < 2]),
        scheme,
        load_dataset(str(path), model),
    )


def state_of(model: Model) -> State:
    """Ranges that are 16 times too wide: activations lose much."""
    run = OnnxRuntimeModel(_with_all_outputs(model), model.base_dir, 1).run
    found = [run({"x": x[None]}) for x in inputs(16, 1)]
    largest = {t: 16 * max(np.abs(one[t]).max() for one in found) for t in found[0]} | {"x": 64.0}
    return State(model, model, {t: Range(-float(v), float(v)) for t, v in largest.items()})


def _with_all_outputs(model: Model) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    del proto.graph.output[:]
    for node in proto.graph.node:
        proto.graph.output.add(name=node.output[0])
    return proto


def error(state: State, work: Work, reference: Model) -> float:
    """Mean squared error on samples that were not learned from."""
    candidate = Inserter(state.model, work.scheme).insert(work.placement, state.ranges)
    run = OnnxRuntimeModel(candidate, state.model.base_dir, 1).run
    exact = OnnxRuntimeModel(reference.proto, reference.base_dir, 1).run
    return float(
        np.mean(
            [(run({"x": x[None]})["y"] - exact({"x": x[None]})["y"]) ** 2 for x in inputs(64, 2)]
        )
    )


@pytest.mark.parametrize("scheme", [INT8, UINT8, PER_TENSOR])
def test_reconstruction_lowers_the_error_on_other_samples(tmp_path: Path, scheme: Scheme):
    model = network(tmp_path)
    work, before = work_of(model, scheme), state_of(model)
    after, layers = reconstruct(before, work)
    assert layers == len(LAYERS)
    assert error(after, work, model) < 0.8 * error(before, work, model)
    assert after.ranges == before.ranges
    candidates = [
        Inserter(state.model, scheme).insert(work.placement, state.ranges)
        for state in (before, after)
    ]
    assert same_layers(*candidates)


def test_layers_that_stay_float_are_fitted_too_but_only_quantized_ones_are_rounded(tmp_path: Path):
    model = network(tmp_path)
    work = work_of(model, INT8)
    (weight,) = (edge for edge in work.placement.edges if edge.tensor == "m")
    groups = frozenset(group for group in work.placement.groups if weight not in group.edges)
    work = Work(Placement(groups), INT8, work.data)
    before = state_of(model)
    rounding, rounded_layers = round_weights(before, work)
    assert rounded_layers == len(LAYERS) - 1
    np.testing.assert_array_equal(rounding.model.array("m"), model.array("m"))
    after, layers = reconstruct(before, work)
    assert layers == len(LAYERS)
    assert not np.array_equal(after.model.array("m"), model.array("m"))


def test_products_compute_what_their_layers_do(tmp_path: Path):
    """Rows times the matrix are the outputs, and what ``apply`` gives."""
    model = network(tmp_path)
    proto = _with_all_outputs(model)
    sample = {"x": inputs(1, 3)}
    values = OnnxRuntimeModel(proto, model.base_dir, 1).run(sample) | sample
    products = products_of(model)
    assert [product.node.name for product in products] == LAYERS
    for product in products:
        weight, read = model.array(product.weight), values[product.node.inputs[0]]
        target = values[product.node.outputs[0]]
        matrix = product.matrix(weight)
        np.testing.assert_array_equal(product.tensor(matrix, weight.shape), weight)
        at = np.arange(product.positions(target))
        found = np.einsum("pgk,gok->pgo", product.rows(read, at, weight.shape[2:]), matrix)
        bias = np.zeros(found[0].size) if product.bias is None else model.array(product.bias)
        np.testing.assert_allclose(
            found + bias.reshape(found.shape[1:]), product.given(target, at), atol=1e-5
        )
        np.testing.assert_allclose(product.apply(weight, bias, [read])[0], target, atol=1e-5)


def moments(rng: np.random.Generator, weights: np.ndarray, count: int = 400) -> Moments:
    """Of correlated inputs, and targets that ``weights`` give of them without noise."""
    groups, _, size = weights.shape
    common = rng.normal(size=(count, groups, 1))
    clean = common + 0.3 * rng.normal(size=(count, groups, size))
    noisy = clean + 0.2 * rng.normal(size=clean.shape)
    targets = np.einsum("pgk,gok->pgo", clean, weights)
    return Moments.of(noisy.astype(np.float32), targets.astype(np.float32))


def test_fitted_weights_are_kept_where_nothing_is_to_be_gained():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(1, 3, 5))
    x = rng.normal(size=(200, 1, 5))
    exact = Moments.of(
        x.astype(np.float32), np.einsum("pgk,gok->pgo", x, weights).astype(np.float32)
    )
    error = exact.centred()
    np.testing.assert_array_equal(fitted(weights, (error, error), error), weights)
    noisy = [moments(rng, weights) for _ in range(3)]
    one, two, other = (found.centred() for found in noisy)
    both = (noisy[0] + noisy[1]).centred()
    assert other.error(fitted(weights, (one, two), both)) < 0.85 * other.error(weights)


@given(
    st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 4), st.integers(1, 40), st.booleans()
)
@settings(deadline=None, max_examples=40)
def test_rounded_weights_are_what_any_quantizer_makes_of_them(
    seed: int, groups: int, outputs: int, size: int, per_channel: bool
):
    """They lie on the even steps that follow from the largest magnitude."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(groups, outputs, size)) * np.exp(
        rng.normal(size=(groups, outputs, 1))
    )
    error = moments(rng, weights).centred()
    found = rounded(weights, error, per_channel=per_channel)
    flat = found.reshape(-1, size).astype(np.float32)
    axis = 0 if per_channel else None
    scale = weight_scale(flat, axis)
    integers = quantize_weight(flat, scale, axis, "int8", -127)
    steps = scale.reshape(-1, 1) if per_channel else scale
    np.testing.assert_allclose(integers * steps, flat, rtol=1e-4, atol=1e-7)


@given(st.integers(0, 10_000), st.sampled_from([(5,), (40,), (3, 2, 2), (8, 1, 3)]), st.booleans())
@settings(deadline=None, max_examples=40)
def test_weights_of_reduced_range_are_rounded_so_that_no_sum_of_neighbours_is_beyond_127(
    seed: int, kernel: tuple[int, ...], per_channel: bool
):
    """They lie on the even steps that follow from the largest magnitude or sum."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(2, 3, math.prod(kernel)))
    error = moments(rng, weights).centred()
    found = rounded(weights, error, per_channel=per_channel, kernel=kernel)
    largest = magnitudes(found, kernel).max(axis=2, keepdims=True)
    integers = found / ((largest if per_channel else largest.max()) / 127)
    np.testing.assert_allclose(integers, np.rint(integers), atol=1e-6)
    assert magnitudes(np.rint(integers), kernel).max() == 127


@pytest.mark.parametrize("kernel", [None, (64,)], ids=["full range", "reduced range"])
def test_rounding_beats_the_nearest_integers_where_inputs_have_much_in_common(
    kernel: tuple[int, ...] | None,
):
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(1, 16, 64))
    error = moments(rng, weights, 2000).centred()
    plain = nearest_integers(weights, per_channel=True, kernel=kernel)
    found = rounded(weights, error, per_channel=True, kernel=kernel)

    def loss(values: np.ndarray) -> float:
        moved = values - weights
        return float(np.sum((moved @ error.xx) * moved))

    assert loss(found) < 0.7 * loss(plain)


def test_constants_that_do_not_fit_are_refused(tmp_path: Path):
    model = network(tmp_path)
    with pytest.raises(ValueError, match="has shape"):
        with_constants(model, {"l": np.zeros(3)})
