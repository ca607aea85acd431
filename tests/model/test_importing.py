"""Taking a quantized model apart: the float graph, scales and placement behind it."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, numpy_helper

from placer.errors import InputError
from placer.graph import Edge
from placer.graph.text import parse_model
from placer.model import Model, load_model
from placer.model.importing import ActivationScale
from placer.qdq import Inserter
from placer.qdq.precision import convert
from placer.qdq.translation import translate
from placer.quantization import Placement, Range, Scheme
from placer.quantization.numerics import activation_quantization
from tests.model.test_normalize import outputs

Save = Callable[..., Path]

TENSORRT = Scheme(activation="int8", symmetric=True, bias="float")
ORT = Scheme(activation="uint8", symmetric=False, bias="int32")
INT8_OR_UINT8 = Scheme(activation="int8-or-uint8", symmetric=True, bias="float")
HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1, "qonnx.custom_op.general": 1]>'
WEIGHT = "float[4,4,1,1] w = {0.5}"


def model_of(save: Save, body: str, constants: str, io: str = "") -> Model:
    """Import a model from x, float[1,4,8,8] unless ``io`` says otherwise, to y."""
    io = io or "(float[1,4,8,8] x) => (float[1,4,8,8] y)"
    return load_model(save(f"{HEAD} g {io} <{constants}, {WEIGHT}> {{ {body} }}"))


def nodes_of(model: Model) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(node.op, node.inputs, node.outputs) for node in model.graph.nodes]


def edges_of(model: Model) -> set[str]:
    return {str(edge) for edge in model.imported.placement.edges}


def scales_of(model: Model) -> dict[str, ActivationScale]:
    return dict(model.imported.activations)


def notes_of(model: Model) -> tuple[str, ...]:
    return model.imported.notes


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape or (1, 4, 8, 8)).astype(np.float32)


def int8(scale: float, zero_point: int = 0) -> ActivationScale:
    return ActivationScale(scale, zero_point, -128, 127, "int8")


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
    ("scale", "op", "limits"), [(0.5, "Relu", ()), (6 / 255, "Clip", (0.0, 6.0))]
)
def test_a_relu_that_a_zero_point_made_needless_comes_back(
    save: Save, scale: float, op: str, limits: tuple[float, ...]
):
    body = """
        [conv] c = Conv(x, w) q = QuantizeLinear(c, s, z)
        d = DequantizeLinear(q, s, z) [conv2] y = Conv(d, w)
    """
    model = model_of(save, body, f"float s = {{{scale}}}, uint8 z = {{0}}")
    relu = model.graph.nodes[1]
    assert (relu.op, relu.inputs[0], relu.outputs) == (op, "c/linear", ("c",))
    assert tuple(float(model.array(name)) for name in relu.inputs[1:]) == limits
    assert edges_of(model) == {"c -> conv2[0]"}
    assert any("zero point clamps 'c' at zero" in note for note in notes_of(model))


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


# Constants.


def test_quantized_weights_become_float_and_keep_their_scales(save: Save):
    body = "[dq] v = DequantizeLinear<axis = 0>(w_quantized, ws, wz) [conv] y = Conv(x, v)"
    constants = """
        int8[4,4,1,1] w_quantized = {1,2,3,4, 5,6,7,8, -128,0,0,0, 127,0,0,1},
        float[4] ws = {0.5, 0.25, 2, 1}, int8[4] wz = {0, 0, 0, 0}
    """
    model = load_model(
        save(f"{HEAD} g (float[1,4,8,8] x) => (float[1,4,8,8] y) <{constants}> {{ {body} }}")
    )
    assert nodes_of(model) == [("Conv", ("x", "w"), ("y",))]
    assert model.array("w")[:, :2, 0, 0].tolist() == [[0.5, 1], [1.25, 1.5], [-256, 0], [127, 0]]
    assert edges_of(model) == {"w -> conv[1]"}
    candidate = Inserter(model, TENSORRT).insert(
        Placement.of([Edge("x", "conv", 0), Edge("w", "conv", 1)]), {"x": Range(-1, 1)}
    )
    values = {t.name: numpy_helper.to_array(t) for t in candidate.graph.initializer}
    assert values["w/scale"].tolist() == [0.5, 0.25, 2, 1]
    assert values["w/quantized"].ravel().tolist() == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        -128,
        *[0] * 3,
        127,
        0,
        0,
        1,
    ]


def test_float_weights_behind_q_keep_their_values(save: Save):
    """As pytorch-quantization and ModelOpt write them."""
    body = """
        q = QuantizeLinear<axis = 0>(w, ws, wz) v = DequantizeLinear<axis = 0>(q, ws, wz)
        [conv] y = Conv(x, v)
    """
    model = model_of(save, body, "float[4] ws = {0.5, 0.25, 2, 1}, int8[4] wz = {0, 0, 0, 0}")
    assert nodes_of(model) == [("Conv", ("x", "w"), ("y",))]
    assert model.imported.weights["w"].scale.tolist() == [0.5, 0.25, 2, 1]
    assert edges_of(model) == {"w -> conv[1]"}


def test_a_transpose_behind_dq_moves_the_scales_along(save: Save):
    """As PyTorch writes Linear."""
    body = """
        v = DequantizeLinear<axis = 0>(wq, ws, wz) t = Transpose<perm = [1, 0]>(v)
        [mm] y = MatMul(x, t)
    """
    constants = "int8[2,3] wq = {1,2,3,4,5,6}, float[2] ws = {0.5, 2}, int8[2] wz = {0, 0}"
    model = model_of(save, body, constants, "(float[1,3] x) => (float[1,2] y)")
    assert nodes_of(model) == [("MatMul", ("x", "t"), ("y",))]
    assert model.array("t").tolist() == [[0.5, 8], [1, 10], [1.5, 12]]
    scale = model.imported.weights["t"]
    assert (scale.scale.tolist(), scale.axis) == ([0.5, 2], 1)


def test_one_scale_serves_all_channels_but_not_the_other_way_round(save: Save):
    one = model_of(
        save,
        "q = QuantizeLinear(w, s, z) v = DequantizeLinear(q, s, z) [conv] y = Conv(x, v)",
        "float s = {0.5}, int8 z = {0}",
    ).imported
    per_channel = one.weight_scale("w", 0, (4, 4, 1, 1))
    assert per_channel.tolist() == [0.5] * 4
    several = model_of(
        save,
        "q = QuantizeLinear<axis = 0>(w, s, z) v = DequantizeLinear<axis = 0>(q, s, z)"
        "[conv] y = Conv(x, v)",
        "float[4] s = {0.5, 1, 1, 1}, int8[4] z = {0, 0, 0, 0}",
    ).imported
    assert several.weight_scale("w", None, (4, 4, 1, 1)) is None
    assert several.weight_scale("w", 1, (4, 4, 1, 1)) is None
    assert several.weight_scale("other", 0, (4,)) is None


def test_an_int32_bias_becomes_float_and_no_edge(save: Save):
    body = "b = DequantizeLinear(b_quantized, bs) [conv] y = Conv(x, w, b)"
    model = model_of(save, body, "int32[4] b_quantized = {1,2,3,4}, float bs = {0.25}")
    assert nodes_of(model) == [("Conv", ("x", "w", "b"), ("y",))]
    assert model.array("b").tolist() == [0.25, 0.5, 0.75, 1]
    assert edges_of(model) == set()


def test_weights_in_blocks_lose_their_scales_with_a_note(tmp_path: Path):
    text = """
        <ir_version: 10, opset_import: ["": 21]> g (float[1,4] x) => (float[1,2] y)
        <int8[4,2] wq = {1,2,3,4,5,6,7,8}, float[2,2] s = {1, 10, 2, 20}> {
          w = DequantizeLinear<axis = 0, block_size = 2>(wq, s) y = MatMul(x, w)
        }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "blocks.onnx")
    model = load_model(tmp_path / "blocks.onnx")
    (weight,) = model.graph.initializers
    assert model.array(weight).tolist() == [[1, 20], [3, 40], [10, 120], [14, 160]]
    expected = f"scale of constant '{weight}' dropped: it has one per block of 2 values"
    assert expected in notes_of(model)


