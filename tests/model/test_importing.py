"""Taking a quantized model apart: the float graph, scales and placement behind it."""

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, numpy_helper

from placer.errors import InputError
from placer.graph.text import parse_model
from placer.model import Model, load_model
from placer.model.quantized import ActivationScale
from placer.qdq import Inserter
from placer.qdq.precision import convert
from placer.qdq.translation import translate
from placer.quantization import Placement, Range, Scheme
from placer.quantization.numerics import activation_quantization
from tests.model.imported import (
    HEAD,
    ORT,
    TENSORRT,
    WEIGHT,
    Save,
    edges_of,
    int8,
    model_of,
    nodes_of,
    notes_of,
    scales_of,
)

# What placer inserts, taken apart again.

NET = f"""
{HEAD}
g (float[1,4,8,8] x) => (float[1,8,8,8] out, float[1,4,8,8] s)
<float[4,4,1,1] w = {{0.5}}, float[4,4,3,3] v = {{0.25}}, float[4] b = {{1,2,3,4}},
 float[4,1,1] k = {{2,3,4,5}}> {{
  [conv1] a = Conv(x, w, b)
  [relu1] r = Relu(a)
  [conv2] c = Conv<pads = [1, 1, 1, 1]>(r, v)
  [add1] s = Add(c, x)
  [conv3] d = Conv(s, w)
  [mul1] m = Mul(d, d)
  [join] out = Concat<axis = 1>(m, s)
}}
"""


@cache
def net(folder: Path) -> Model:
    path = folder / "net.onnx"
    proto = parse_model(NET)
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        if len(tensor.dims) == 4:  # Multiples of 1/32 of which 127 is one: exact in int8.
            steps = rng.integers(-126, 127, tuple(tensor.dims))
            steps[:, 0, 0, 0] = 127
            values = (steps / 32).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(proto, path)
    return load_model(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("net")


def ranges_of(placement: Placement, limits: list[float]) -> dict[str, Range]:
    """A range per tensor; distinct, since equal scales are one group to a reader."""
    tensors = sorted({edge.tensor for edge in placement.edges})
    return {
        tensor: Range(-limit * (1 + index), limit * (1.5 + index))
        for index, (tensor, limit) in enumerate(zip(tensors, limits * 9, strict=False))
    }


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), scheme=st.sampled_from([TENSORRT, ORT]))
def test_importing_undoes_insertion(folder: Path, data: st.DataObject, scheme: Scheme):
    """Graph, weights, scales and quantized edges are those of before, and so is a new candidate."""
    model = net(folder)
    edges = [
        edge
        for tensor in ("x", "w", "r", "v", "s", "d", "c")
        for edge in model.graph.edges_of(tensor)
    ]
    chosen = data.draw(st.sets(st.sampled_from(edges), min_size=1))
    if any(edge.tensor == "w" for edge in chosen):  # Quantized for one node, it is two constants.
        chosen.update(model.graph.edges_of("w"))
    limits = data.draw(st.lists(st.floats(0.5, 8), min_size=1, max_size=4))
    placement = Placement.of(chosen)
    ranges = ranges_of(placement, limits)
    candidate = Inserter(model, scheme).insert(placement, ranges)
    path = folder / "candidate.onnx"
    onnx.save(candidate, path)

    imported = load_model(path)

    assert nodes_of(imported) == nodes_of(model)
    for name in ("w", "v"):
        assert np.array_equal(imported.array(name), model.array(name))
    assert imported.imported.placement.edges == placement.edges
    for tensor in {edge.tensor for edge in chosen} - {"w", "v"}:
        expected = activation_quantization(ranges[tensor], scheme)
        found = imported.imported.activations[tensor]
        assert (found.scale, found.zero_point) == expected
    again = Inserter(imported, scheme).insert(placement, imported.imported.ranges(scheme))
    assert quantized_values(again) == quantized_values(candidate)


