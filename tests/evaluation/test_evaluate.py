"""Models compared with their float model: metrics by part, intervals, and layer by layer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import placer
from placer.accuracy.gates import Gate
from placer.engines.base import Engine
from placer.engines.onnxruntime import OnnxRuntimeEngine, OnnxRuntimeModel
from placer.engines.registry import EngineOptions
from placer.engines.select import BUILT_IN
from placer.errors import RunError
from placer.evaluation.layers import passes
from placer.graph.text import parse_model
from placer.model import load_model
from placer.qdq import Inserter
from placer.quantization import Placement, Range, Scheme
from tests.conftest import DIGITS, Finished
from tests.few_digits import copy_few_digits

UINT8 = Scheme(activation="uint8", symmetric=False, bias="int32")
THREE_LAYERS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,8,8] x) => (float[1,4,8,8] y)
<float[2,2,1,1] w = {1, 0.5, -0.5, 1}, float[2,2,1,1] v = {0.5, 1, 1, -1}>
{
    [first] a = Conv(x, w)
    [second] b = Conv(a, v)
    [third] c = Relu(b)
    [last] y = Concat<axis = 1>(c, a)
}
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    onnx.save(parse_model(THREE_LAYERS), tmp_path / "float.onnx")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(12, 2, 8, 8)).astype(np.float32))
    return tmp_path


def quantized(net: Path, range_of_a: float) -> Path:
    """The network with pairs before both Convs; a narrow range before the second cuts off."""
    model = load_model(net / "float.onnx")
    edges = [edge for n in model.graph.by_op["Conv"] for edge in model.graph.edges_into(n)]
    ranges = {"x": Range(-4, 4), "a": Range(-range_of_a, range_of_a)}
    candidate = Inserter(model, UINT8).insert(Placement.of(edges), ranges)
    path = net / f"quantized-{range_of_a}.onnx"
    onnx.save(candidate, path)
    return path


def value(found: placer.EvalResult, metric: str, where: str, model: int = 0) -> float:
    (one,) = (m for m in found.models[model].measures if (m.metric, m.where) == (metric, where))
    return one.value


def test_metrics_are_numpys_over_all_samples(net: Path):
    path = quantized(net, 5)
    found = placer.evaluate(net / "float.onnx", [path], data=net / "data.npz")
    runs = [OnnxRuntimeModel(onnx.load(p), net, 1).run for p in (net / "float.onnx", path)]
    samples = np.load(net / "data.npz")["x"][:, None]
    exact, got = (np.stack([run({"x": s})["y"] for s in samples]) for run in runs)
    for where, part in (
        ("y", slice(4)),
        ("y[0:2, axis 1]", slice(2)),
        ("y[2:4, axis 1]", slice(2, 4)),
    ):
        signal, error = exact[:, :, part], (got - exact)[:, :, part]
        expected = 10 * math.log10(float((signal**2).sum() / (error**2).sum()))
        assert value(found, "sqnr", where) == pytest.approx(expected, abs=1e-3)
        assert value(found, "max_abs", where) == pytest.approx(np.abs(error).max(), abs=1e-5)
    assert found.samples == 12


def test_the_first_wrong_layer_is_the_one_behind_the_narrow_range(net: Path):
    paths = [quantized(net, 5), quantized(net, 0.4)]
    found = placer.evaluate(net / "float.onnx", paths, data=net / "data.npz", layers=True)
    well, wrong = found.models
    assert [layer.tensor for layer in well.layers] == ["a", "b", "c", "y"]
    assert well.first_wrong is None
    assert (wrong.first_wrong.tensor, wrong.first_wrong.node) == ("b", "second")
    assert wrong.layers[0].sqnr > 30  # dB: the input's pair is as it should be.


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("abcy", None),
        ("bcdy", "4 of 4 were found by structure"),  # As numbers go on where a tensor came in.
        ("efgy", "4 of 4 were found by structure"),
        ("abco", None),  # The output alone, which its place tells.
    ],
)
def test_tensors_that_were_named_anew_are_found(tmp_path: Path, names: str, found: str | None):
    """Of the two Convs and Relus, none is held against another one."""
    head = """
    <ir_version: 8, opset_import: ["" : 17]> g (float[1,2,8,8] x) => (float[1,2,8,8] OUT)
    <float[2,2,1,1] v = {1, -1, 0.5, 1}, float[2,2,1,1] w = {0.5, 1, 1, -1},
     float s = {0.01}, int8 z = {0}>
    """
    first, second, third, last = names
    bodies = {
        "float": "a = Conv(x, v) b = Relu(a) c = Conv(b, w) y = Sigmoid(c)",
        "quantized": f"{first} = Conv(x, v) {second} = Relu({first}) "
        f"i = QuantizeLinear({second}, s, z) j = DequantizeLinear(i, s, z) "
        f"{third} = Conv(j, w) {last} = Sigmoid({third})",
    }
    for name, body in bodies.items():
        text = head.replace("OUT", "y" if name == "float" else last) + f"{{ {body} }}"
        onnx.save(parse_model(text), tmp_path / f"{name}.onnx")
    data = np.random.default_rng(0).normal(size=(4, 2, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=data.clip(-0.4, 0.4))
    files = (tmp_path / "float.onnx", tmp_path / "quantized.onnx")
    (one,) = placer.evaluate(*files, data=tmp_path / "data.npz", layers=True).models
    assert [layer.tensor for layer in one.layers if layer.tensor != "y"] == ["a", "b", "c"]
    assert one.layers[0].sqnr == math.inf
    assert all(layer.sqnr > 30 for layer in one.layers)
    told = [note for note in one.notes if "by structure" in note]
    assert len(told) == (found is not None)
    assert all(note.endswith(f"otherwise than the float model: {found}") for note in told)


PRODUCTS = "p = MatMul(x, w) a = Add(p, v) q = MatMul(a, w) b = Add(q, v) r = MatMul(b, w)"
GELU = (
    "c = Div(b, two) e = Erf(c) f = Add(e, one) g = Mul(b, f) h = Mul(g, half) "
    "i = Sigmoid(h) j = Tanh(i) y = MatMul(j, w)"
)
PAIR = "k = QuantizeLinear({0}, s, z) l = DequantizeLinear(k, s, z) "


@pytest.mark.parametrize(
    ("body", "quantized", "layers", "note"),
    [
        pytest.param(
            f"{PRODUCTS} y = Add(r, v)",
            f"a = Gemm(x, w, v) {PAIR.format('a')} b = Gemm(l, w, v) y = Gemm(b, w, v)",
            *(["a", "b", "y"], ""),
            id="ONNX Runtime's preparation makes Gemms of the products with a bias",
        ),
        pytest.param(
            f"{PRODUCTS} y = Relu(r)",
            f"a = Gemm(x, w, v) {PAIR.format('a')} b = Gemm(l, w, v) r = MatMul(b, w) y = Relu(r)",
            *(["a", "b", "r", "y"], ""),
            id="more names than are found by structure",
        ),
        pytest.param(
            f"a = Tanh(x) b = MatMul(a, w) {GELU}",
            f"a = Tanh(x) {PAIR.format('a')} b = MatMul(l, w) h = Gelu(b) i = Sigmoid(h) "
            "j = Tanh(i) y = MatMul(j, w)",
            *(["a", "b", "h", "i", "j", "y"], ""),
            id="a Gelu keeps the name of its last step",
        ),
        pytest.param(
            "a = Tanh(x) b = Sigmoid(a) c = MatMul(b, w) d = Tanh(c) "
            "e = Sigmoid(d) f = Tanh(e) y = Exp(f)",
            f"a = Tanh(x) b = Sigmoid(a) {PAIR.format('b')} c = MatMul(l, w) d = Tanh(c) "
            "n = Sigmoid(d) e = Tanh(n) y = Exp(e)",
            *(["a", "b", "c", "d", "e", "f", "y"], "2 of 7 were found by structure"),
            id="numbers go on where a tensor came in near the end",
        ),
    ],
)
def test_fusions_keep_the_names_of_what_they_write(
    tmp_path: Path, body: str, quantized: str, layers: list[str], note: str
):
    """Other operators write some tensors; only these names are doubted."""
    head = """
    <ir_version: 10, opset_import: ["" : 20]> g (float[4,2] x) => (float[4,2] y)
    <float[2,2] w = {1, -1, 0.5, 1}, float[2] v = {0.5, 1}, float s = {0.05}, int8 z = {0},
     float two = {1.4142135}, float one = {1}, float half = {0.5}>
    """
    files = tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    for path, nodes in zip(files, (body, quantized), strict=True):
        onnx.save(parse_model(head + f"{{ {nodes} }}"), path)
    data = np.random.default_rng(0).normal(size=(4, 4, 2)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=data)
    (one,) = placer.evaluate(*files, data=tmp_path / "data.npz", layers=True).models
    assert sorted(layer.tensor for layer in one.layers) == sorted(layers)
    assert all(layer.sqnr > 20 for layer in one.layers)
    told = [note for note in one.notes if "by structure" in note]
    assert [text.rpartition(": ")[2] for text in told] == [note] * bool(note)


@pytest.mark.parametrize("taken_out", [True, False])
def test_a_relu_that_the_pair_behind_replaces_does_not_go_wrong(tmp_path: Path, taken_out: bool):
    """ONNX Runtime's quantizer takes it out and gives its name to what it read."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[4,4] x) => (float[4,4] y)
    <float[4,4] w = {1, -1, 0, 2, -2, 1, 1, 0, 1, 1, -3, 1, 0, 2, 1, -1},
     float s = {0.05}, uint8 z = {0}> { BODY }
    """
    relu = "r = MatMul(x, w)" if taken_out else "p = MatMul(x, w) r = Relu(p)"
    bodies = {
        "float": "p = MatMul(x, w) r = Relu(p) y = MatMul(r, w)",
        "quantized": f"{relu} q = QuantizeLinear(r, s, z) d = DequantizeLinear(q, s, z) "
        "y = MatMul(d, w)",
    }
    paths = {name: tmp_path / f"{name}.onnx" for name in bodies}
    for name, body in bodies.items():
        onnx.save(parse_model(text.replace("BODY", body)), paths[name])
    data = np.random.default_rng(0).normal(size=(8, 4, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=data)
    found = placer.evaluate(
        paths["float"], [paths["quantized"]], data=tmp_path / "data.npz", layers=True
    )
    (one,) = found.models
    assert one.first_wrong is None
    assert [layer.tensor for layer in one.layers] == ["p", "r", "y"][taken_out:]


def test_tensors_are_held_in_parts_of_so_many_bytes(net: Path, monkeypatch: pytest.MonkeyPatch):
    shapes = load_model(net / "float.onnx").graph
    monkeypatch.setattr("placer.evaluation.layers._UNKNOWN", 200)
    monkeypatch.setattr("placer.evaluation.layers._AT_ONCE", 2 * 4 * 2 * 8 * 8)
    assert list(passes("abcy", shapes)) == [["a", "b"], ["c"], ["y"]]
    assert list(passes("aooob", shapes)) == [["a", "o", "o"], ["o", "b"]]
    assert list(passes("", shapes)) == []
    monkeypatch.setattr("placer.evaluation.layers._AT_ONCE", 1)
    assert list(passes("ab", shapes)) == [["a"], ["b"]]


def test_masks_of_infinities_and_sequences_do_not_go_wrong_by_themselves(tmp_path: Path):
    attention = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2,4,4] x, bool[4,4] seen) => (float[2,4,4] y)
    <float largest = {-3e38}, float ten = {10},
     float[4,4] w = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}>
    {
        hidden = Mul(largest, ten)
        masked = Where(seen, ten, hidden)
        products = MatMul(x, w)
        scores = Add(products, masked)
        shares = Softmax(scores)
        heads = SplitToSequence<axis = 0>(shares)
        y = ConcatFromSequence<axis = 0>(heads)
    }
    """
    model = tmp_path / "float.onnx"
    onnx.save(parse_model(attention), model)
    data = {"x": np.random.default_rng(0).normal(size=(4, 2, 4, 4)).astype(np.float32)}
    data["seen"] = np.stack([np.tril(np.ones((4, 4), bool))] * 4)
    np.savez(tmp_path / "data.npz", **data)
    found = placer.evaluate(model, [model], data=tmp_path / "data.npz", layers=True)
    (one,) = found.models
    assert one.first_wrong is None
    names = [layer.tensor for layer in one.layers]
    assert names == ["masked", "products", "scores", "shares", "y"]
    assert {layer.sqnr for layer in one.layers} == {math.inf}


