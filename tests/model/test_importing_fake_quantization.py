"""Fake quantization in one node, and pairs of other domains, become scales."""

import onnx
import onnx.helper
import pytest

from placer.errors import InputError
from placer.model import Model, load_model
from placer.model.quantized import ActivationScale
from tests.model.imported import (
    HEAD,
    WEIGHT,
    Save,
    edges_of,
    int8,
    model_of,
    nodes_of,
    notes_of,
    scales_of,
)

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
        (
            "qonnx.custom_op.general.Quant<signed = 1, narrow = 0>(x, s, z, bits)",
            "float z = {0}, float bits = {16}",
            ActivationScale(0.5, 0, -32768, 32767, "int16"),
        ),
        (  # PyTorch issue 77455: exported with ONNX_ATEN_FALLBACK.
            'com.microsoft.ATen<operator = "fake_quantize_per_tensor_affine">(x, s, z, low, high)',
            "int32 z = {0}, int64 low = {-128}, int64 high = {127}",
            int8(0.5),
        ),
    ],
)
def test_fake_quantization(save: Save, node: str, constants: str, expected: ActivationScale):
    model = model_of(save, f"d = {node} [conv] y = Conv(d, w)", f"float s = {{0.5}}, {constants}")
    assert nodes_of(model) == [("Conv", ("x", "w"), ("y",))]
    assert edges_of(model) == {"x -> conv[0]"}
    assert scales_of(model) == {"x": expected}


def test_a_bias_of_32_bits_is_float(save: Save):
    """As Brevitas quantizes it."""
    body = "c = qonnx.custom_op.general.Quant(b, s, z, bits) [conv] y = Conv(x, w, c)"
    constants = "float[4] b = {1, 2, 3, 4}, float s = {0.001}, float z = {0}, float bits = {32}"
    model = model_of(save, body, constants)
    assert nodes_of(model) == [("Conv", ("x", "w", "b"), ("y",))]
    assert (edges_of(model), model.imported.weights) == (set(), {})
    assert model.imported.source == "fake quantization, tensors of more than 16 bits"


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


@pytest.mark.parametrize("tool", ["Vitis", "Extended"])
def test_pairs_of_amds_tools(save: Save, tool: str):
    """Of Vitis AI, in com.vai.quantize, and Quark, in com.amd.quark."""
    body = f"""
        q = amd.{tool}QuantizeLinear(x, s, z) d = amd.{tool}DequantizeLinear(q, s, z)
        [conv] y = Conv(d, w)
    """
    text = f'{HEAD[:-2]}, "amd": 1]> g (float[1,4,8,8] x) => (float[1,4,8,8] y)'
    model = load_model(save(f"{text} <float s = {{0.5}}, int8 z = {{0}}, {WEIGHT}> {{ {body} }}"))
    assert nodes_of(model) == [("Conv", ("x", "w"), ("y",))]
    assert scales_of(model) == {"x": int8(0.5)}


@pytest.mark.parametrize(("bits", "told"), [(4, True), (8, False)])
def test_fewer_bits_are_told(save: Save, bits: int, told: bool):
    body = "[q4] d = qonnx.custom_op.general.Quant(x, s, z, b) [conv] y = Conv(d, w)"
    constants = f"float s = {{0.5}}, float z = {{0}}, float b = {{{bits}}}"
    notes = notes_of(model_of(save, body, constants))
    assert any(note.startswith("'q4' quantizes to fewer than 7 bits") for note in notes) == told


def of_openvino(save: Save, body: str, constants: str) -> Model:
    """Of a model as NNCF exported it, whose FakeQuantize is in no domain that ONNX Runtime has."""
    text = f'{HEAD[:-2]}, "nncf": 1]> g (float[1,4,8,8] x) => (float[1,4,8,8] y)'
    path = save(f"{text} <{constants}, {WEIGHT}> {{ {body} }}")
    proto = onnx.load(path)
    for node in proto.graph.node:
        node.domain = ""
    onnx.save(proto, path)
    return load_model(path)


@pytest.mark.parametrize(
    ("low", "high", "levels", "expected"),
    [
        (-64, 63.5, 256, ActivationScale(0.5, 0, -128, 127, "int8")),
        (-63.5, 63.5, 255, ActivationScale(0.5, 0, -127, 127, "int8")),
        (0, 127.5, 256, ActivationScale(0.5, 0, 0, 255, "uint8")),
        (-27.6, 99.9, 256, ActivationScale(0.5, 55, 0, 255, "uint8")),  # Zero lies at 55.2.
    ],
)
def test_openvinos_fake_quantize(
    save: Save, low: float, high: float, levels: int, expected: ActivationScale
):
    body = f"d = nncf.FakeQuantize<levels = {levels}>(x, l, h, l, h) [conv] y = Conv(d, w)"
    model = of_openvino(save, body, f"float l = {{{low}}}, float h = {{{high}}}")
    assert nodes_of(model) == [("Conv", ("x", "w"), ("y",))]
    assert scales_of(model) == {"x": expected}


def test_bounds_of_openvinos_fake_quantize_may_have_several_shapes(save: Save):
    body = "d = nncf.FakeQuantize<levels = 256>(x, l, h, l2, h2) [conv] y = Conv(d, w)"
    given, written = "float[1] l = {-64}, float h = {63.5}", "float l2 = {-64}"
    constants = f"{given}, {written}, float[1] h2 = {{63.5}}"
    model = of_openvino(save, body, constants)
    assert scales_of(model) == {"x": ActivationScale(0.5, 0, -128, 127, "int8")}


def test_openvinos_fake_quantize_of_weights_per_channel(save: Save):
    body = "v = nncf.FakeQuantize<levels = 255>(w, l, h, l, h) [conv] y = Conv(x, v)"
    low, high = "-127, -254, -63.5, -127", "127, 254, 63.5, 127"
    constants = f"float[4,1,1,1] l = {{{low}}}, float[4,1,1,1] h = {{{high}}}"
    scale = of_openvino(save, body, constants).imported.weights["w"]
    assert (scale.scale.ravel().tolist(), scale.axis) == ([1, 2, 0.5, 1], 0)


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ("(x, l, h, l, h2)", "writes another range than it reads"),
        ("(x, l, l, l, l)", "has a range that is not positive"),
        ("(x, h, h2, h, h2)", "has a range without zero"),
    ],
)
def test_openvinos_fake_quantize_that_no_pair_computes(save: Save, bounds: str, reason: str):
    body = f"[fq] d = nncf.FakeQuantize<levels = 256>{bounds} y = Conv(d, w)"
    constants = "float l = {-64}, float h = {63.5}, float h2 = {127}"
    with pytest.raises(InputError, match=rf"node 'fq' \(FakeQuantize\) {reason}"):
        of_openvino(save, body, constants)


def test_quantizing_what_is_quantized_is_refused(save: Save):
    body = "[once] q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)"
    given = "float s = {0.5}, uint8 z = {0}"
    text = f"{HEAD} g (float[8] x) => (float[8] y) <{given}> {{ {body} }}"
    proto = onnx.load(save(text))
    twice = onnx.helper.make_node("QuantizeLinear", ["q", "s", "z"], ["r"], "twice")
    proto.graph.node.insert(1, twice)
    proto.graph.node[2].input[0] = "r"
    onnx.save(proto, path := save(text))
    with pytest.raises(InputError, match=r"node 'twice' .* reads 'q', which is quantized already"):
        load_model(path)
