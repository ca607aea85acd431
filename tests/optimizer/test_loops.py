"""Bodies of Loop and Scan: matched, calibrated over all trips, quantized and judged."""

from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import pytest
from onnx import ModelProto, numpy_helper

import placer
from placer.calibration.activations import activations, passes
from placer.calibration.body_runs import most_runs
from placer.calibration.collect import calibrate
from placer.calibration.dataset import Dataset, load_dataset
from placer.engines.execution_paths import ExecutionPaths
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.errors import InputError
from placer.graph import tensor_type
from placer.graph.flat import body_of, flatten
from placer.graph.scopes import Body
from placer.graph.text import parse_model
from placer.model import Model, load_model, load_quantized, save_model
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.bodies_run import bodies_run
from placer.optimizer.setup.prepare import prepare
from placer.qdq import Inserter
from placer.qdq.extract import extract_placement
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from tests.optimizer.judged_file import optimized_and_applied
from tests.reference_outputs import outputs

# A decoder whose memory grows by a row a trip, with what it reads from outside of the Loop.
DECODER = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,256] x, float[8,256] context, int64[1] trips)
  => (float[N,256] memory, float[T,1,256] steps)
<float[256,256] own = {0.5}, float[256,256] keys = {0.5}, bool go = {1}, int64[1] one = {1}> {
  [outside] c = Tanh(context)
  count = Squeeze(trips)
  [decoder] last, memory, steps = Loop (count, go, x, x) <
    body = b (int64 i, bool on, float[1,256] s, float[R,256] m)
        => (bool on, float[1,256] t, float[R,256] n, float[1,256] step) {
      [project] p = MatMul(s, own)
      [attend] a = MatMul(c, keys)
      [pooled] q = ReduceMax<axes = [0], keepdims = 1>(a)
      [sum] u = Add(p, q)
      [act] t = Tanh(u)
      [grow] n = Concat<axis = 0>(m, t)
      step = Identity(t)
    }
  >
}
"""
PACK = load_pack("onnxruntime")
LOOP = (Body("decoder", "body"),)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loops")
    write(DECODER, path, width=256)
    return path


def write(text: str, path: Path, width: int) -> None:
    """A decoder of ``width`` to ``path``, with data of several trips and of none."""
    proto = parse_model(text)
    shapes = {value.name: tensor_type(value).shape or () for value in proto.graph.input}
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer[:2]:
        values = rng.standard_normal((width, width), np.float32) / np.float32(width**0.5)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    save_model(proto, path, path / "m.onnx")
    x, context = (rng.standard_normal((6, *shapes[n]), np.float32) for n in ("x", "context"))
    trips = np.array([[1], [3], [5], [2], [4], [3]])
    np.savez(path / "some.npz", x=x, context=context, trips=trips)
    np.savez(path / "none.npz", x=x, context=context, trips=np.zeros_like(trips))


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load_model(folder / "m.onnx", bodies=True)


@pytest.fixture(scope="module")
def data(folder: Path, model: Model) -> Dataset:
    return load_dataset(folder / "some.npz", model)


def default(model: Model) -> Placement:
    return place(find_sites(model.graph, PACK.rules), {})


def candidate(model: Model, data: Dataset) -> ModelProto:
    placement = default(model)
    tensors = {e.tensor for e in placement.edges} - model.graph.initializers.keys()
    ranges = calibrate(model, tensors, data).ranges("minmax", PACK.manifest.scheme)
    return Inserter(model, PACK.manifest.scheme).insert(placement, ranges)


def body(proto: ModelProto) -> onnx.GraphProto:
    return body_of(next(node for node in proto.graph.node if node.op_type == "Loop"), "body")


def test_a_body_is_part_of_the_graph_with_the_types_of_every_trip(model: Model):
    names = [node.name for node in model.graph.nodes]
    inside = ["project", "attend", "pooled", "sum", "act", "grow"]
    assert names == ["outside", "Squeeze_1", *inside, "decoder"]
    assert model.graph.scopes == dict.fromkeys(inside, LOOP)
    types = {name: model.graph.type_of(name).shape for name in ("s", "t", "m", "n", "i")}
    assert types == {"s": (1, 256), "t": (1, 256), "m": None, "n": None, "i": ()}
    assert model.graph.inputs == ("x", "context", "trips")


def test_the_float_model_computes_the_same(folder: Path, model: Model, data: Dataset):
    for sample in data:
        expected = outputs(onnx.load(folder / "m.onnx"), **sample.inputs)
        found = outputs(model.proto, **sample.inputs)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_values_of_all_trips_are_observed(model: Model, data: Dataset):
    own = model.array("own")
    for sample, found in activations(model, ["s", "p", "m", "c"], data):
        _, steps = outputs(model.proto, **sample.inputs)
        states = np.concatenate([sample.inputs["x"][None], steps[:-1]])
        np.testing.assert_allclose(found["s"], states.ravel(), rtol=1e-5)
        np.testing.assert_allclose(found["p"], (states @ own).ravel(), atol=1e-5)
        rows = [len(steps) * (len(steps) + 1) // 2 * 256]  # One more each trip.
        assert list(found["m"].shape) == rows
        assert found["c"].shape == (8, 256)


def test_trips_count_in_what_one_pass_over_the_data_takes(model: Model, data: Dataset):
    assert most_runs(model, data) == {LOOP: 5}
    row, five = 256 * 4, 5 * 256 * 4
    assert passes(model, ["c", "p", "t"], data, 8 * row + five) == [["c", "p"], ["t"]]
    assert passes(model, ["p", "t"], data, 2 * row) == [["p"], ["t"]]


def test_pairs_are_in_the_body_where_what_they_quantize_is(model: Model, data: Dataset):
    proto = candidate(model, data)
    onnx.checker.check_model(proto, full_check=True)
    inside = {node.name for node in body(proto).node}
    assert {"s/QuantizeLinear", "s/DequantizeLinear", "c/DequantizeLinear"} <= inside
    outside = [node.name for node in proto.graph.node]
    assert "c/QuantizeLinear" in outside  # Once, not in every trip.
    assert {t.name for t in body(proto).initializer} >= {"own/quantized", "keys/quantized"}


def test_an_input_of_the_model_is_quantized_once(tmp_path: Path, data: Dataset):
    text = DECODER.replace("MatMul(c, keys)", "MatMul(context, keys)")
    save_model(parse_model(text), tmp_path, tmp_path / "m.onnx")
    proto = candidate(load_model(tmp_path / "m.onnx", bodies=True), data)
    assert "context/QuantizeLinear" in [node.name for node in proto.graph.node]
    assert "context/DequantizeLinear" in [node.name for node in body(proto).node]


def test_the_placement_and_the_float_model_are_read_back(
    model: Model, data: Dataset, tmp_path: Path
):
    save_model(candidate(model, data), model.base_dir, tmp_path / "q.onnx")
    proto = load_quantized(tmp_path / "q.onnx")
    flatten(proto.graph)
    assert extract_placement(proto).placement.edges == default(model).edges
    imported = load_model(tmp_path / "q.onnx", bodies=True)
    assert [n.name for n in imported.graph.nodes] == [n.name for n in model.graph.nodes]
    for sample in data:
        expected = outputs(model.proto, **sample.inputs)
        for one, other in zip(outputs(imported.proto, **sample.inputs), expected, strict=True):
            np.testing.assert_allclose(one, other, atol=0.1)


def test_onnxruntime_runs_integer_layers_in_a_loop(model: Model, data: Dataset, tmp_path: Path):
    compiled = OnnxRuntimeEngine().compile(candidate(model, data), tmp_path)
    plan = compiled.plan(next(iter(data)).inputs)
    layers = {node: layer for layer in plan.layers for node in layer.nodes}
    assert layers["project"].op == layers["attend"].op == "QLinearMatMul"
    assert layers["project"].time_us
    assert layers["decoder"].time_us == 0  # What its body takes is in the layers there.


def test_latency_is_that_of_the_median_number_of_trips(model: Model, data: Dataset):
    taken = bodies_run(model, data, data, pytest.fail).inputs
    assert isinstance(taken, ExecutionPaths)
    assert [(one.inputs["trips"].item(), one.share) for one in taken.paths] == [(3, 1)]


def test_a_body_that_runs_on_no_sample_stays_float(folder: Path):
    request = Request(folder / "m.onnx", data=folder / "none.npz", engine="onnxruntime")
    told = "6 of 9 nodes stay float in the body of 'decoder': .* must both run them; give"
    with pytest.raises(InputError, match=told):
        prepare(request, QuietObserver())


SCAN = """
<ir_version: 9, opset_import: ["": 17]>
g (bool[1] skip, float[T,2,32] rows, float[2,32] x) => (float[2,32] last, float[T,2,32] all)
<float[32,32] w = {0.1}, float[32,32] v = {0.2}> {
  [scan] last, all = Scan <num_scan_inputs = 1, scan_output_axes = [0],
    body = b (float[2,32] s, float[2,32] row) => (float[2,32] t, float[2,32] kept) {
      [in] p = MatMul(row, w)
      [choice] q = If (skip) <
        then_branch = th () => (float[2,32] r) { [idle] r = Neg(p) },
        else_branch = el () => (float[2,32] r) { [deep] m = MatMul(s, v) [join] r = Add(m, p) }
      >
      [act] t = Tanh(q)
      kept = Identity(t)
    }
  > (x, rows)
}
"""


def test_an_if_in_a_scan(tmp_path: Path):
    save_model(parse_model(SCAN), tmp_path, tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx", {"rows": (5, 2, 32)}, bodies=True)
    assert model.graph.type_of("row").shape == model.graph.type_of("s").shape == (2, 32)
    scan = Body("scan", "body")
    assert model.graph.scopes["deep"] == (scan, Body("choice", "else_branch"))
    rng = np.random.default_rng(0)
    rows, x = rng.standard_normal((4, 5, 2, 32), np.float32), np.zeros((4, 2, 32), np.float32)
    np.savez(tmp_path / "d.npz", rows=rows, x=x, skip=np.array([[True], [False]] * 2))
    data = load_dataset(tmp_path / "d.npz", model)
    for sample, found in activations(model, ["row", "p", "m"], data):
        np.testing.assert_array_equal(found["row"], sample.inputs["rows"].ravel())
        assert found["p"].shape == (5 * 2 * 32,)
        assert ("m" in found) == (not sample.inputs["skip"])
        if "m" in found:
            _, kept = outputs(model.proto, **sample.inputs)
            expected = np.concatenate([sample.inputs["x"][None], kept[:-1]]) @ model.array("v")
            np.testing.assert_allclose(found["m"], expected.ravel(), rtol=1e-4, atol=1e-5)
    proto = candidate(model, data)
    onnx.checker.check_model(proto, full_check=True)
    for sample in data:
        expected = outputs(model.proto, **sample.inputs)
        for one, other in zip(outputs(proto, **sample.inputs), expected, strict=True):
            np.testing.assert_allclose(one, other, atol=0.1)


VARYING = """
<ir_version: 9, opset_import: ["": 17]>
g (float[2,T,8] rows, int64[T] trips, float[2,8] x) => (float[2,8] last, float[2,8,T] all)
<float[8,8] w = {0.1}, float zero = {0}, bool go = {1}> {
  [scan] last, all = Scan <num_scan_inputs = 2, scan_input_axes = [-2, 0],
    scan_input_directions = [1, 0], scan_output_axes = [-1], scan_output_directions = [1],
    body = b (float[2,8] s, float[2,8] row, int64 n) => (float[2,8] t, float[2,8] kept) {
      sum = ReduceSum <keepdims = 0> (row)
      positive = Greater(sum, zero)
      [choice] q = If (positive) <
        then_branch = th () => (float[2,8] r) { [in] p = MatMul(row, w) r = Tanh(p) },
        else_branch = el () => (float[2,8] r) { r = Neg(row) }
      >
      [loop] u = Loop (n, go, q) <
        body = l (int64 i, bool on, float[2,8] v) => (bool on, float[2,8] o) {
          [deep] m = MatMul(v, w) o = Tanh(m)
        }
      >
      t = Add(s, u)
      kept = Identity(t)
    }
  > (x, rows, trips)
}
"""


def test_what_differs_from_trip_to_trip_of_a_scan(tmp_path: Path):
    save_model(parse_model(VARYING), tmp_path, tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx", {"rows": (2, 5, 8), "trips": (5,)}, bodies=True)
    rows = np.ones((2, 5, 8), np.float32) * np.array([-1, 2, -3, 4, 5], np.float32)[:, None]
    given = {"rows": rows, "trips": np.array([2, 0, 1, 0, 1]), "x": np.zeros((2, 8), np.float32)}
    np.savez(tmp_path / "d.npz", **{name: value[None] for name, value in given.items()})
    data = load_dataset(tmp_path / "d.npz", model)
    runs = {str(scope[-1]): count for scope, count in most_runs(model, data).items()}
    assert runs == {
        "the body of 'scan'": 5,
        "the then branch of If 'choice'": 3,
        "the else branch of If 'choice'": 2,
        "the body of 'loop'": 4,
    }
    ((_, found),) = activations(model, ["row", "p", "v", "all"], data)
    backwards = rows[:, ::-1].transpose(1, 0, 2)
    np.testing.assert_array_equal(found["row"], backwards.ravel())
    w = model.array("w")
    np.testing.assert_allclose(found["p"], (backwards[[0, 1, 3]] @ w).ravel(), rtol=1e-5)
    np.testing.assert_array_equal(found["all"], outputs(model.proto, **given)[1])
    assert found["v"].shape == (4 * 2 * 8,)


def test_explain_tells_what_a_body_is_given_from_inputs_of_the_model(tmp_path: Path):
    write(DECODER, tmp_path, width=1024)  # Wide products, which are quantized on any processor.
    found = placer.explain(tmp_path / "m.onnx", pack="onnxruntime").explanation
    reasons = [one.because for one in found.conversions if "'s'" in one.because]
    assert reasons == ["'s' is given to the body in float"]


@pytest.mark.usefixtures("faster_by_pairs")
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_the_file_is_the_one_that_was_judged_and_its_placement_makes_it_again(
    tmp_path: Path, engine: str
):
    if engine == "openvino":
        pytest.importorskip("openvino")
    # Few rows and large weights, which the default quantizes on any processor.
    text = DECODER.replace("[256,256]", "[1024,1024]").replace(",256]", ",1024]")
    write(text, tmp_path, width=1024)
    model, data = tmp_path / "m.onnx", tmp_path / "some.npz"
    inside = body(optimized_and_applied(model, data, engine, tmp_path)).node
    assert "QuantizeLinear" in {node.op_type for node in inside}