def quantized_values(proto: ModelProto) -> dict[str, tuple[str, bytes]]:
    """Element type and values of all initializers but float biases."""
    return {
        t.name: (str(t.data_type), numpy_helper.to_array(t).tobytes())
        for t in proto.graph.initializer
        if "/" in t.name and not t.name.startswith("b/")
    }


# Between Q and DQ.


@pytest.mark.parametrize(
    ("between", "zero_points"),
    [
        ("c = Identity(q)", "int8 z = {0}, int8 u = {0}"),
        ("c = Cast<to = 3>(q)", "int8 z = {0}, int8 u = {0}"),
        ("c = Cast<to = 2>(q)", "int8 z = {0}, uint8 u = {0}"),  # PyTorch eager, signed data
    ],
)
def test_what_stands_between_q_and_dq_goes(save: Save, between: str, zero_points: str):
    body = f"""
        [a] q = QuantizeLinear(x, s, z) {between}
        [b] d = DequantizeLinear(c, s, u) [conv] y = Conv(d, w)
    """
    model = model_of(save, body, f"float s = {{0.5}}, {zero_points}")
    assert nodes_of(model) == [("Conv", ("x", "w"), ("y",))]
    assert edges_of(model) == {"x -> conv[0]"}
    assert scales_of(model) == {"x": int8(0.5)}


def test_operators_that_move_integers_move_floats(save: Save):
    body = """
        q = QuantizeLinear(x, s, z)
        [turn] t = Transpose<perm = [0, 1, 3, 2]>(q)
        [pool] p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(t)
        d = DequantizeLinear(p, s, z) [conv] y = Conv(d, w)
    """
    model = model_of(save, body, "float s = {0.5}, int8 z = {3}")
    assert nodes_of(model) == [
        ("Transpose", ("x",), ("t/float",)),
        ("MaxPool", ("t/float",), ("d",)),
        ("Conv", ("d", "w"), ("y",)),
    ]
    assert edges_of(model) == {"x -> turn[0]", "t/float -> pool[0]", "d -> conv[0]"}
    assert scales_of(model) == dict.fromkeys(("x", "t/float", "d"), int8(0.5, 3))


def test_a_concat_of_integers_of_one_scale(save: Save):
    body = """
        q = QuantizeLinear(x, s, z) [conv] c = Conv(x, w) r = QuantizeLinear(c, s, z)
        [join] j = Concat<axis = 1>(q, r) y = DequantizeLinear(j, s, z)
    """
    io = "(float[1,4,8,8] x) => (float[1,8,8,8] y)"
    model = model_of(save, body, "float s = {0.5}, int8 z = {0}", io)
    assert nodes_of(model) == [("Conv", ("x", "w"), ("c",)), ("Concat", ("x", "c"), ("y",))]
    assert edges_of(model) == {"x -> join[0]", "c -> join[1]", "y -> graph output[0]"}


def test_a_padding_of_integers_becomes_the_float_that_it_stands_for(save: Save):
    body = """
        q = QuantizeLinear(x, s, z) [pad] p = Pad(q, pads, value)
        d = DequantizeLinear(p, s, z) [conv] y = Conv(d, w)
    """
    constants = "float s = {0.5}, int8 z = {3}, int8 value = {5}"
    constants += ", int64[8] pads = {0,0,1,1,0,0,1,1}"
    io = "(float[1,4,8,8] x) => (float[1,4,10,10] y)"
    model = model_of(save, body, constants, io)
    assert model.array(model.graph.by_name["pad"].inputs[2]) == 1.0


def test_a_padding_without_a_value_pads_with_what_zero_stands_for(save: Save):
    body = """
        q = QuantizeLinear(x, s, z) [pad] p = Pad(q, pads)
        d = DequantizeLinear(p, s, z) [conv] y = Conv(d, w)
    """
    constants = "float s = {0.5}, uint8 z = {3}, int64[8] pads = {0,0,1,1,0,0,1,1}"
    io = "(float[1,4,8,8] x) => (float[1,4,10,10] y)"
    model = model_of(save, body, constants, io)
    assert model.array(model.graph.by_name["pad"].inputs[2]) == -1.5


