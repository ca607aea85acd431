"""Q/DQ insertion: where pairs stand, what they hold, and that stripping undoes them."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, numpy_helper

from placer.errors import InputError, RunError
from placer.graph import Edge
from placer.graph.weights import weight_input
from placer.model import Model, load_model
from placer.qdq import Inserter
from placer.quantization import EMPTY, Placement, Range, Scheme
from placer.quantization.numerics import activation_quantization
from placer.version import __version__
from tests.model.test_normalize import outputs
from tests.qdq.strip import strip

Save = Callable[..., Path]

TENSORRT = Scheme(activation="int8", symmetric=True, bias="float")
ORT = Scheme(activation="uint8", symmetric=False, bias="int32")


def pairs(proto: ModelProto) -> dict[str, str]:
    """Input of each Q and DQ node by the node's name."""
    nodes = proto.graph.node
    return {
        n.name: n.input[0]
        for n in nodes
        if n.op_type.endswith("quantizeLinear") or n.op_type.endswith("QuantizeLinear")
    }


def values(proto: ModelProto, name: str) -> np.ndarray:
    return numpy_helper.to_array(next(t for t in proto.graph.initializer if t.name == name))


def inputs_of(proto: ModelProto, node: str) -> list[str]:
    return list(next(n for n in proto.graph.node if n.name == node).input)


def axis_of(proto: ModelProto, node: str) -> int | None:
    found = next(n for n in proto.graph.node if n.name == node)
    return next((a.i for a in found.attribute if a.name == "axis"), None)