# Fake quantization in one node.


@pytest.mark.parametrize(
    ("node", "constants", "expected"),
    [
        (
            'qonnx.custom_op.general.Quant<signed = 1, narrow = 1, rounding_mode = "ROUND">'
            "(x, s, z, bits)",
            "float z = {0}, float bits = {8}",
            ActivationScale(0.5, 0, -127, 127, "int8"),
        ),
        (
            "com.microsoft.fake_quantize_per_tensor_affine(x, s, z, low, high)",
            "int64 z = {128}, int64 low = {0}, int64 high = {255}",
            ActivationScale(0.5, 128, 0, 255, "uint8"),
        ),
    ],
)
def test_fake_quantization(save: Save, node: str, constants: str, expected: ActivationScale):
    model = model_of(save, f"d = {node} [conv] y = Conv(d, w)", f"float s = {{0.5}}, {constants}")
    assert nodes_of(model) == [("Conv", ("x", "w"), ("y",))]
    assert edges_of(model) == {"x -> conv[0]"}
    assert scales_of(model) == {"x": expected}


def test_fake_quantization_of_weights_per_channel(save: Save):
    body = """
        v = com.microsoft.fake_quantize_per_channel_affine(w, ws, wz, axis, low, high)
        [conv] y = Conv(x, v)
    """
    constants = """
        float[4] ws = {0.5, 0.25, 2, 1}, int64[4] wz = {0, 0, 0, 0}, int64 axis = {0},
        int64 low = {-128}, int64 high = {127}
    """
    model = model_of(save, body, constants)
    assert nodes_of(model) == [("Conv", ("x", "w"), ("y",))]
    scale = model.imported.weights["w"]
    assert (scale.scale.tolist(), scale.axis) == ([0.5, 0.25, 2, 1], 0)