def test_the_float_model_itself_is_exact(net: Path):
    found = placer.evaluate(net / "float.onnx", [net / "float.onnx"], data=net / "data.npz")
    assert value(found, "sqnr", "y") > 100
    assert value(found, "argmax_agreement", "y") == 1.0


def test_labels_of_their_own_file(net: Path):
    copy_few_digits(net)
    data = dict(np.load(net / "evaluation.npz"))
    labels = data.pop("labels")
    np.savez(net / "images.npz", **data)
    np.save(net / "labels.npy", labels)
    model = DIGITS / "digits.onnx"
    given = placer.evaluate(model, [model], data=net / "evaluation.npz")
    apart = placer.evaluate(model, [model], data=net / "images.npz", labels=net / "labels.npy")
    assert value(apart, "top1", "logits") == value(given, "top1", "logits") > 0.9
    with pytest.raises(placer.InputError, match="labels for"):
        np.save(net / "few.npy", labels[:1])
        placer.evaluate(model, [model], data=net / "images.npz", labels=net / "few.npy")
    with pytest.raises(placer.InputError, match="give one for each row that fills a batch"):
        np.save(net / "many.npy", np.concatenate([labels, labels[:1]]))
        placer.evaluate(model, [model], data=net / "images.npz", labels=net / "many.npy")