def check(proto: ModelProto) -> None:
    onnx.checker.check_model(proto, full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    ort.InferenceSession(proto.SerializeToString(), options)


WEIGHTED = {
    "conv": ("float[1,4,6,6] x", "float[8,4,3,3] w", "Conv(x, w)", 0, 8),
    "depthwise": ("float[1,4,6,6] x", "float[4,1,3,3] w", "Conv<group = 4>(x, w)", 0, 4),
    "conv 1d": ("float[1,4,6] x", "float[8,4,3] w", "Conv(x, w)", 0, 8),
    "transpose": ("float[1,4,6,6] x", "float[4,3,2,2] w", "ConvTranspose(x, w)", 1, 3),
    "transpose in groups": (
        "float[1,4,6,6] x",
        "float[4,3,2,2] w",
        "ConvTranspose<group = 2>(x, w)",
        1,
        3,
    ),
    "gemm": ("float[2,5] x", "float[5,3] w", "Gemm(x, w)", 1, 3),
    "gemm transposed": ("float[2,5] x", "float[3,5] w", "Gemm<transB = 1>(x, w)", 0, 3),
    "matmul": ("float[2,5] x", "float[5,3] w", "MatMul(x, w)", 1, 3),
    "matmul in batches": ("float[2,4,5] x", "float[2,5,3] w", "MatMul(x, w)", 2, 3),
}


def weighted(save: Save, name: str) -> Model:
    x, w, call, _, _ = WEIGHTED[name]
    shape = {"conv": "1,8,4,4", "depthwise": "1,4,4,4", "conv 1d": "1,8,4", "transpose": "1,3,7,7"}
    shape |= {"transpose in groups": "1,6,7,7", "matmul in batches": "2,4,3"}
    y = f"float[{shape.get(name, '2,3')}] y"
    return load_model(
        save(
            f"""
            <ir_version: 9, opset_import: ["": 17]>
            g ({x}) => ({y}) <{w} = {{1}}> {{ [node] y = {call} }}
            """
        )
    )


@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize("scheme", [TENSORRT, ORT], ids=["tensorrt", "onnxruntime"])
def test_weights_are_quantized_per_output_channel(save: Save, name: str, scheme: Scheme):
    model = weighted(save, name)
    axis, channels = WEIGHTED[name][3:]
    placement = Placement.of([Edge("x", "node", 0), Edge("w", "node", 1)])
    candidate = Inserter(model, scheme).insert(placement, {"x": Range(-1, 1)})
    check(candidate)
    assert axis_of(candidate, "w/DequantizeLinear") == axis
    floats = model.array("w")
    scale = values(candidate, "w/scale")
    others = tuple(i for i in range(floats.ndim) if i != axis)
    np.testing.assert_allclose(scale, np.abs(floats).max(axis=others) / 127, rtol=1e-6)
    assert scale.shape == (channels,)
    integers = values(candidate, "w/quantized")
    assert integers.dtype == np.int8
    np.testing.assert_array_equal(integers, np.rint(floats / np.expand_dims(scale, others)))
    assert not values(candidate, "w/zero_point").any()
    assert inputs_of(candidate, "node") == ["x/dequantized", "w/dequantized"]
    assert "w" not in {t.name for t in candidate.graph.initializer}


def test_a_scheme_may_ask_for_one_scale_per_weight(save: Save):
    model = weighted(save, "conv")
    scheme = TENSORRT.model_copy(update={"per_channel": False})
    candidate = Inserter(model, scheme).insert(Placement.of([Edge("w", "node", 1)]), {})
    assert values(candidate, "w/scale").shape == ()
    assert axis_of(candidate, "w/DequantizeLinear") is None


BRANCHES = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,6,6] x) => (float[1,8,6,6] y, float[1,4,6,6] r)
<float[4,4,1,1] w1 = {1}, float[4] b1 = {1, 2, 3, 4}, float[4,4,1,1] w2 = {1}> {
  [conv1] c = Conv(x, w1, b1)
  [relu] r = Relu(c)
  [conv2] d = Conv(r, w2)
  [add] s = Add(r, d)
  [concat] y = Concat<axis = 1>(r, s)
}
"""
RANGES = {
    "x": Range(-1, 3),
    "c": Range(-2, 2),
    "r": Range(0, 2),
    "d": Range(-4, 1),
    "s": Range(-3, 5),
    "y": Range(-3, 5),
}


def test_edges_of_one_tensor_share_one_pair(save: Save):
    placement = Placement.of([Edge("r", "conv2", 0), Edge("r", "add", 0)])
    candidate = Inserter(load_model(save(BRANCHES)), TENSORRT).insert(placement, RANGES)
    check(candidate)
    assert (candidate.producer_name, candidate.producer_version) == ("placer", __version__)
    assert pairs(candidate) == {
        "r/QuantizeLinear": "r",
        "r/DequantizeLinear": "r/quantized",
    }
    assert inputs_of(candidate, "conv2")[0] == inputs_of(candidate, "add")[0] == "r/dequantized"
    assert inputs_of(candidate, "concat")[0] == "r"
    assert values(candidate, "r/scale") == np.float32(2 / 127)


def test_a_scale_group_takes_the_union_of_ranges(save: Save):
    edges = [Edge("r", "concat", 0), Edge("s", "concat", 1)]
    candidate = Inserter(load_model(save(BRANCHES)), TENSORRT).insert(
        Placement.of(edges, [["r", "s"]]), RANGES
    )
    check(candidate)
    first, second = (inputs_of(candidate, f"{t}/QuantizeLinear") for t in "rs")
    assert first[1:] == second[1:] == ["r/scale", "r/zero_point"]
    assert values(candidate, "r/scale") == np.float32(5 / 127)


def test_two_groups_on_one_tensor_have_two_pairs(save: Save):
    placement = Placement(
        frozenset({frozenset({Edge("r", "conv2", 0)}), frozenset({Edge("r", "add", 0)})})
    )
    candidate = Inserter(load_model(save(BRANCHES)), TENSORRT).insert(placement, RANGES)
    check(candidate)
    assert pairs(candidate) == {
        "r/QuantizeLinear": "r",
        "r/DequantizeLinear": "r/quantized",
        "r/QuantizeLinear_1": "r",
        "r/DequantizeLinear_1": "r/quantized_1",
    }
    read = {inputs_of(candidate, "conv2")[0], inputs_of(candidate, "add")[0]}
    assert read == {"r/dequantized", "r/dequantized_1"}


CONSTANTS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[4,4] x) => (float[4,4] y, float[4,4] z) <float[4] k = {0, 1, 2, 5.1}, float[4,4] w = {1}> {
  [add] a = Add(x, k)
  [mul] m = Mul(a, k)
  [sub] y = Sub(m, w)
  [matmul] b = MatMul(m, w)
  [gemm] z = Gemm<transB = 1>(b, w)
}
"""


