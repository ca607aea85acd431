"""Biases and scales that make up for quantization, in layers that stay the same."""

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
from placer.recovery.constants import same_layers, with_constants
from placer.recovery.correction import correct_bias, correct_scale, layers_of
from placer.recovery.state import State, Work
from placer.recovery.steps import try_steps

INT8 = Scheme(activation="int8", symmetric=True, bias="float")
UINT8 = Scheme(activation="uint8", symmetric=False, bias="int32")
PER_TENSOR = INT8.model_copy(update={"per_channel": False})
NETWORK = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,8,8] x) => (float[1,2,8,8] y)
<float[2,2,1,1] v = {1, 0.4, -1, 0.3}, float[2] c = {0.1, -0.2},
 float[2,2,3,3] w = {0}, float[2] b = {0, 0.1}>
{
    [first] h = Conv(x, v, c)
    [relu] r = Relu(h)
    [second] y = Conv<pads = [1,1,1,1]>(r, w, b)
}
"""


def network(folder: Path, seed: int = 0, text: str = NETWORK) -> Model:
    weights = np.random.default_rng(seed).normal(0, 1, (2, 2, 3, 3)).astype(np.float32)
    proto = parse_model(text)
    for tensor in proto.graph.initializer:
        if tensor.name == "w":
            tensor.CopyFrom(numpy_helper.from_array(weights, "w"))
    onnx.save(proto, folder / "m.onnx")
    return load_model(folder / "m.onnx")


def inputs(count: int, seed: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(0, 1, (1, 2, 8, 8)).astype(np.float32)} for _ in range(count)]


def state_of(model: Model) -> State:
    """Ranges that cut off half of what `r` holds: its mean and its spread shrink."""
    return State(model, model, {"x": Range(-3.0, 3.0), "r": Range(0.0, 0.8)})


def work_of(model: Model, scheme: Scheme, samples: int = 64) -> Work:
    nodes = [node for node in model.graph.nodes if node.op in ("Conv", "Gemm", "MatMul")]
    edges = [edge for node in nodes for edge in model.graph.edges_into(node)[:2]]
    path = model.path.with_name(f"data{samples}.npz")
    np.savez(path, x=np.stack([sample["x"] for sample in inputs(samples, 1)]))
    return Work(Placement.of(edges), scheme, load_dataset(str(path), model))


def error(state: State, work: Work, reference: Model) -> np.ndarray:
    """Of each output channel on samples that were not learned from, shape (samples, channels)."""
    candidate = Inserter(state.model, work.scheme).insert(work.placement, state.ranges)
    run = OnnxRuntimeModel(candidate, state.model.base_dir, 1).run
    exact = OnnxRuntimeModel(reference.proto, reference.base_dir, 1).run
    return np.stack([(run(x)["y"] - exact(x)["y"]).mean(axis=(0, 2, 3)) for x in inputs(64, 2)])


@pytest.mark.parametrize("scheme", [INT8, UINT8, PER_TENSOR])
def test_bias_correction_takes_the_mean_error_away(tmp_path: Path, scheme: Scheme):
    model = network(tmp_path)
    work, before = work_of(model, scheme), state_of(model)
    after, layers = correct_bias(before, work)
    assert layers == 2
    shift = np.abs(error(before, work, model).mean(axis=0))
    left = np.abs(error(after, work, model).mean(axis=0))
    assert shift.max() > 0.1
    assert left.max() < 0.2 * shift.max()
    assert (after.model.array("w") == model.array("w")).all()


def test_a_scale_for_each_channel_recovers_more_and_keeps_the_integers(tmp_path: Path):
    model = network(tmp_path)
    work, before = work_of(model, INT8), state_of(model)
    powers = {}
    for name, step in (("bias", correct_bias), ("scale", correct_scale)):
        after, _ = step(before, work)
        candidate = Inserter(after.model, INT8).insert(work.placement, after.ranges)
        run = OnnxRuntimeModel(candidate, model.base_dir, 1).run
        exact = OnnxRuntimeModel(model.proto, model.base_dir, 1).run
        powers[name] = np.mean([np.mean((run(x)["y"] - exact(x)["y"]) ** 2) for x in inputs(16, 2)])
    assert powers["scale"] < 0.9 * powers["bias"]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**16), st.sampled_from([INT8, UINT8]))
def test_factors_leave_quantized_weights_and_layers_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, seed: int, scheme: Scheme
):
    model = network(tmp_path_factory.mktemp("m"), seed)
    work, before = work_of(model, scheme, 4), state_of(model)
    after, _ = correct_scale(before, work)
    one, other = (
        Inserter(state.model, scheme).insert(work.placement, state.ranges)
        for state in (before, after)
    )
    assert same_layers(one, other)
    integers = [
        {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer if t.data_type == 3}
        for proto in (one, other)
    ]
    names = [name for name in integers[0] if name.startswith(("v/", "w/"))]
    assert {name[0] for name in names} == {"v", "w"}
    assert any(values.size > 1 for values in integers[0].values())
    for name in names:
        assert (integers[0][name] == integers[1][name]).all(), name


def test_layers_that_cannot_take_a_bias_or_a_factor(tmp_path: Path):
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[1,4] x) => (float[1,4] y, float[1,4] z)
    <float[4,4] v = {1}, float[4,4] w = {1}, float[4,4] u = {1},
     float[4] b = {1, 2, 3, 4}, float[4] c = {1, 2, 3, 4}>
    {
        [product] m = MatMul(x, v)
        [bias] y = Add(m, b)
        [plain] n = MatMul(y, w)
        [gemm] z = Gemm<beta = 0.5>(n, u, c)
    }
    """
    onnx.save(parse_model(text), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    found = {layer.node.name: layer for layer in layers_of(model, INT8)}
    assert {name: layer.weight is not None for name, layer in found.items()} == {
        "bias": False,
        "gemm": True,
    }
    assert not any(layer.weight for layer in layers_of(model, PER_TENSOR))
    edge = model.graph.edge_at(model.graph.by_name["gemm"], 1)
    pinned = Placement.of_groups([[edge]]).with_weights(frozenset([edge]))
    assert not any(layer.weight for layer in layers_of(model, INT8, pinned))
    without = network(tmp_path, text=NETWORK.replace(", c)", ")").replace(", b)", ")"))
    state, layers = correct_bias(state_of(without), work_of(without, INT8))
    assert (state.model, layers) == (without, 0)


def test_a_step_that_does_not_help_elsewhere_is_not_kept(tmp_path: Path):
    model = network(tmp_path)
    first, work = state_of(model), work_of(model, INT8)
    scale_alone, both = [{"y": 0.01}] * 2, [{"y": 0.02}] * 2
    noisier = iter([[{"y": 0.1}] * 2, [{"y": 0.05}, {"y": 0.2}], scale_alone, both])
    state, attempts = try_steps(
        first, ["scale-correction", "bias-correction"], work, lambda _: next(noisier)
    )
    assert [(a.step, a.kept, a.layers) for a in attempts] == [
        ("bias-correction", False, 2),
        ("scale-correction", True, 2),
    ]
    assert attempts[0].reason == "it does not help on samples held back"
    assert state is not first


def test_constants_of_another_shape_or_beyond_their_type_are_refused(tmp_path: Path):
    model = network(tmp_path)
    with pytest.raises(ValueError, match="has shape"):
        with_constants(model, {"b": np.zeros(3)})
    with pytest.raises(ValueError, match="beyond float32"):
        with_constants(model, {"b": np.full(2, 1e300)})
    changed = with_constants(model, {"b": np.array([1.0, 2.0])})
    assert changed.array("b").dtype == np.float32
    assert same_layers(model.proto, changed.proto)
    other = onnx.ModelProto()
    other.CopyFrom(changed.proto)
    other.graph.node[0].name = "renamed"
    assert not same_layers(model.proto, other)