def test_rows_are_counted_on_an_input_that_has_any(tmp_path: Path):
    scaled = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float factor, float[1,4] x) => (float[1,4] y) { y = Mul(x, factor) }
    """
    model, data = tmp_path / "float.onnx", tmp_path / "data.npz"
    onnx.save(parse_model(scaled), model)
    x = np.eye(4, dtype=np.float32)[:, None]
    np.savez(data, factor=np.ones(4, np.float32), x=x)
    np.save(tmp_path / "labels.npy", np.arange(4))
    np.save(tmp_path / "one.npy", np.array(3))
    found = placer.evaluate(model, [model], data=data, labels=tmp_path / "labels.npy")
    assert value(found, "top1", "y") == 1.0
    with pytest.raises(placer.InputError, match="a label a row"):
        placer.evaluate(model, [model], data=data, labels=tmp_path / "one.npy")


def box_error(outputs: dict[str, np.ndarray], batch: dict[str, np.ndarray]) -> float:
    return float(np.abs(outputs["y"] - batch["labels"]).max())


def test_a_detector_that_finds_nothing_is_judged_by_its_scores(tmp_path: Path):
    """None of the four samples has a score above the threshold, so the outputs are all empty."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[1,8] x) => (float[found] found)
    <float[8,8] w = {0.1}, float[8,8] v = {WEIGHT}, int64[1] row = {-1}, float least = {9}> {
        [hidden] a = MatMul(x, w) [head] b = MatMul(a, v) [sigmoid] c = Sigmoid(b)
        [flat] d = Reshape(c, row) [over] e = Greater(d, least) [take] found = Compress(d, e)
    }
    """
    for name, weight in (("float", "0.1"), ("other", "0.11")):
        onnx.save(parse_model(text.replace("WEIGHT", weight)), tmp_path / f"{name}.onnx")
    x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x)
    files = (tmp_path / "float.onnx", tmp_path / "other.onnx")
    found = placer.evaluate(*files, data=tmp_path / "data.npz")
    assert value(found, "sqnr", "c") < 60
    assert "accuracy is judged by what it chooses from: c" in str(found.note)


def test_labels_that_are_no_classes_are_for_functions(tmp_path: Path):
    relu = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,4] y) { y=Relu(x) }'
    )
    model, data = tmp_path / "float.onnx", tmp_path / "data.npz"
    onnx.save(parse_model(relu), model)
    x = np.eye(4, dtype=np.float32)[:, None]
    np.savez(data, x=x, labels=x + 0.5)
    metric = f"{__name__}:box_error"
    found = placer.evaluate(model, [model], data=data, metrics=[metric])
    assert value(found, metric, "all outputs") == 0.5
    np.savez(data, x=x, labels=np.arange(1, 5))  # Classes counted from 1.
    with pytest.raises(placer.InputError, match="1 labels lie outside 0 to 3, the classes of"):
        placer.evaluate(model, [model], data=data)


def test_a_model_of_other_outputs_is_refused(net: Path):
    other = THREE_LAYERS.replace("[1,4,8,8] y)", "[1,6,8,8] z)")
    other = other.replace("y = Concat<axis = 1>(c, a)", "z = Concat<axis = 1>(c, a, a)")
    onnx.save(parse_model(other), net / "other.onnx")
    with pytest.raises(placer.InputError, match="has no output 'y'"):
        placer.evaluate(net / "float.onnx", [net / "other.onnx"], data=net / "data.npz")


@pytest.mark.parametrize(
    ("inputs", "cast", "told"),
    [
        ("float[1,2,8,8] x, float[1] more", "", "reads 'more', which .*float.onnx does not"),
        ("float[1,2,8,8] z", "i = Identity(z)", "reads 'z', which .*float.onnx does not"),
        ("int32[1,2,8,8] x", "i = Cast<to = 1>(x)", "reads 'x' as int32, .*.onnx as float32"),
    ],
)
def test_models_of_other_inputs_are_refused(inputs: str, cast: str, told: str, net: Path):
    text = THREE_LAYERS.replace("float[1,2,8,8] x", inputs)
    if cast:
        text = text.replace("[first] a = Conv(x, w)", f"{cast} [first] a = Conv(i, w)")
    onnx.save(parse_model(text), net / "other.onnx")
    with pytest.raises(placer.InputError, match=told):
        placer.evaluate(net / "float.onnx", [net / "other.onnx"], data=net / "data.npz")
    with pytest.raises(placer.InputError, match=told):
        placer.bench([net / "float.onnx", net / "other.onnx"], engine="onnxruntime", rounds=3)


def test_inputs_in_half_precision_are_converted_by_the_engine_or_by_a_cast(net: Path):
    """As in files that ``--io-type convert`` writes."""
    half = THREE_LAYERS.replace("float[1,2,8,8] x", "float16[1,2,8,8] x")
    half = half.replace("[first] a = Conv(x, w)", "i = Cast<to = 1>(x) [first] a = Conv(i, w)")
    onnx.save(parse_model(half), net / "half.onnx")
    both = [net / "float.onnx", net / "half.onnx"]
    assert len(placer.bench(both, engine="fusion-model", gpu="a100", rounds=3).models) == 2
    (note,) = placer.bench(both, engine="onnxruntime", rounds=3).notes
    assert "half.onnx reads 'x' as float16: it is measured with a Cast" in note


@pytest.mark.parametrize(
    "engine", ["onnxruntime", pytest.param("openvino", marks=pytest.mark.slow)]
)
def test_data_are_converted_to_the_float_type_that_a_model_reads(engine: str, net: Path):
    half = THREE_LAYERS.replace("float[1,2,8,8] x", "float16[1,2,8,8] x")
    half = half.replace("[first] a = Conv(x, w)", "i = Cast<to = 1>(x) [first] a = Conv(i, w)")
    onnx.save(parse_model(half), net / "half.onnx")
    options = {"data": net / "data.npz", "engine": engine, "layers": True}
    found = placer.evaluate(net / "float.onnx", net / "half.onnx", **options)
    assert 60 < value(found, "sqnr", "y") < 80  # dB: the inputs alone have 11 bits.
    back = placer.evaluate(net / "half.onnx", net / "float.onnx", **options)
    assert value(back, "sqnr", "y") > 100  # The data were rounded to what the float model reads.


def test_what_a_plug_in_refuses_is_not_run_on_another_engine(
    net: Path, monkeypatch: pytest.MonkeyPatch
):
    """Though ``verified`` is False of it: nothing else computes its outputs either."""

    class Refusing(OnnxRuntimeEngine):
        name = "refusing"

        def compile(self, model: onnx.ModelProto, base_dir: Path) -> OnnxRuntimeModel:
            del model, base_dir
            raise RunError("the plug-in takes no such model")

    class Factory:
        rules = "onnxruntime"

        def unavailable(self) -> str | None:
            return None

        def create(self, options: EngineOptions) -> Engine:
            return Refusing(options.threads)

    monkeypatch.setattr("placer.engines.select.BUILT_IN", {**BUILT_IN, "refusing": Factory()})
    files = (net / "float.onnx", quantized(net, 4))
    with pytest.raises(RunError, match="the plug-in takes no such model"):
        placer.evaluate(*files, data=net / "data.npz", engine="refusing")


def test_the_command_prints_tables_and_json(net: Path, placer: Callable[..., Finished]):
    path = quantized(net, 0.4)
    arguments = ("eval", net / "float.onnx", path, "--data", net / "data.npz", "--layers")
    told = placer(*arguments)
    assert told.code == 0
    assert "the first that goes wrong is b" in " ".join(told.out.split())
    found = json.loads(placer(*arguments, "--json").out)
    (model,) = found["models"]
    assert model["first_wrong"] == "b"
    assert Gate.parse("sqnr>=1").metric in {one["metric"] for one in model["metrics"]}


def test_gates_judge_as_those_of_a_search(net: Path, placer: Callable[..., Finished]):
    well, wrong = quantized(net, 5), quantized(net, 0.4)
    gates = ("sqnr>=20", "max_abs<=0.5@y")
    options = ["--data", net / "data.npz", *(part for gate in gates for part in ("--gate", gate))]
    held = placer("eval", net / "float.onnx", well, *options)
    assert held.code == 0
    assert "gate sqnr>=20" in held.out
    missed = placer("eval", net / "float.onnx", well, wrong, *options, "--json")
    assert missed.code == 3
    assert f"{wrong} misses sqnr>=20: " in missed.err
    assert str(well) not in missed.err
    first, second = json.loads(missed.out)["models"]
    assert [(gate["gate"], gate["passed"]) for gate in first["gates"]] == [(g, True) for g in gates]
    assert [gate["passed"] for gate in second["gates"]] == [False, False]
    worst = min(one["value"] for one in second["metrics"] if one["metric"] == "sqnr")
    assert second["gates"][0]["value"] == pytest.approx(worst)
    unknown = placer("eval", net / "float.onnx", well, *options, "--gate", "sqnr>=20@z")
    assert unknown.code == 2
    assert "unknown output 'z'" in unknown.err


def test_outputs_that_an_exporter_numbered_are_the_same_by_their_place(net: Path):
    """As PyTorch's, which calls those of a model and of its quantized one otherwise."""
    path = quantized(net, 4)
    proto = onnx.load(path)
    for node in proto.graph.node:
        node.output[:] = ["1322" if name == "y" else name for name in node.output]
    proto.graph.output[0].name = "1322"
    onnx.save(proto, net / "numbered.onnx")
    paths = [path, net / "numbered.onnx"]
    same, numbered = placer.evaluate(net / "float.onnx", paths, data=net / "data.npz").models
    assert numbered.measures == same.measures
    told = "output '1322' is compared with the float model's 'y', by its place"
    assert (told in numbered.notes, told in same.notes) == (True, False)