@pytest.mark.parametrize(
    ("opset", "dequantize"),
    [(19, "DequantizeLinear(q, h, z)"), (23, "DequantizeLinear<output_dtype = 10>(q, s, z)")],
)
def test_a_dequantization_to_another_float_type_is_a_cast(save: Save, opset: int, dequantize: str):
    text = f"""
        <ir_version: 10, opset_import: ["": {opset}]> g (float[1,4] x) => (float16[1,2] y)
        <float s = {{0.5}}, int8 z = {{0}}, int8[4,2] wq = {{1,2,3,4,5,6,7,8}}> {{
          h = Cast<to = 10>(s) q = QuantizeLinear(x, s, z) [dq] d = {dequantize}
          v = {dequantize.replace("q,", "wq,")}
          [mm] y = MatMul(d, v)
        }}
    """
    model = load_model(save(text))
    assert [node.op for node in model.graph.nodes] == ["Cast", "MatMul"]
    cast, product = model.graph.nodes
    weight = product.inputs[1]
    assert product.inputs[0] == cast.outputs[0]
    assert (model.array(weight).dtype, model.array(weight)[0].tolist()) == ("float16", [0.5, 1])
    assert edges_of(model) == {f"{cast.outputs[0]} -> mm[0]", f"{weight} -> mm[1]"}
    onnx.checker.check_model(model.proto, full_check=True)


def test_a_scale_that_is_not_finite_is_refused(save: Save):
    """TensorRT issue 2628."""
    path = save(
        f"{HEAD} g (float[1,4] x) => (float[1,4] y) <float s = {{1}}, int8 z = {{0}}> {{ "
        "[q] q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"
    )
    proto = onnx.load(path)
    proto.graph.initializer[0].float_data[:] = [float("nan")]
    onnx.save(proto, path)
    with pytest.raises(InputError, match="has the scale nan, so 'x' has to be calibrated"):
        load_model(path)


def test_a_scale_of_zero_that_the_outputs_depend_on_is_refused(save: Save):
    """Taken out, the pair is no part of the function; kept, it would divide by zero."""
    body = "[q] q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Conv(d, w)"
    constants, io = "float s = {0}, int8 z = {0}", "(float[1,4,8,8] x) => (float[1,4,8,8] y)"
    path = save(f"{HEAD} g {io} <{constants}, {WEIGHT}> {{ {body} }}")
    assert [node.op for node in load_model(path).graph.nodes] == ["Conv"]
    with pytest.raises(InputError, match=r"'q' .* has the scale 0, so 'x' has to be calibrated"):
        load_model(path, kept_pairs=["q"])


def test_text_beside_pairs_stays(save: Save):
    """Whether constants are negative tells of a Relu, but text has no sign."""
    body = """
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Conv(d, w)
        t = Concat<axis = 0>(text, text)
    """
    constants = 'float s = {0.5}, int8 z = {0}, string[1] text = {"seen"}'
    io = "(float[1,4,8,8] x) => (float[1,4,8,8] y, string[2] t)"
    model = model_of(save, body, constants, io)
    assert [node.op for node in model.graph.nodes] == ["Conv", "Concat"]


def test_a_clip_between_narrows_the_type(save: Save):
    """PyTorch writes quant_min = -127 so."""
    body = """
        q = QuantizeLinear(x, s, z) c = Clip(q, low, high)
        d = DequantizeLinear(c, s, z) y = Conv(d, w)
    """
    constants = "float s = {0.5}, uint8 z = {0}, uint8 low = {0}, uint8 high = {127}"
    model = model_of(save, body, constants)
    assert scales_of(model) == {"x": ActivationScale(0.5, 0, 0, 127, "uint8")}


def test_a_shared_q_with_several_dqs(save: Save):
    body = """
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z) e = DequantizeLinear(q, s, z)
        [conv] c = Conv(d, w) [add] y = Add(c, e)
    """
    model = model_of(save, body, "float s = {0.5}, int8 z = {0}")
    assert nodes_of(model) == [("Conv", ("x", "w"), ("c",)), ("Add", ("c", "x"), ("y",))]
    assert edges_of(model) == {"x -> conv[0]", "x -> add[1]"}
    assert len(model.imported.placement.groups) == 1