def test_a_constant_operand_is_stored_in_the_activation_type(save: Save):
    model = load_model(save(CONSTANTS))
    alone = Inserter(model, ORT).insert(Placement.of([Edge("k", "add", 1)]), {})
    check(alone)
    assert pairs(alone) == {"k/DequantizeLinear": "k/quantized"}
    assert values(alone, "k/quantized").dtype == np.uint8
    assert values(alone, "k/quantized").tolist() == [0, 50, 100, 255]
    assert inputs_of(alone, "mul") == ["a", "k"]
    grouped = Inserter(model, ORT).insert(
        Placement.of([Edge("k", "add", 1), Edge("x", "add", 0)], [["k", "x"]]),
        {"x": Range(0, 12.75)},
    )
    check(grouped)
    assert inputs_of(grouped, "k/DequantizeLinear")[1:] == ["k/scale", "k/zero_point"]
    assert inputs_of(grouped, "x/QuantizeLinear")[1:] == ["k/scale", "k/zero_point"]
    assert values(grouped, "k/quantized").tolist() == [0, 20, 40, 102]


def test_each_use_of_a_constant_has_names_of_its_own(save: Save):
    """``w`` as weight along axis 1, as weight along axis 0 and twice as operand."""
    model = load_model(save(CONSTANTS))
    uses = [Edge("k", "add", 1), Edge("k", "mul", 1), Edge("w", "sub", 1)]
    weights = [Edge("w", "matmul", 1), Edge("w", "gemm", 1)]
    placement = Placement(frozenset(frozenset({edge}) for edge in (*uses, *weights)))
    candidate = Inserter(model, TENSORRT).insert(placement, {})
    check(candidate)
    assert {e.node: inputs_of(candidate, e.node)[1] for e in (*uses, *weights)} == {
        "add": "k/dequantized",
        "mul": "k/dequantized_1",
        "sub": "w/dequantized_2",
        "matmul": "w/dequantized",
        "gemm": "w/dequantized_1",
    }
    assert axis_of(candidate, "w/DequantizeLinear") == 1
    assert axis_of(candidate, "w/DequantizeLinear_1") == 0
    assert not {"k", "w"} & {t.name for t in candidate.graph.initializer}


def test_a_candidate_does_not_depend_on_those_before_it(save: Save):
    model = load_model(save(CONSTANTS))
    placement = Placement.of([Edge("w", "matmul", 1)])
    used = Inserter(model, ORT)
    used.insert(Placement.of([Edge("w", "gemm", 1), Edge("w", "sub", 1)]), {})
    fresh = Inserter(model, ORT)
    assert used.insert(placement, {}) == fresh.insert(placement, {})


def test_a_quantized_graph_output_keeps_its_name(save: Save):
    model = load_model(save(BRANCHES))
    placement = Placement.of([Edge("r", "", 1), Edge("r", "add", 0)])
    candidate = Inserter(model, TENSORRT).insert(placement, RANGES)
    check(candidate)
    assert list(candidate.graph.output) == list(model.proto.graph.output)
    assert pairs(candidate) == {
        "r/QuantizeLinear": "r/float",
        "r/DequantizeLinear": "r/quantized",
    }
    assert inputs_of(candidate, "add")[0] == "r"
    assert inputs_of(candidate, "conv2")[0] == inputs_of(candidate, "concat")[0] == "r/float"


def test_an_int32_bias_has_the_scale_of_the_products(save: Save):
    placement = Placement.of([Edge("x", "conv1", 0), Edge("w1", "conv1", 1)])
    candidate = Inserter(load_model(save(BRANCHES)), ORT).insert(placement, RANGES)
    check(candidate)
    scale = values(candidate, "x/scale") * values(candidate, "w1/scale")
    np.testing.assert_array_equal(values(candidate, "b1/scale"), scale)
    expected = np.rint(np.array([1, 2, 3, 4]) / scale.astype(np.float64))
    np.testing.assert_array_equal(values(candidate, "b1/quantized"), expected)
    assert values(candidate, "b1/quantized").dtype == np.int32
    without_input = Inserter(load_model(save(BRANCHES)), ORT).insert(
        Placement.of([Edge("w1", "conv1", 1)]), RANGES
    )
    assert inputs_of(without_input, "conv1")[2] == "b1"