def test_nodes_may_have_no_names(tmp_path: Path):
    """As in PyTorch's older exports; the last one hands on what it reads, as the first one."""
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (int64[1,4] ids) => (float[1,8,4] y)
    <float[6,8] rows = {1}> {
      same = Reshape(ids, ids_shape)
      e = Gather(rows, same)
      y = Transpose<perm = [0, 2, 1]>(e)
    }
    """
    text = text.replace("= {1}>", "= {1}, int64[2] ids_shape = {1, 4}>")
    onnx.save(parse_model(text), tmp_path / "float.onnx")
    path = tmp_path / "ids.npy"
    np.save(path, np.arange(2, 6)[None])
    (found,) = placer.evaluate(tmp_path / "float.onnx", tmp_path / "float.onnx", data=path).models
    assert {one.where for one in found.measures} == {"y"}
    np.save(path, np.arange(3, 7)[None])
    with pytest.raises(placer.InputError, match=r"'Gather_1' \(Gather\) takes indices from -6"):
        placer.evaluate(tmp_path / "float.onnx", tmp_path / "float.onnx", data=path)


TWO_OUTPUTS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,2,8,8] x) => (float[1,2,8,8] a, KIND b)
{ a = Sigmoid(x) b = LAST }
"""
TANH = ("float[1,2,8,8]", "Tanh(x)")
INTEGERS = ("int64[1,2,8,8]", "Cast<to = 7>(x)")


