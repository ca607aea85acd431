"""Channels rescaled between layers: the same in float, and better quantized."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.calibration.collect import calibrate
from placer.calibration.dataset import load_dataset
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.graph.text import parse_model
from placer.model import Model, load_model
from placer.qdq import Inserter
from placer.quantization import Placement, Scheme
from placer.recovery import constants
from placer.recovery.constants import same_layers, with_constants
from placer.recovery.scaling import equalize, smooth
from placer.recovery.state import State, Work

INT8 = Scheme(activation="int8", symmetric=True, bias="float")
HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
# Depthwise, a pool and two readers are passed; what Clip and Add read stays as it is.
CONVS = """
g (float[1,4,6,6] x) => (float[1,4,6,6] y, float[1,4,3,3] p)
<float[4,4,1,1] a = {0}, float[4] b = {0}, float[4,1,3,3] d = {0}, float[4,2,1,1] c = {0},
 float[4,4,1,1] e = {0}, float[4,4,1,1] f = {0}, float[4] slope = {0.1}, float low = {-1}>
{
    [first] h = Conv(x, a, b)
    [relu] r = Relu(h)
    [depthwise] m = Conv<group = 4, pads = [1,1,1,1]>(r, d)
    [prelu] n = LeakyRelu<alpha = 0.1>(m)
    [pool] q = MaxPool<kernel_shape = [2,2], strides = [2,2]>(n)
    [grouped] p = Conv<group = 2>(q, c)
    [one] s = Conv(x, e)
    [clip] t = Clip(s, low)
    [two] y = Conv(t, f)
}
"""
NORMS = """
g (float[2,4] x) => (float[2,4] y, float[2,4] z, float[2,4] w)
<float[4] scale = {0}, float[4] bias = {0}, float[4,4] q = {0}, float[4,4] k = {0},
 float[4] gamma = {0}, float[4] beta = {0}, float[4,4] v = {0}>
{
    [norm] n = LayerNormalization<axis = -1>(x, scale, bias)
    [query] y = MatMul(n, q)
    [key] z = Gemm<transB = 1>(n, k)
    [mul] m = Mul(x, gamma)
    [add] o = Add(m, beta)
    [value] w = MatMul(o, v)
}
"""


def network(folder: Path, text: str, seed: int = 0) -> Model:
    """Random constants, channels of very different size."""
    rng = np.random.default_rng(seed)
    onnx.save(parse_model(HEAD + text), folder / "m.onnx")
    model = load_model(folder / "m.onnx")
    values = {}
    for name in model.graph.initializers:
        shape = model.array(name).shape
        if len(shape) == 1 or name == "a":
            sizes = np.exp(rng.normal(0, 1.5, shape[:1])).reshape(-1, *[1] * (len(shape) - 1))
            values[name] = sizes * rng.normal(0, 1, shape)
        elif shape:
            values[name] = rng.normal(0, 1, shape)
    return with_constants(model, values)


def everything(model: Model) -> tuple[State, Work]:
    """All inputs of weighted nodes, calibrated with random inputs; the loss is the error power."""
    path = model.path.with_name("data.npz")
    shape = model.graph.type_of("x").shape
    np.savez(path, x=np.random.default_rng(1).normal(0, 1, (8, *shape[1:])).astype(np.float32))
    data = load_dataset(str(path), model)
    weighted = [n for n in model.graph.nodes if n.op in ("Conv", "Gemm", "MatMul")]
    edges = [edge for node in weighted for edge in model.graph.edges_into(node)[:2]]
    placement = Placement.of(edges)
    tensors = sorted({edge.tensor for edge in edges})
    ranges = calibrate(model, tensors, data).ranges("minmax", INT8)
    exact = OnnxRuntimeModel(model.proto, model.base_dir, 1).run

    def loss(state: State) -> float:
        candidate = Inserter(state.model, INT8).insert(placement, state.ranges)
        run = OnnxRuntimeModel(candidate, model.base_dir, 1).run
        pairs = [(run(sample.inputs), exact(sample.inputs)) for sample in data]
        return float(
            sum(
                np.sum((one[name] - other[name]) ** 2) / np.sum(other[name] ** 2)
                for one, other in pairs
                for name in other
            )
        )

    return State(model, model, ranges), Work(placement, INT8, data, loss)


def test_a_decomposed_norm_is_calibrated_again_inside_too(tmp_path: Path):
    """What its Add reads may be quantized, and is divided by the factors like what it writes."""
    model = network(tmp_path, NORMS)
    state, work = everything(model)
    add = model.graph.edges_into(model.graph.by_name["add"])[0]
    ranges = {**state.ranges, **calibrate(model, ["m"], work.data).ranges("minmax", INT8)}
    inside = Work(Placement.of([*work.placement.edges, add]), INT8, work.data, work.loss)
    after, _ = smooth(State(model, model, ranges), inside)
    assert after.ranges["m"] != ranges["m"]
    pinned = Work(inside.placement, INT8, work.data, work.loss, frozenset({"m"}))
    assert smooth(State(model, model, ranges), pinned)[1] == 1


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**16), st.sampled_from([(CONVS, equalize), (NORMS, smooth)]))
def test_the_float_model_computes_the_same(
    tmp_path_factory: pytest.TempPathFactory, seed: int, case: tuple[str, object]
):
    text, step = case
    model = network(tmp_path_factory.mktemp("m"), text, seed)
    state, work = everything(model)
    after, seams = step(state, work)
    assert seams == 2
    exact, rescaled = (OnnxRuntimeModel(m.proto, m.base_dir, 1).run for m in (model, after.model))
    for sample in work.data:
        outputs = rescaled(sample.inputs)
        for name, values in exact(sample.inputs).items():
            np.testing.assert_allclose(
                outputs[name], values, rtol=1e-4, atol=1e-5 * np.abs(values).max()
            )
    assert (after.reference.array("b" if text == CONVS else "bias")).any()
    one, other = (Inserter(s.model, INT8).insert(work.placement, s.ranges) for s in (state, after))
    assert same_layers(one, other)


@pytest.mark.parametrize(
    ("text", "step", "changed"),
    [
        (CONVS, equalize, {"a", "b", "d", "c"}),
        (NORMS, smooth, {"scale", "bias", "q", "k", "gamma", "beta", "v"}),
    ],
)
def test_channels_of_different_size_lose_less(
    tmp_path: Path, text: str, step: object, changed: set[str]
):
    model = network(tmp_path, text)
    state, work = everything(model)
    after, _ = step(state, work)
    assert work.loss(after) < 0.5 * work.loss(state)
    names = model.graph.initializers
    assert {n for n in names if (after.model.array(n) != model.array(n)).any()} == changed


@pytest.mark.parametrize(
    "other",
    [
        "y = Add(r, x)",  # A reader that has no weight.
        "s = Sigmoid(r)\n y = Conv(s, c)",
        "y = Conv(r, a)",  # A weight that two layers read.
    ],
)
def test_every_reader_has_to_take_the_factors(tmp_path: Path, other: str):
    text = f"""
    g (float[1,4,6,6] x) => (float[1,4,6,6] y, float[1,4,6,6] z)
    <float[4,4,1,1] a = {{1}}, float[4,4,1,1] c = {{1}}, float[4,4,1,1] d = {{1}}>
    {{
        h = Conv(x, a)
        r = Relu(h)
        {other}
        z = Conv(r, d)
    }}
    """
    state, work = everything(network(tmp_path, text.replace("c)", "c)")))
    assert equalize(state, work) == (state, 0)


def test_constants_too_large_for_one_message_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """External ones would no longer be, and such a model cannot be given to ONNX Runtime."""
    model = network(tmp_path, CONVS)
    monkeypatch.setattr(constants, "MAX_INLINE_BYTES", 100)
    with pytest.raises(ValueError, match="in one message"):
        with_constants(model, {"b": model.array("b")})


def test_ranges_that_are_pinned_stay(tmp_path: Path):
    state, work = everything(network(tmp_path, CONVS))
    pinned = Work(work.placement, INT8, work.data, work.loss, frozenset({"r", "q"}))
    assert equalize(state, pinned) == (state, 0)


@pytest.mark.parametrize("shape", ["", "[1]", "[1,4]", "[4,1]", "[4,4]"])
def test_a_bias_that_is_not_one_value_for_each_channel_takes_no_factors(tmp_path: Path, shape: str):
    text = f"""
    g (float[4,3] x) => (float[4,2] y)
    <float[3,4] a = {{0}}, float{shape} c = {{0}}, float[4,2] b = {{0}}>
    {{
        [one] h = Gemm(x, a, c)
        [relu] r = Relu(h)
        [two] y = Gemm(r, b)
    }}
    """
    state, work = everything(network(tmp_path, text))
    assert equalize(state, work) == (state, 0)
