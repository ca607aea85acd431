"""Q/DQ insertion: where pairs stand and what they hold."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnxruntime as ort
import pytest
from onnx import ModelProto, numpy_helper

from placer.graph import Edge
from placer.model import load_model
from placer.qdq import Inserter
from placer.qdq.precision import convert
from placer.quantization import Placement, Range, Scheme
from placer.quantization.numerics import activation_quantization
from placer.version import __version__
from tests.qdq.nets import (
    BRANCHES,
    ORT,
    RANGES,
    TENSORRT,
    WEIGHTED,
    Save,
    check,
    values,
    weighted,
)
from tests.reference_outputs import outputs


def pairs(proto: ModelProto) -> dict[str, str]:
    """Input of each Q and DQ node by the node's name."""
    nodes = proto.graph.node
    return {
        n.name: n.input[0]
        for n in nodes
        if n.op_type.endswith("quantizeLinear") or n.op_type.endswith("QuantizeLinear")
    }


def inputs_of(proto: ModelProto, node: str) -> list[str]:
    return list(next(n for n in proto.graph.node if n.name == node).input)


def axis_of(proto: ModelProto, node: str) -> int | None:
    found = next(n for n in proto.graph.node if n.name == node)
    return next((a.i for a in found.attribute if a.name == "axis"), None)


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
    placement = Placement.of_groups([[Edge("r", "conv2", 0)], [Edge("r", "add", 0)]])
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


def test_names_in_bodies_are_taken(save: Save):
    model = load_model(
        save(
            """
            <ir_version: 8, opset_import: ["": 19]>
            g (float[1,4] x, bool c) => (float[1,4] y) <float[4,4] w = {0.5}> {
                [matmul] h = MatMul(x, w)
                [if] y = If(c) <
                    then_branch = t () => (float[1,4] "x/scale") { "x/scale" = Relu(h) },
                    else_branch = e () => (float[1,4] "h/float16") { "h/float16" = Abs(h) }
                >
            }
            """
        )
    )
    placement = Placement.of([Edge("x", "matmul", 0), Edge("w", "matmul", 1)])
    candidate = Inserter(model, TENSORRT).insert(placement, RANGES)
    check(candidate)
    assert inputs_of(candidate, "x/QuantizeLinear_1")[1] == "x/scale_1"
    check(convert(model, "float16", "keep").proto)


def test_each_use_of_a_constant_has_names_of_its_own(save: Save):
    """``w`` as weight along axis 1, as weight along axis 0 and twice as operand."""
    model = load_model(save(CONSTANTS))
    uses = [Edge("k", "add", 1), Edge("k", "mul", 1), Edge("w", "sub", 1)]
    weights = [Edge("w", "matmul", 1), Edge("w", "gemm", 1)]
    placement = Placement.of_groups([edge] for edge in (*uses, *weights))
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


def test_what_is_kept_of_groups_holds_for_their_ranges_and_names(save: Save):
    model = load_model(save(BRANCHES))
    first, *others = model.graph.edges_of("r")
    together = Placement.of_groups([[first, *others]])
    apart = Placement.of_groups([[edge] for edge in (first, *others)])
    used, alone = Inserter(model, TENSORRT), Placement.of([first])
    wider = {**RANGES, "r": Range(-2 * RANGES["r"].high, 3 * RANGES["r"].high)}
    for placement, ranges in [(p, r) for p in (alone, together, apart) for r in (RANGES, wider)]:
        fresh = Inserter(model, TENSORRT).insert(placement, ranges)
        for _ in range(2):
            assert used.insert(placement, ranges) == fresh


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