@pytest.mark.parametrize(
    ("kind", "limits", "name"),
    [("INT8", (-128, 127), "int8"), ("FP8", (-448, 448), "float8_e4m3fn")],
)
def test_pairs_of_tensorrts_own_domain(
    save: Save, kind: str, limits: tuple[float, float], name: str
):
    body = f"""
        q = trt.TRT_{kind}QuantizeLinear(x, s) d = trt.TRT_{kind}DequantizeLinear(q, s)
        [conv] y = Conv(d, w)
    """
    text = f'{HEAD[:-2]}, "trt": 1]> g (float[1,4,8,8] x) => (float[1,4,8,8] y)'
    model = load_model(save(f"{text} <float s = {{0.5}}, {WEIGHT}> {{ {body} }}"))
    assert nodes_of(model) == [("Conv", ("x", "w"), ("y",))]
    assert scales_of(model) == {"x": ActivationScale(0.5, 0, *limits, name)}


# Integers that are needed as such.


@pytest.mark.parametrize(
    ("body", "io"),
    [
        (
            "q = QuantizeLinear(x, s, z) i = Cast<to = 1>(q) y = Conv(i, w)",
            "(float[1,4,8,8] x) => (float[1,4,8,8] y)",
        ),
        ("y = QuantizeLinear(x, s, z)", "(float[1,4,8,8] x) => (uint8[1,4,8,8] y)"),
        (
            "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, other, z) y = Conv(d, w)",
            "(float[1,4,8,8] x) => (float[1,4,8,8] y)",
        ),
        (
            "d = DequantizeLinear(x, s, z) y = Conv(d, w)",
            "(uint8[1,4,8,8] x) => (float[1,4,8,8] y)",
        ),
        (
            "yq = QLinearConv(x, s, z, wq, s, wz, s, z) y = DequantizeLinear(yq, s, z)",
            "(uint8[1,4,8,8] x) => (float[1,4,8,8] y)",
        ),
    ],
)
def test_integers_that_something_reads_stay_what_they_were(save: Save, body: str, io: str):
    """The model computes what it did, but for the rounding that the pairs did."""
    ones = ", ".join(["1"] * 16)
    constants = "float s = {0.25}, float other = {0.5}, uint8 z = {100}, int8 wz = {0}"
    constants += f", int8[4,4,1,1] wq = {{{ones}}}"
    text = f"{HEAD} g {io} <{constants}, {WEIGHT}> {{ {body} }}"
    path = save(text)
    values = image() if "float[1,4,8,8] x" in io else image().clip(0, 3).astype(np.uint8) * 40
    (before,) = outputs(onnx.load(path), x=values)
    model = load_model(path)
    (after,) = outputs(model.proto, x=values)
    assert after.dtype == before.dtype
    limit = 0.26 if "QLinearConv" in body else 0
    np.testing.assert_allclose(
        after.astype(np.float64), before.astype(np.float64), rtol=1e-6, atol=limit
    )
    assert any("arithmetic" in note for note in notes_of(model))


# What cannot be kept is said.


@pytest.mark.parametrize(
    ("q", "constants", "expected"),
    [
        ("QuantizeLinear(x, s, z)", "float s = {0}, int8 z = {0}", "not positive and finite"),
        (
            "QuantizeLinear<axis = 1>(x, s, z)",
            "float[4] s = {1, 2, 3, 4}, int8[4] z = {0, 0, 0, 0}",
            "'x' has one scale per channel, which engines take of weights only",
        ),
    ],
)
def test_scales_that_no_engine_takes(save: Save, q: str, constants: str, expected: str):
    back = q.replace("QuantizeLinear", "DequantizeLinear").replace("(x", "(q")
    model = model_of(save, f"q = {q} d = {back} y = Conv(d, w)", constants)
    assert [node.op for node in model.graph.nodes] == ["Conv"]
    assert any(expected in note for note in notes_of(model))