def test_the_groups_of_a_transposed_convolution_share_scales(save: Save):
    model = load_model(
        save(
            """
            <ir_version: 9, opset_import: ["": 17]>
            g (float[1,4,6,6] x) => (float[1,6,7,7] y)
            <float[4,3,2,2] w = {1}, float[6] b = {1, 2, 3, 4, 5, 6}> {
              [node] y = ConvTranspose<group = 2>(x, w, b)
            }
            """
        )
    )
    placement = Placement.of([Edge("x", "node", 0), Edge("w", "node", 1)])
    candidate = Inserter(model, ORT).insert(placement, {"x": Range(-1, 1)})
    check(candidate)
    scale = values(candidate, "x/scale") * values(candidate, "w/scale")
    np.testing.assert_array_equal(values(candidate, "b/scale"), [*scale, *scale])
    restored = values(candidate, "b/quantized") * values(candidate, "b/scale")
    np.testing.assert_allclose(restored, [1, 2, 3, 4, 5, 6], rtol=1e-4)


@pytest.mark.parametrize(
    ("attributes", "bias", "expected"),
    [
        ("", "float[3] b = {1, 2, 3}", "b/dequantized"),
        ("", "float[1] b = {1}", "b/dequantized"),
        ("<alpha = 0.5>", "float[3] b = {1, 2, 3}", "b"),
        ("<beta = 0.5>", "float[3] b = {1, 2, 3}", "b"),
        ("", "float[2,3] b = {1}", "b"),
    ],
)
def test_which_biases_of_gemm_are_quantized(save: Save, attributes: str, bias: str, expected: str):
    model = load_model(
        save(
            f"""
            <ir_version: 9, opset_import: ["": 17]>
            g (float[2,5] x) => (float[2,3] y) <float[5,3] w = {{1}}, {bias}> {{
              [gemm] y = Gemm{attributes}(x, w, b)
            }}
            """
        )
    )
    placement = Placement.of([Edge("x", "gemm", 0), Edge("w", "gemm", 1), Edge("y", "", 0)])
    candidate = Inserter(model, ORT).insert(placement, {"x": Range(-2, 2), "y": Range(-9, 9)})
    check(candidate)
    assert inputs_of(candidate, "gemm")[2] == expected
    x = np.random.default_rng(1).uniform(-2, 2, (2, 5)).astype(np.float32)
    (got,), (floats,) = outputs(candidate, x=x), outputs(model.proto, x=x)
    np.testing.assert_allclose(got, floats, atol=0.15)


def test_onnx_runtime_runs_a_quantized_convolution_on_integers(save: Save, tmp_path: Path):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4,6,6] x) => (float[1,2,6,6] y) <float[2,4,1,1] w = {1}, float[2] b = {1, 2}> {
      [conv] c = Conv(x, w, b)
      [relu] y = Relu(c)
    }
    """
    edges = [Edge("x", "conv", 0), Edge("w", "conv", 1), Edge("y", "", 0)]
    candidate = Inserter(load_model(save(text)), ORT).insert(
        Placement.of(edges), {"x": Range(-1, 1), "y": Range(0, 12)}
    )
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(candidate.SerializeToString(), options)
    optimized = onnx.load(tmp_path / "optimized.onnx")
    found = Counter(node.op_type for node in optimized.graph.node)
    del found["Transpose"]  # Some machines run integer convolutions with channels last.
    assert found == {"QuantizeLinear": 1, "QLinearConv": 1, "DequantizeLinear": 1}


def half_model(path: Path, opset: int, smallest: float = 0.02) -> Model:
    """A float16 convolution; ``smallest``: the largest weight of its second channel."""
    proto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["": 19]>
        g (float16[1,2,6,6] x) => (float16[1,2,6,6] y) { [conv] y = Conv(x, w) }
        """
    )
    proto.opset_import[0].version = opset
    weights = np.array([[0.3, -0.1], [0.001, smallest]], np.float16).reshape(2, 2, 1, 1)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(proto, path)
    return load_model(path)


