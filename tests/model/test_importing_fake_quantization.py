"""Fake quantization in one node, and pairs of other domains, become scales."""

import pytest

from placer.model import load_model
from placer.model.quantized import ActivationScale
from tests.model.imported import (
    HEAD,
    WEIGHT,
    Save,
    edges_of,
    model_of,
    nodes_of,
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