def test_an_output_keeps_its_name_and_float_readers_theirs(save: Save):
    body = """
        [conv] c = Conv(x, w) [relu] r = Relu(c) q = QuantizeLinear(r, s, z)
        y = DequantizeLinear(q, s, z) [next] m = Neg(r)
    """
    io = "(float[1,4,8,8] x) => (float[1,4,8,8] y, float[1,4,8,8] m)"
    model = model_of(save, body, "float s = {0.5}, int8 z = {0}", io)
    assert nodes_of(model) == [
        ("Conv", ("x", "w"), ("c",)),
        ("Relu", ("c",), ("y",)),
        ("Neg", ("y",), ("m",)),
    ]
    assert edges_of(model) == {"y -> graph output[0]"}
    assert scales_of(model) == {"y": int8(0.5)}


# Where the source's zero point did what an activation would.


@pytest.mark.parametrize(
    ("scale", "lowest", "op", "limits"),
    [
        (0.5, "uint8 z = {0}", "Relu", ()),
        (0.5, "int8 z = {-128}", "Relu", ()),
        (6 / 255, "uint8 z = {0}", "Clip", (0.0, 6.0)),
        (0.5, "int16 z = {-32768}", "Relu", ()),
    ],
)
def test_a_relu_that_a_zero_point_made_needless_comes_back(
    save: Save, scale: float, lowest: str, op: str, limits: tuple[float, ...]
):
    body = """
        [conv] c = Conv(x, w) q = com.microsoft.QuantizeLinear(c, s, z)
        d = com.microsoft.DequantizeLinear(q, s, z) [conv2] y = Conv(d, w)
    """
    model = model_of(save, body, f"float s = {{{scale}}}, {lowest}")
    relu = model.graph.nodes[1]
    assert (relu.op, relu.inputs[0], relu.outputs) == (op, "c/linear", ("c",))
    assert tuple(float(model.array(name)) for name in relu.inputs[1:]) == limits
    assert edges_of(model) == {"c -> conv2[0]"}
    assert any("where the source's zero points clamp" in note for note in notes_of(model))


@pytest.mark.parametrize("before", ["Sigmoid", "Relu", "GlobalAveragePool"])
def test_no_relu_behind_what_is_not_linear(save: Save, before: str):
    body = f"""
        [conv] c = Conv(x, w) a = {before}(c) q = QuantizeLinear(a, s, z)
        d = DequantizeLinear(q, s, z) y = Conv(d, w)
    """
    model = model_of(
        save, body, "float s = {0.5}, uint8 z = {0}", "(float[1,4,8,8] x) => (float[N,4,H,W] y)"
    )
    assert [node.op for node in model.graph.nodes] == ["Conv", before, "Conv"]


def test_no_relu_behind_the_sum_in_a_gelu(save: Save):
    """It is never negative, and a Relu would hide the Gelu."""
    body = """
        [erf] e = Erf(x) [sum] t = Add(e, one) q = QuantizeLinear(t, s, z)
        d = DequantizeLinear(q, s, z) [product] y = Mul(x, d)
    """
    model = model_of(save, body, "float s = {0.01}, uint8 z = {0}, float one = {1}")
    assert [node.op for node in model.graph.nodes] == ["Erf", "Add", "Mul"]


# Every opset that has pairs.