def test_scales_have_the_type_of_their_tensor(tmp_path: Path):
    model = half_model(tmp_path / "half.onnx", opset=19)
    placement = Placement.of([Edge("x", "conv", 0), Edge("w", "conv", 1)])
    candidate = Inserter(model, TENSORRT).insert(placement, {"x": Range(-1, 1)})
    onnx.checker.check_model(candidate, full_check=True)
    assert values(candidate, "x/scale") == np.float16(1 / 127)
    amax = np.abs(model.array("w")).max(axis=(1, 2, 3)).astype(np.float32)
    np.testing.assert_array_equal(values(candidate, "w/scale"), (amax / 127).astype(np.float16))
    restored = values(strip(candidate), "w/dequantized")
    np.testing.assert_allclose(restored, model.array("w"), atol=0.3 / 127)


@pytest.mark.parametrize(
    ("x", "smallest", "expected"),
    [
        (Range(-1, 1), 0.002, "'w' cannot be quantized: a scale of 1.58e-05 is outside 6.1e-05"),
        (Range(-0.005, 0), 0.02, "'x' cannot be quantized: a scale of 3.94e-05 is outside 6.1e-05"),
    ],
)
def test_scales_that_their_type_cannot_hold_are_refused_not_raised(
    tmp_path: Path, x: Range, smallest: float, expected: str
):
    model = half_model(tmp_path / "half.onnx", 19, smallest)
    placement = Placement.of([Edge("x", "conv", 0), Edge("w", "conv", 1)])
    with pytest.raises(RunError, match=expected):
        Inserter(model, TENSORRT).insert(placement, {"x": x})


def test_a_dead_channel_with_a_large_bias_does_not_overflow(save: Save):
    path = save(BRANCHES)
    proto = onnx.load(path)
    weights = numpy_helper.to_array(proto.graph.initializer[0]).copy()
    weights[2] = 1e-12
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w1"))
    onnx.save(proto, path)
    placement = Placement.of([Edge("x", "conv1", 0), Edge("w1", "conv1", 1), Edge("c", "relu", 0)])
    model = load_model(path)
    candidate = Inserter(model, ORT).insert(placement, {**RANGES, "c": Range(-8, 8)})
    x = np.ones((1, 4, 6, 6), np.float32)
    got, floats = outputs(candidate, x=x)[1], outputs(model.proto, x=x)[1]
    np.testing.assert_allclose(got, floats, atol=0.1)


@pytest.mark.parametrize(
    ("scheme", "observed", "scale", "zero_point"),
    [
        (TENSORRT, Range(-1, 2), 2 / 127, 0),
        (ORT, Range(0, 2.55), 0.01, 0),
        (ORT, Range(-2.55, 0), 0.01, 255),
        (ORT, Range(-0.55, 2), 0.01, 55),
        (ORT, Range(1, 2.55), 0.01, 0),
        (ORT, Range(0, 0), 1.0, 0),
        (TENSORRT, Range(0, 0), 1.0, 0),
        (ORT.model_copy(update={"symmetric": True}), Range(-1.27, 0.5), 0.01, 128),
    ],
)
def test_scale_and_zero_point(scheme: Scheme, observed: Range, scale: float, zero_point: int):
    found = activation_quantization(observed, scheme)
    assert found.scale == pytest.approx(scale, rel=1e-6)
    assert found.zero_point == zero_point


@pytest.mark.parametrize(
    ("edge", "ranges", "expected"),
    [
        (Edge("r", "nowhere", 0), RANGES, "which the model does not have"),
        (Edge("r", "conv2", 1), RANGES, "which the model does not have"),
        (Edge("r", "conv2", 0), {}, "tensor 'r' has no calibrated range"),
    ],
)
def test_wrong_placements(save: Save, edge: Edge, ranges: dict[str, Range], expected: str):
    with pytest.raises(InputError, match=expected):
        Inserter(load_model(save(BRANCHES)), TENSORRT).insert(Placement.of([edge]), ranges)


def test_a_type_that_the_opset_cannot_quantize(tmp_path: Path):
    model = half_model(tmp_path / "half.onnx", opset=17)
    with pytest.raises(InputError, match="of type FLOAT16, which needs opset 19"):
        Inserter(model, TENSORRT).insert(Placement.of([Edge("w", "conv", 1)]), {})