@pytest.mark.parametrize(
    ("last", "names"),
    [
        (TANH, ("b", "c")),  # Of the two 'b' is now the first.
        (INTEGERS, ("c", "d")),
    ],
)
def test_outputs_are_not_the_same_by_their_place_where_they_may_be_others(
    last: tuple[str, str], names: tuple[str, str], net: Path
):
    text = TWO_OUTPUTS.replace("KIND", last[0]).replace("LAST", last[1])
    proto = parse_model(text)
    onnx.save(proto, net / "two.onnx")
    outputs = proto.graph.output
    for node, name in zip(proto.graph.node, names, strict=True):
        node.output[0] = name
    for output, name in zip(outputs, names, strict=True):
        output.name = name
    if last is INTEGERS:
        outputs.reverse()
    onnx.save(proto, net / "other.onnx")
    with pytest.raises(placer.InputError, match="has no output"):
        placer.evaluate(net / "two.onnx", net / "other.onnx", data=net / "data.npz")


def test_sequences_are_the_same_by_their_place_whatever_their_parts(tmp_path: Path):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4,8,8] x) => (seq(float[1,c,8,8]) parts, float[1,4,8,8] y)
    <int64[2] sizes = {1, 3}> {
      [act] y = Relu(x)
      [cut] parts = SplitToSequence<axis = 1>(y, sizes)
    }
    """
    onnx.save(parse_model(text), tmp_path / "float.onnx")
    onnx.save(parse_model(text.replace("parts", "t21")), tmp_path / "numbered.onnx")
    np.save(tmp_path / "x.npy", np.arange(256, dtype=np.float32).reshape(1, 4, 8, 8))
    paths = tmp_path / "float.onnx", tmp_path / "numbered.onnx"
    (found,) = placer.evaluate(paths[0], paths[1], data=tmp_path / "x.npy").models
    assert "output 't21' is compared with the float model's 'parts', by its place" in found.notes
    assert {one.where for one in found.measures} == {"y"}
