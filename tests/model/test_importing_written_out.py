"""Fake quantization that was exported as arithmetic becomes scales."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.model import load_model
from placer.model.quantized import ActivationScale, check_pairs
from tests.model.imported import HEAD, Save, edges_of, scales_of
from tests.model.test_normalize import outputs

CONSTANTS = """
 float[4,4,1,1] w = {0.5}, float s = {0.5}, float inverse = {2}, float z = {3},
 float low = {-128}, float high = {127}, float narrow = {-127}, float top = {255}, float zero = {0}
"""
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
}


def text_of(body: str) -> str:
    head = f"{HEAD} g (float[1,4,8,8] x) => (float[1,4,8,8] y)"
    return f"{head} <{CONSTANTS}> {{ {body} [conv] y = Conv(d, w) }}"


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_a_scale_is_found_in_arithmetic(save: Save, name: str):
    body, expected = WRITTEN_OUT[name]
    path = save(text_of(body))
    model = load_model(path)
    assert [node.op for node in model.graph.nodes] == ["Conv"]
    assert edges_of(model) == {"x -> conv[0]"}
    assert scales_of(model) == {"x": expected}
    assert model.imported.notes[0].startswith("1 tensor quantized by arithmetic")
    (finding,) = check_pairs(onnx.load(path), Path(), path)
    assert (finding.verdict, finding.tensor) == ("float", "x")


@pytest.mark.parametrize(
    "body",
    [
        "a = Div(x, s) b = Round(a) d = Mul(b, s)",  # No range: finite scalar quantization.
        "a = Div(x, s) b = Round(a) e = Clip(b, low, high) d = Mul(b, s)",
        "a = Div(x, s) b = Round(a) e = Clip(b, low, high) d = Mul(e, inverse)",
        "a = Div(x, s) b = Round(a) e = Clip(b, low, top) d = Mul(e, s)",  # No type of 8 bits.
        "a = Div(x, s) b = Round(a) c = Add(b, z) e = Clip(c, low, high) d = Mul(e, s)",
    ],
)
def test_other_arithmetic_stays(save: Save, body: str):
    path = save(text_of(body))
    assert load_model(path).imported is None
    assert check_pairs(onnx.load(path), Path(), path) == ()


def test_integer_weights_beside_it_keep_their_scales(save: Save):
    """Per output channel, with the scale in the shape that broadcasts."""
    integers = ", ".join(str(value) for value in range(-8, 8))
    body = f"""{HEAD} g (float[1,4,8,8] x) => (float[1,4,8,8] y)
      <{CONSTANTS}, int8[4,4,1,1] wq = {{{integers}}}, float[4,1,1,1] ws = {{0.25, 0.5, 1, 2}}> {{
        a = Div(x, s) b = Round(a) e = Clip(b, low, high) d = Mul(e, s)
        f = Cast<to = 1>(wq) v = Mul(f, ws) [conv] y = Conv(d, v)
      }}"""
    model = load_model(save(body))
    (scale,) = model.imported.weights.values()
    assert (scale.axis, scale.scale.tolist()) == (0, [0.25, 0.5, 1, 2])
    x = np.round(np.random.default_rng(0).normal(0, 4, (1, 4, 8, 8))).astype(np.float32)
    (expected,), (found,) = outputs(onnx.load(model.path), x=x), outputs(model.proto, x=x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