UNUSUAL = """
<ir_version: 9, opset_import: ["": 19]>
g (float[1,4] x, bool c, double[4] d, float16[4] h)
=> (float[1,4] y, double[4] e, float16[4] i, float[1,4] x) {
  [relu] t = Relu(x)
  [if] y = If(c) <
    then_branch = yes () => (float[1,4] a) { a = Neg(t) },
    else_branch = no () => (float[1,4] b) { b = Abs(t) }
  >
  [neg] e = Neg(d)
  [half] i = Neg(h)
}
"""


@pytest.mark.parametrize(
    ("edges", "ranges", "expected"),
    [
        ([Edge("t", "if", 1)], {"t": Range(0, 1)}, "a subgraph of the node reads"),
        ([Edge("d", "neg", 0)], {"d": Range(0, 1)}, "not a float32, float16 or bfloat16 tensor"),
        ([Edge("c", "if", 0)], {"c": Range(0, 1)}, "not a float32, float16 or bfloat16 tensor"),
        ([Edge("x", "", 3)], {"x": Range(0, 1)}, "which no node computes"),
        ([Edge("x", "relu", 0)], {"x": Range(0, float("inf"))}, "infinite or undefined range"),
        (
            [Edge("x", "relu", 0), Edge("h", "half", 0)],
            {"x": Range(0, 1), "h": Range(0, 1)},
            "'h' and 'x' cannot share a scale",
        ),
    ],
)
def test_what_cannot_be_quantized(
    save: Save, edges: list[Edge], ranges: dict[str, Range], expected: str
):
    model = load_model(save(UNUSUAL))
    with pytest.raises(InputError, match=expected):
        Inserter(model, TENSORRT).insert(Placement.of(edges, [["x", "h"]]), ranges)


def rounded(model: Model, placement: Placement, scheme: Scheme) -> ModelProto:
    """The float model with the constants that ``placement`` quantizes rounded by hand."""
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    quantized = Inserter(model, scheme).insert(placement, RANGES)
    made = {t.name: numpy_helper.to_array(t) for t in quantized.graph.initializer}
    for node in proto.graph.node:
        weight = weight_input(model.graph, model.graph.by_name[node.name])
        if weight is None or Edge(weight.tensor, node.name, 1) not in placement.edges:
            continue
        for index in (1, 2):
            reader = next(n for n in quantized.graph.node if n.name == node.name)
            name = reader.input[index] if index < len(reader.input) else ""
            base = name.removesuffix("/dequantized")
            if base == name:
                continue
            scale = made[f"{base}/scale"]
            scale = scale.reshape(-1, *(1,) * (made[f"{base}/quantized"].ndim - 1))
            new = (made[f"{base}/quantized"].astype(np.float32) * scale).astype(np.float32)
            proto.graph.initializer.append(numpy_helper.from_array(new, name))
            node.input[index] = name
    return proto


EDGES = [
    Edge("x", "conv1", 0),
    Edge("w1", "conv1", 1),
    Edge("c", "relu", 0),
    Edge("r", "conv2", 0),
    Edge("w2", "conv2", 1),
    Edge("r", "add", 0),
    Edge("d", "add", 1),
    Edge("r", "concat", 0),
    Edge("s", "concat", 1),
    Edge("y", "", 0),
    Edge("r", "", 1),
]


