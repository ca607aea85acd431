"""Models for one value of an input: the branches that run take the place of the Ifs it decides."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import placer
from placer.calibration.dataset import load_dataset, synthetic_dataset
from placer.errors import InputError
from placer.graph.bodies import Bodies, bodies_of
from placer.importing.source_model import recovered
from placer.model import load_model
from placer.model.fixed_inputs import fixed_values
from tests.conftest import Finished
from tests.reference_outputs import outputs

Save = Callable[..., Path]
ARTEFACTS = Path(__file__).parent.parent / "artefacts"

# A switch as in silero-vad: one network for each sampling rate.
NETWORK = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N,4,8,8] x, int64 sr, float[2] pair) => (float[N,4,8,8] y)
<float[4,4,1,1] w = {0.5}, float[4,4,1,1] v = {0.25}, int64 rate = {16000}> {
  [is_16k] c = Equal(sr, rate)
  [switch] s = If (c) <
    then_branch = a () => (float[N,4,8,8] t) { [conv] m = Conv(x, w) [relu] t = Relu(m) },
    else_branch = b () => (float[N,4,8,8] e) { [other] e = Conv(x, v) }
  >
  [total] p = ReduceSum<keepdims = 0>(pair)
  y = Add(s, p)
}
"""
BY_SHAPE = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N,4,8,8] x) => (float[N,4,8,8] y) <int64 one = {1}, int64 zero = {0}> {
  n = Shape(x)
  first = Gather(n, zero)
  c = Equal(first, one)
  [branch] y = If (c) <
    then_branch = a () => (float[N,4,8,8] t) { t = Relu(x) },
    else_branch = b () => (float[N,4,8,8] e) { e = Abs(x) }
  >
}
"""


def test_what_is_in_bodies_is_counted_and_its_switch_found(save: Save):
    found = bodies_of(onnx.load(save(NETWORK)))
    assert found == Bodies(("If 'switch'",), nodes=3, total=7, switches=("sr",))
    assert found.sentence() == (
        "3 of 7 nodes (43%) stay float in the bodies of If 'switch', which no rule enters; "
        "placer optimize (or extract) --fix sr=VALUE puts what runs in their place"
    )
    assert "--fix sr=16000 puts" in found.sentence({"sr": 16000})


def test_a_model_without_bodies_has_nothing_to_say(save: Save):
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Abs(x) }'
    assert bodies_of(onnx.load(save(text))).sentence() == ""


@pytest.mark.parametrize(
    ("rate", "nodes"), [(16000, ["conv", "relu", "total"]), (8000, ["other", "total"])]
)
def test_the_branch_that_runs_takes_the_place_of_the_if(
    save: Save, tmp_path: Path, rate: int, nodes: list[str]
):
    path = save(NETWORK)
    fixed = placer.fix_inputs(path, tmp_path / "fixed.onnx", {"sr": rate})
    assert (fixed.nodes, fixed.bodies.nodes) == (len(nodes) + 1, 0)
    proto = onnx.load(fixed.model)
    assert [node.name for node in proto.graph.node][: len(nodes)] == nodes
    assert [value.name for value in proto.graph.input] == ["x", "pair"]
    rng = np.random.default_rng(0)
    values = {"x": rng.standard_normal((3, 4, 8, 8)).astype(np.float32), "pair": np.ones(2, "f")}
    (expected,) = outputs(onnx.load(path), **values, sr=np.array(rate))
    (found,) = outputs(proto, **values)
    assert np.array_equal(expected, found)
    assert load_model(fixed.model).graph.by_op["Conv"]


def test_explain_shows_the_branch_that_runs(save: Save, placer: Callable[..., Finished]):
    path, shapes = save(NETWORK), ("--shape", "x=1x4x8x8")
    assert "stay float in the bodies" in placer("explain", path, *shapes).out
    fixed = placer("explain", path, *shapes, "--fix", "sr=8000", "--all").out
    assert "stay float in the bodies" not in fixed
    assert "│ other " in fixed
    assert placer("explain", path, *shapes, "--fix", "rate=1").code == 2
    by_name = placer("explain", path, "--shape", "N=1", "--fix", "sr=8000", "--all")
    assert (by_name.code, by_name.out) == (0, fixed)


def test_a_wrong_name_is_told_with_the_dimensions_that_there_are(save: Save, tmp_path: Path):
    with pytest.raises(InputError, match=r"use one of: x, sr, pair, or a dimension: N; did you"):
        placer.fix_inputs(save(NETWORK), tmp_path / "fixed.onnx", {"sr": 1}, {"xx": (2,)})


def test_a_fixed_input_may_have_a_dimension_that_others_have(save: Save):
    path = save(NETWORK.replace("float[2] pair", "float[N] pair"))
    model = load_model(path, {"N": (2,)}, fix={"pair": 1})
    assert model.input_shapes == {"x": (2, 4, 8, 8), "sr": ()}


def test_explain_fixes_no_input_of_a_file_with_pairs():
    with pytest.raises(InputError, match=r"torch_fx\.onnx is quantized; recover the float model"):
        placer.explain(ARTEFACTS / "torch_fx.onnx", fix={"image": 1})


PAIRS = """<ir_version: 9, opset_import: ["": 17]>
g (float[1,1,4,4] x, int64 sr) => (float[1,1,4,4] y)
<float[1,1,1,1] w = {0.5}, float s = {0.01}, int8 z = {0}, int64 k = {16000}> {
  i = QuantizeLinear(x, s, z) [in] d = DequantizeLinear(i, s, z)
  [conv1] a = Conv(d, w)
  is = Equal(sr, k)
  y = If(is) <
    then_branch = one () => (float[1,1,4,4] o) {
      j = QuantizeLinear(a, s, z) e = DequantizeLinear(j, s, z) [conv2] o = Conv(e, w)
    },
    else_branch = other () => (float[1,1,4,4] p) { p = Neg(a) }
  >
}"""


@pytest.mark.parametrize(("rate", "last"), [(16000, "Conv"), (8000, "Neg")])
def test_an_input_of_a_quantized_file_is_fixed_in_its_float_model(save: Save, rate: int, last: str):
    path = save(PAIRS)
    model = load_model(path, fix={"sr": rate})
    assert [node.op for node in model.graph.nodes] == ["Conv", last]
    assert "x -> conv1[0]" in map(str, model.imported.placement.edges)
    data = synthetic_dataset(model, 2, 0)
    _, distance = recovered(model, data)
    assert distance.sqnr is not None and distance.sqnr > 15


def test_a_fixed_input_of_a_quantized_file_has_no_pair(save: Save):
    model = load_model(save(PAIRS), fix={"x": 1, "sr": 8000})
    assert model.input_shapes == {}
    assert not model.imported.placement.edges


def test_a_shape_that_decides_an_if_is_fixed_too(save: Save, tmp_path: Path):
    path = save(BY_SHAPE)
    assert bodies_of(onnx.load(path)).by_shape
    fixed = placer.fix_inputs(path, tmp_path / "fixed.onnx", {}, {"x": (2, 4, 8, 8)})
    (node,) = onnx.load(fixed.model).graph.node
    assert (node.op_type, fixed.bodies.nodes) == ("Abs", 0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"rate": 1}, "unknown input 'rate'"),
        ({"sr": 0.5}, "input 'sr' of type int64 cannot be 0.5"),
        ({"sr": 1e30}, r"input 'sr' of type int64 cannot be 1e\+30"),
        ({"pair": 1e39}, r"input 'pair' of type float32 cannot be 1e\+39"),
        ({"x": 1}, "the shape of input 'x' is not known"),
    ],
)
def test_refusals(save: Save, tmp_path: Path, values: dict[str, float], expected: str):
    with pytest.raises(InputError, match=expected):
        placer.fix_inputs(save(NETWORK), tmp_path / "fixed.onnx", values)


@settings(
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rate=st.integers(-(2**40), 2**40), rows=st.integers(1, 4))
def test_a_fixed_model_computes_what_the_file_does(save: Save, rate: int, rows: int):
    path = save(NETWORK)
    model = load_model(path, {"x": (rows, 4, 8, 8)}, fix={"sr": rate})
    assert (bodies_of(model.proto).nodes, model.graph.inputs) == (0, ("x", "pair"))
    values = {"x": np.linspace(-1, 1, rows * 256).reshape(rows, 4, 8, 8).astype(np.float32)}
    values["pair"] = np.ones(2, np.float32)
    (expected,) = outputs(onnx.load(path), **values, sr=np.array(rate))
    (found,) = outputs(model.proto, **values)
    assert np.array_equal(expected, found)
    assert model.fingerprint != load_model(path).fingerprint
    again = load_model(path, {"x": (rows, 4, 8, 8)}, fix={"sr": float(rate)})
    assert model.fingerprint == again.fingerprint  # As other ways in read the number.


def test_data_may_hold_fixed_inputs_with_their_value_only(save: Save, tmp_path: Path):
    model = load_model(save(NETWORK), {"x": (1, 4, 8, 8)}, fix={"sr": 16000})
    assert fixed_values(model.proto) == {"sr": 16000}
    arrays = {"x": np.ones((3, 4, 8, 8), "f"), "pair": np.ones((3, 2), "f")}
    np.savez(tmp_path / "data.npz", **arrays, sr=np.full(3, 16000))
    (first, *_) = load_dataset(str(tmp_path / "data.npz"), model)
    assert sorted(first.inputs) == ["pair", "x"]
    np.savez(tmp_path / "data.npz", **arrays, sr=np.array([16000, 8000, 16000]))
    with pytest.raises(InputError, match="'sr' holds other values than 16000, for which"):
        load_dataset(str(tmp_path / "data.npz"), model)


@pytest.mark.slow
def test_a_run_makes_the_model_for_one_value(save: Save, tmp_path: Path):
    path = save(NETWORK)
    rng = np.random.default_rng(0)
    arrays = {"x": rng.standard_normal((8, 4, 8, 8)), "pair": np.ones((8, 2))}
    data = {name: array.astype(np.float32) for name, array in arrays.items()}
    data["sr"] = np.full(8, 16000)
    result = placer.optimize(
        path,
        data=data,
        fix={"sr": 16000},
        engine="onnxruntime",
        budget=2,
        gates="sqnr>=1",
        output=tmp_path / "out",
        cache=False,
    )
    written = tmp_path / "out" / "optimized.onnx"
    assert [value.name for value in onnx.load(written).graph.input] == ["x", "pair"]
    assert "--fix sr=16000" in result.command
    np.savez(tmp_path / "data.npz", **data)
    found = placer.evaluate(path, [written], data=str(tmp_path / "data.npz"))
    assert found.models[0].measures


def test_texts_are_no_values(save: Save, tmp_path: Path):
    texts = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,4] x, string[1] name) => (float[1,4] y, string[1] same) {
      y = Relu(x)
      same = Identity(name)
    }
    """
    with pytest.raises(InputError, match="input 'name' holds texts; fix inputs of numbers only"):
        placer.fix_inputs(save(texts), tmp_path / "fixed.onnx", {"name": 1})


def test_explain_says_what_it_does_not_see(save: Save):
    found = placer.explain(save(NETWORK))
    assert found.inside.startswith("3 of 7 nodes (43%) stay float")
    assert found.to_json()["nodes_in_bodies"] == {"nodes": 3, "of": 7}