def test_a_scale_that_is_computed_at_run_time(save: Save):
    body = """
        s = ReduceMax<keepdims = 0>(x) q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z) [conv] y = Conv(d, w)
    """
    model = model_of(save, body, "int8 z = {0}")
    assert nodes_of(model) == [("Conv", ("x", "w"), ("y",))]
    assert scales_of(model) == {}
    assert edges_of(model) == {"x -> conv[0]"}
    assert "gets it at run time" in notes_of(model)[0]


def test_two_scales_of_one_tensor(save: Save):
    body = """
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) c = Conv(d, w)
        q2 = QuantizeLinear(x, t, z) d2 = DequantizeLinear(q2, t, z) y = Add(c, d2)
    """
    model = model_of(save, body, "float s = {0.5}, float t = {0.75}, int8 z = {0}")
    assert scales_of(model) == {"x": int8(0.75)}
    assert notes_of(model) == ("'x' has several scales: the largest range is kept",)


def test_a_weight_that_another_node_was_folded_into(save: Save):
    body = """
        q = QuantizeLinear(w, s, z) v = DequantizeLinear(q, s, z) [conv] c = Conv(x, v)
        [mul] y = Mul(c, k)
    """
    model = model_of(save, body, "float s = {0.5}, int8 z = {0}, float[4,1,1] k = {1, 2, 3, 4}")
    assert model.imported.weights == {}
    assert "scales of weight 'w' dropped: another node was folded in" in notes_of(model)


@pytest.mark.parametrize(
    ("source", "scheme", "growth"),
    [
        (ActivationScale(0.5, 0, 0, 255, "uint8"), TENSORRT, 255 / 127),
        (ActivationScale(0.5, 55, 0, 255, "uint8"), TENSORRT, 200 / 127),
        (ActivationScale(0.5, 128, 0, 255, "uint8"), TENSORRT, None),
        (ActivationScale(0.5, 0, -128, 127, "int8"), TENSORRT, None),
        (ActivationScale(0.5, 55, 0, 255, "uint8"), ORT, None),
        (ActivationScale(0.5, 0, -32768, 32767, "int16"), TENSORRT, 32767 / 127),
        (ActivationScale(0.5, 0, 0, 255, "uint8"), INT8_OR_UINT8, None),
        (ActivationScale(0.5, 55, 0, 255, "uint8"), INT8_OR_UINT8, 200 / 127),
    ],
)
def test_the_loss_of_a_conversion(
    save: Save, source: ActivationScale, scheme: Scheme, growth: float | None
):
    """The step of symmetric int8 is amax / 127; the noise of rounding grows with the step."""
    imported = model_of(
        save,
        "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Conv(d, w)",
        "float s = {0.5}, int8 z = {0}",
    ).imported
    found = type(imported)(imported.proto, "", {"x": source}, {}, imported.placement, ()).losses(
        scheme
    )
    if growth is None:
        assert found == ()
        quantization = activation_quantization(source.range(scheme), scheme)
        assert quantization.scale == source.scale
    else:
        (loss,) = found
        assert loss.step_growth == pytest.approx(growth)
        assert loss.decibel == pytest.approx(20 * np.log10(growth))


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


# What cannot be taken apart is refused in a sentence that names the node.


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("[n] y = com.microsoft.QLinearConv(x, w)", "node 'n' \\(QLinearConv\\) has 2 inputs"),
        (
            "q, s0, z0 = DynamicQuantizeLinear(x) [n] y = Mul(x, s0)",
            "node 'n' \\(Mul\\) multiplies a scale with something that is none",
        ),
        (
            "q, s0, z0 = DynamicQuantizeLinear(x) [n] i = ConvInteger(q, wq, z0)"
            "[out] y = Cast<to = 1>(i)",
            "'y', part of a dynamic quantization",
        ),
        (
            "s0 = ReduceMax<keepdims = 0>(x) i = Cast<to = 3>(x) [n] y = DequantizeLinear(i, s0)",
            "node 'n' \\(DequantizeLinear\\) dequantizes 'i' with scales that are no constant",
        ),
    ],
)
def test_refusals(save: Save, body: str, expected: str):
    ones = ", ".join(["1"] * 16)
    constants = f"float s = {{0.5}}, int8 z = {{0}}, int8[4,4,1,1] wq = {{{ones}}}"
    with pytest.raises(InputError, match=expected):
        model_of(save, body, constants)