@settings(max_examples=60, deadline=None)
@given(
    edges=st.sets(st.sampled_from(EDGES)),
    shared=st.lists(st.sets(st.sampled_from("xcrdsy"), min_size=2), max_size=2),
    scheme=st.sampled_from([TENSORRT, ORT]),
)
def test_stripping_a_candidate_gives_the_float_model_with_rounded_weights(
    tmp_path_factory: pytest.TempPathFactory,
    edges: set[Edge],
    shared: list[set[str]],
    scheme: Scheme,
) -> None:
    path = tmp_path_factory.mktemp("net") / "model.onnx"
    proto = onnx.parser.parse_model(BRANCHES)
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        random = rng.standard_normal(tuple(tensor.dims)).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(random, tensor.name))
    onnx.save(proto, path)
    model = load_model(path)
    placement = Placement.of(edges, shared)
    candidate = Inserter(model, scheme).insert(placement, RANGES)
    check(candidate)
    again = Inserter(model, scheme).insert(placement, RANGES)
    assert candidate.SerializeToString() == again.SerializeToString()
    stripped = strip(candidate)
    onnx.checker.check_model(stripped, full_check=True)
    assert not any("QuantizeLinear" in n.op_type for n in stripped.graph.node)
    x = rng.standard_normal((1, 4, 6, 6)).astype(np.float32)
    expected = outputs(rounded(model, placement, scheme), x=x)
    for got, wanted in zip(outputs(stripped, x=x), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_the_empty_placement_is_the_float_model(save: Save):
    model = load_model(save(BRANCHES))
    candidate = Inserter(model, ORT).insert(EMPTY, {})
    assert candidate.graph.node == model.proto.graph.node
    assert {t.name for t in candidate.graph.initializer} == set(model.graph.initializers)


def test_names_that_the_model_has_already_are_avoided(save: Save):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4] x) => (float[1,4] y) <float[4,4] w = {1}> {
      [relu] r = Relu(x)
      ["r/QuantizeLinear"] "w/scale" = Neg(r)
      [matmul] y = MatMul("w/scale", w)
    }
    """
    model = load_model(save(text))
    placement = Placement.of([Edge("r", "r/QuantizeLinear", 0), Edge("w", "matmul", 1)])
    candidate = Inserter(model, TENSORRT).insert(placement, {"r": Range(0, 1)})
    check(candidate)
    assert [node.name for node in candidate.graph.node] == [
        "relu",
        "r/QuantizeLinear_1",
        "r/DequantizeLinear_1",
        "r/QuantizeLinear",
        "w/DequantizeLinear_1",
        "matmul",
    ]


FOREIGN = {
    "input to output": (
        "q = QuantizeLinear(x, s, z)  y = DequantizeLinear(q, s, z)",
        [("Identity", ["x"], ["y"])],
    ),
    "pair behind pair": (
        """r = Relu(x)  q = QuantizeLinear(r, s, z)  d = DequantizeLinear(q, s, z)
        p = QuantizeLinear(d, s, z)  y = DequantizeLinear(p, s, z)""",
        [("Relu", ["x"], ["y"])],
    ),
    "one Q, two DQ": (
        """q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)
        e = DequantizeLinear(q, s, z)  y = Add(d, e)""",
        [("Add", ["x", "x"], ["y"])],
    ),
    "no zero point": (
        "d = DequantizeLinear(w, s)  y = Add(x, d)",
        [("Add", ["x", "d"], ["y"])],
    ),
    "float weight behind a pair": (
        "q = QuantizeLinear(f, s)  d = DequantizeLinear(q, s)  y = Add(x, d)",
        [("Add", ["x", "f"], ["y"])],
    ),
    "integers that another node reads": (
        "q = QuantizeLinear(x, s, z)  i = Cast<to = 6>(q)  y = Cast<to = 1>(i)",
        [
            ("QuantizeLinear", ["x", "s", "z"], ["q"]),
            ("Cast", ["q"], ["i"]),
            ("Cast", ["i"], ["y"]),
        ],
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_stripping_models_that_others_quantized(name: str):
    nodes, expected = FOREIGN[name]
    stripped = strip(
        onnx.parser.parse_model(
            f"""
            <ir_version: 9, opset_import: ["": 19]>
            g (float[4] x) => (float[4] y)
            <float s = {{0.5}}, int8 z = {{0}}, int8[4] w = {{1, 2, 3, 4}},
             float[4] f = {{1, 2, 3, 4}}>
            {{ {nodes} }}
            """
        )
    )
    onnx.checker.check_model(stripped, full_check=True)
    found = [(n.op_type, list(n.input), list(n.output)) for n in stripped.graph.node]
    assert found == expected
    if name == "no zero point":
        assert values(stripped, "d").tolist() == [0.5, 1, 1.5, 2]


def test_constants_in_other_files_are_not_stripped(save: Save, tmp_path: Path):
    model = weighted(save, "conv")
    candidate = Inserter(model, TENSORRT).insert(Placement.of([Edge("w", "node", 1)]), {})
    onnx.save(candidate, tmp_path / "q.onnx", save_as_external_data=True, size_threshold=0)
    referring = onnx.load(tmp_path / "q.onnx", load_external_data=False)
    with pytest.raises(InputError, match="'w/quantized' is in another file"):
        strip(referring)
    stripped = strip(onnx.load(tmp_path / "q.onnx"))
    assert [node.name for node in stripped.graph.node] == ["node"]
