"""Fake quantization that was exported as arithmetic becomes scales."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from placer.model import load_model, load_quantized
from placer.model.quantized import ActivationScale, restore_pairs
from placer.model.quantized.restored_pairs import arithmetic_pairs
from placer.model.tensorrt_pairs import check_pairs
from tests.model.imported import HEAD, Save, edges_of, scales_of
from tests.reference_outputs import outputs

INTEGERS = ", ".join(str(value) for value in range(-8, 8))
CONSTANTS = f"""
 float[4,4,1,1] w = {{0.5}}, float s = {{0.5}}, float inverse = {{2}}, float z = {{3}},
 float low = {{-128}}, float high = {{127}}, float narrow = {{-127}}, float top = {{255}},
 float zero = {{0}}, float[4,1,1] sc = {{0.25, 0.5, 1, 2}}, float minus = {{-0.5}},
 float most = {{100}}, float small = {{7}}, float lowest = {{-8}},
 int64 si = {{32}}, float s32 = {{32}},
 int8[4,4,1,1] wq = {{{INTEGERS}}}, float[4,1,1,1] ws = {{0.25, 0.5, 1, 2}}
"""
# Weights of 8 bits, by which the file shows that a quantizer made it.
WEIGHTS = "f_w = Cast<to = 1>(wq) v = Mul(f_w, ws)"
ROUNDED = "a = Div(x, s) b = Round(a) e = Clip(b, low, high) d = Mul(e, s)"
# What is quantized, by whom, and the scale that is found.
WRITTEN_OUT = {
    # PyTorch issue 127167: torch.onnx with dynamo=True.
    "with a zero point and casts": (
        "a = Mul(x, inverse) b = Round(a) c = Add(b, z) e = Clip(c, low, high)"
        "i = Cast<to = 3>(e) f = Cast<to = 1>(i) g = Sub(f, z) d = Mul(g, s)",
        ActivationScale(0.5, 3, -128, 127, "int8"),
    ),
    # Training by hand, such as LSQ: round(clamp(x / s)) * s.
    "clipped first": (
        "a = Div(x, s) e = Clip(a, narrow, high) b = Round(e) d = Mul(b, s)",
        ActivationScale(0.5, 0, -127, 127, "int8"),
    ),
    "with a scale that several have": (
        "n = Identity(s) a = Div(x, n) e = Clip(a, low, high) b = Round(e) d = Mul(b, n)",
        ActivationScale(0.5, 0, -128, 127, "int8"),
    ),
    "unsigned": (
        "a = Div(x, s) b = Round(a) e = Clip(b, zero, top) d = Mul(s, e)",
        ActivationScale(0.5, 0, 0, 255, "uint8"),
    ),
    "of 4 bits, with a scale of the tensor's rank": (
        "s4 = Constant<value = float[1,1,1,1] {0.5}>() a = Div(x, s4) b = Round(a)"
        "e = Clip(b, lowest, small) d = Mul(e, s4)",
        ActivationScale(0.5, 0, -8, 7, "int8"),
    ),
    "in a local function": (
        "d = loc.fake(x, s, low, high)",
        ActivationScale(0.5, 0, -128, 127, "int8"),
    ),
}
FUNCTION = """<domain: "loc", opset_import: ["": 17]> fake (x, s, low, high) => (d) {
  a = Div(x, s) b = Round(a) e = Clip(b, low, high) d = Mul(e, s)
}"""


def text_of(body: str, weights: str = WEIGHTS) -> str:
    """A Conv of ``d``, which ``body`` makes of x, and of weights of 8 bits, or float without."""
    head = f"{HEAD} g (float[1,4,8,8] x) => (float[1,4,8,8] y)"
    conv = "[conv] y = Conv(d, v)" if weights else "[conv] y = Conv(d, w)"
    text = f"{head} <{CONSTANTS}> {{ {body} {weights} {conv} }}"
    is_called = "loc." in body
    return text.replace('"": 17', '"": 17, "loc": 1') + FUNCTION if is_called else text


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_a_scale_is_found_in_arithmetic(save: Save, name: str):
    body, expected = WRITTEN_OUT[name]
    path = save(text_of(body))
    model = load_model(path)
    assert [node.op for node in model.graph.nodes] == ["Conv"]
    assert edges_of(model) == {"x -> conv[0]", "v -> conv[1]"}
    assert scales_of(model) == {"x": expected}
    assert model.imported.notes[0].startswith("1 tensor quantized by arithmetic")
    assert model.imported.notes[0].endswith("taken for Q/DQ pairs: x")
    findings = check_pairs(load_quantized(path), Path(), path)
    assert [f.tensor for f in findings if f.verdict == "float"] == ["x"]


@pytest.mark.parametrize(
    "body",
    [
        "a = Div(x, s) b = Round(a) d = Mul(b, s)",  # No range: finite scalar quantization.
        "a = Div(x, s) b = Round(a) e = Clip(b, low, high) d = Mul(b, s)",
        "a = Div(x, s) b = Round(a) e = Clip(b, low, high) d = Mul(e, inverse)",
        "a = Div(x, s) b = Round(a) e = Clip(b, low, top) d = Mul(e, s)",  # No type of 8 bits.
        "a = Div(x, s) b = Round(a) e = Clip(b, zero, most) d = Mul(e, s)",  # Nor its limits.
        "a = Div(x, s) b = Round(a) c = Add(b, z) e = Clip(c, low, high) d = Mul(e, s)",
        "a = Div(x, minus) b = Round(a) e = Clip(b, low, high) d = Mul(e, minus)",
        "a = Div(x, s) t = Cast<to = 6>(a) f = Cast<to = 1>(t) b = Round(f)"  # It truncates.
        "e = Clip(b, low, high) d = Mul(e, s)",
        "a = Div(x, s) b = Round(a) n = Cast<to = 3>(b) f = Cast<to = 1>(n)"  # It wraps around.
        "e = Clip(f, low, high) d = Mul(e, s)",
        "a = Div(x, s32) b = Round(a) e = Clip(b, zero, top) n = Cast<to = 7>(e) m = Mul(n, si)"
        "d = Cast<to = 1>(m)",
    ],
)
def test_other_arithmetic_stays(save: Save, body: str):
    path = save(text_of(body))
    assert load_model(path).imported is None
    assert all(f.verdict != "float" for f in check_pairs(load_quantized(path), Path(), path))


def test_a_scale_of_more_axes_stays(save: Save):
    """It would take an axis from what the rest reads."""
    body = (
        "s5 = Constant<value = float[1,1,1,1,1] {0.5}>() a = Div(x, s5) b = Round(a)"
        "e = Clip(b, low, high) m = Mul(e, s5) d = Squeeze(m)"
    )
    path = save(text_of(body).replace("float[1,4,8,8]", "float[2,4,8,8]"))
    assert "Round" in [node.op for node in load_model(path).graph.nodes]


def test_rounding_of_a_float_network_stays(save: Save):
    """An image in 8 bits: the weights do not show that a quantizer made the file."""
    body = "a = Mul(x, top) b = Round(a) e = Clip(b, zero, top) d = Mul(e, by)"
    text = text_of(body, weights="").replace("float zero", "float by = {0.003921569}, float zero")
    path = save(text)
    model = load_model(path)
    assert model.imported is None
    assert [node.op for node in model.graph.nodes] == ["Mul", "Round", "Clip", "Mul", "Conv"]
    assert check_pairs(load_quantized(path), Path(), path) == ()


@pytest.mark.parametrize(
    "weights",
    [
        "t = Div(w, s) r = Round(t) k = Clip(r, low, high) v = Mul(k, s)",
        "k = Clip(w, low, high) r = Round(k) v = Mul(r, s)",  # The exporter computed the division.
        "q = QuantizeLinear(w, s, zq) v = DequantizeLinear(q, s, zq)",
    ],
)
def test_weights_that_are_rounded_show_a_quantizer(save: Save, weights: str):
    text = text_of(ROUNDED, weights).replace("int64 si", "int8 zq = {0}, int64 si")
    model = load_model(save(text))
    assert set(scales_of(model)) == {"x"}
    assert [node.op for node in model.graph.nodes] == ["Conv"]


def test_scales_along_two_axes_are_no_pair(save: Save):
    weights = "t = Div(w, sc) r = Round(t) k = Clip(r, low, high) v = Mul(k, ws)"
    assert load_model(save(text_of(ROUNDED, weights))).imported is None


@pytest.mark.parametrize(("rounded", "is_quantized"), [(2, False), (3, True)])
def test_inputs_of_most_layers_show_a_quantizer(save: Save, rounded: int, is_quantized: bool):
    """Their weights may be float again, computed by the exporter."""
    layers, read = "", "x"
    for i in range(4):
        if i < rounded:
            layers += f"a{i} = Div({read}, s) b{i} = Round(a{i}) e{i} = Clip(b{i}, low, high)"
            layers += f"d{i} = Mul(e{i}, s)"
            read = f"d{i}"
        layers += f"y{i} = Conv({read}, w)"
        read = f"y{i}"
    head = f"{HEAD} g (float[1,4,8,8] x) => (float[1,4,8,8] y3)"
    model = load_model(save(f"{head} <{CONSTANTS}> {{ {layers} }}"))
    assert (model.imported is not None) == is_quantized


@pytest.mark.parametrize("opset", [17, 19])
def test_half_precision(tmp_path: Path, opset: int):
    """Before opset 19 no pair has it, so the opset is raised; what is loaded runs."""
    text = f"""<ir_version: 9, opset_import: ["": {opset}]>
      g (float16[1,4,8,8] x) => (float16[1,4,8,8] y) <int8[4,4,1,1] wq = {{{INTEGERS}}}> {{
        f_w = Cast<to = 10>(wq) v = Mul(f_w, s) {ROUNDED} [conv] y = Conv(d, v)
      }}"""
    proto = onnx.parser.parse_model(text)
    for name, value in (("s", 0.5), ("low", -128), ("high", 127)):
        proto.graph.initializer.append(numpy_helper.from_array(np.float16(value), name))
    onnx.save(proto, path := tmp_path / "half.onnx")
    assert restore_pairs(onnx.load(path), Path()) == (() if opset == 17 else ("x",))
    model = load_model(path)
    assert scales_of(model) == {"x": ActivationScale(0.5, 0, -128, 127, "int8")}
    assert any("opset 17 raised to 19" in note for note in model.imported.notes) == (opset == 17)
    findings = check_pairs(load_quantized(path), Path(), path)
    assert [f.tensor for f in findings if f.verdict == "float"] == ["x"]
    x = np.round(np.random.default_rng(0).normal(0, 4, (1, 4, 8, 8))).astype(np.float16)
    (expected,), (found,) = outputs(proto, x=x), outputs(model.proto, x=x)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)


def test_nothing_is_changed_by_the_check(save: Save):
    path = save(text_of(WRITTEN_OUT["with a scale that several have"][0]))
    proto = onnx.load(path)
    assert len(arithmetic_pairs(proto, Path())) == 1
    assert proto == onnx.load(path)


def test_integer_weights_beside_it_keep_their_scales(save: Save):
    """Per output channel, with the scale in the shape that broadcasts."""
    model = load_model(save(text_of(ROUNDED)))
    (scale,) = model.imported.weights.values()
    assert (scale.axis, scale.scale.tolist()) == (0, [0.25, 0.5, 1, 2])
    x = np.round(np.random.default_rng(0).normal(0, 4, (1, 4, 8, 8))).astype(np.float32)
    (expected,), (found,) = outputs(onnx.load(model.path), x=x), outputs(model.proto, x=x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