@pytest.mark.parametrize("opset", [10, 11, 13, 17, 19, 21, 23])
def test_opsets(tmp_path: Path, opset: int):
    text = f"""
        <ir_version: {5 if opset < 13 else 10}, opset_import: ["": {opset}]>
        g (float[1,4,8,8] x) => (float[1,4,8,8] y) <{WEIGHT}, float s = {{0.5}}, int8 z = {{0}}> {{
          q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) [conv] y = Conv(d, w)
        }}
    """
    proto = parse_model(text)
    onnx.save(proto, tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx")
    assert nodes_of(model) == [("Conv", ("x", "w"), ("y",))]
    assert scales_of(model) == {"x": int8(0.5)}


def test_fp8_pairs(tmp_path: Path):
    text = f"""
        <ir_version: 9, opset_import: ["": 19]>
        g (float[1,4,8,8] x) => (float[1,4,8,8] y) <{WEIGHT}, float s = {{0.5}}, int8 z = {{0}}> {{
          q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) [conv] y = Conv(d, w)
        }}
    """
    proto = parse_model(text)
    zero = next(t for t in proto.graph.initializer if t.name == "z")
    zero.CopyFrom(onnx.helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], [0.0]))
    onnx.save(proto, tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx")
    assert scales_of(model)["x"].range(TENSORRT) == Range(-224, 224)


# Weights in other types and other files.


def test_weights_converted_to_fp16_keep_their_integers(folder: Path):
    """placer converts the remainder after the import; the scales go along."""
    model = net(folder)
    placement = Placement.of(
        edge for tensor in ("x", "w", "v", "r", "s") for edge in model.graph.edges_of(tensor)
    )
    ranges = ranges_of(placement, [1.0] * 5)
    path = folder / "fp16.onnx"
    onnx.save(Inserter(model, TENSORRT).insert(placement, ranges), path)
    imported = load_model(path)
    half = convert(imported, "float16", "keep")
    weights = Placement.of(edge for edge in placement.edges if edge.tensor in ("w", "v"))
    integers = quantized_values(Inserter(half, TENSORRT).insert(translate(weights, half.graph), {}))
    expected = quantized_values(Inserter(model, TENSORRT).insert(weights, {}))
    for name in ("w/quantized", "v/quantized"):
        assert integers[name] == expected[name]


def test_external_data(save: Save, tmp_path: Path):
    body = """
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
        i = QuantizeLinear<axis = 0>(w, ws, wz) v = DequantizeLinear<axis = 0>(i, ws, wz)
        [conv] c = Conv(d, v) u = DequantizeLinear(uq, s, z) [conv2] y = Conv(c, u)
    """
    ones = ", ".join(["1"] * 16)
    constants = "float s = {0.5}, int8 z = {0}, float[4] ws = {0.5, 0.25, 2, 1}"
    constants += f", int8[4] wz = {{0, 0, 0, 0}}, int8[4,4,1,1] uq = {{{ones}}}"
    io = "(float[1,4,8,8] x) => (float[1,4,8,8] y)"
    path = save(f"{HEAD} g {io} <{constants}, {WEIGHT}> {{ {body} }}")
    inline = load_model(path)
    external = tmp_path / "external.onnx"
    onnx.save(
        onnx.load(path), external, save_as_external_data=True, location="data", size_threshold=0
    )
    model = load_model(external)
    assert nodes_of(model) == nodes_of(inline)
    assert model.imported.activations == inline.imported.activations
    assert model.imported.weights.keys() == inline.imported.weights.keys()
    weights = model.graph.by_name["conv"].inputs[1], model.graph.by_name["conv2"].inputs[1]
    for name in weights:
        assert np.array_equal(model.array(name), inline.array(name))


def test_a_branch_may_return_what_a_pair_writes(save: Save):
    body = """
    total = ReduceSum<keepdims = 0>(x)
    some = Cast<to = 9>(total)
    y = If (some) <
      then_branch = yes () => (float[1,4,8,8] a) {
        n = Neg(x)
        nq = QuantizeLinear(n, s, z)
        a = DequantizeLinear(nq, s, z)
      },
      else_branch = no () => (float[1,4,8,8] b) {
        xq = QuantizeLinear(x, s, z)
        b = DequantizeLinear(xq, s, z)
      }
    >
    """
    model = model_of(save, body, "float s = {0.1}, int8 z = {0}")
    branches = [attribute.g for attribute in model.proto.graph.node[-1].attribute]
    ops = {branch.name: [node.op_type for node in branch.node] for branch in branches}
    assert ops == {"yes": ["Neg"], "no": ["Identity"]}
