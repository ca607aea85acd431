"""What cannot be kept is said, and what cannot be taken apart is refused."""

import numpy as np
import onnx
import pytest

from placer.errors import InputError
from placer.model import load_model
from placer.model.quantized import ActivationScale
from placer.quantization import Scheme
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
from tests.reference_outputs import outputs

INT8_OR_UINT8 = Scheme(activation="int8-or-uint8", symmetric=True, bias="float")


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape or (1, 4, 8, 8)).astype(np.float32)


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


@pytest.mark.parametrize(
    ("scale", "factors", "expected"),
    [
        ("float s = {0.5}, int8 z = {0}", "[4,1,1] k = {1, -2, 3, 4}", [0.5, 1, 1.5, 2]),
        ("float s = {0.5}, int8 z = {0}", " k = {3}", 1.5),
        (
            "float[4] s = {1, 2, 3, 4}, int8[4] z = {0, 0, 0, 0}",
            "[4,1,1] k = {5, 6, 7, -8}",
            [5, 12, 21, 32],
        ),
    ],
)
def test_scales_of_a_weight_follow_the_factors_that_are_folded_in(
    save: Save, scale: str, factors: str, expected: float | list[float]
):
    """As those of a BatchNormalization, so that the weight's integers stay as they were."""
    body = """
        q = QuantizeLinear<axis = 0>(w, s, z) v = DequantizeLinear<axis = 0>(q, s, z)
        c = Conv(x, v) y = Mul(c, k)
    """
    model = model_of(save, body, f"{scale}, float{factors}")
    assert model.imported.weights["w"].scale == pytest.approx(expected)
    (note,) = notes_of(model)
    assert note.startswith("scales of 1 weight multiplied by what is folded into them")


def test_a_weight_that_lost_a_channel_has_no_scales(save: Save):
    body = """
        q = QuantizeLinear(w, s, z) v = DequantizeLinear(q, s, z) [conv] c = Conv(x, v)
        [mul] y = Mul(c, k)
    """
    model = model_of(save, body, "float s = {0.5}, int8 z = {0}, float[4,1,1] k = {1, 2, 0, 4}")
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
            "s0 = ReduceMax<axes = [1]>(x) r = Div(x, s0) i = Cast<to = 3>(r)"
            "[n] m = ConvInteger(i, wq) c = Cast<to = 1>(m) y = Mul(c, s0)",
            "node 'n' \\(ConvInteger\\) reads integers that the network itself rounds",
        ),
        (
            "s0 = ReduceMax<keepdims = 0>(x) i = Cast<to = 3>(x) [n] y = DequantizeLinear(i, s0)",
            "node 'n' \\(DequantizeLinear\\) dequantizes 'i' with scales that are not constant",
        ),
    ],
)
def test_refusals(save: Save, body: str, expected: str):
    ones = ", ".join(["1"] * 16)
    constants = f"float s = {{0.5}}, int8 z = {{0}}, int8[4,4,1,1] wq = {{{ones}}}"
    with pytest.raises(InputError, match=expected):
        model_of(save, body, constants)
