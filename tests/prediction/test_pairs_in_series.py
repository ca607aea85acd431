"""A Conv that writes in the scale of the second of two pairs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from placer.graph import Edge
from placer.model import load_model
from placer.prediction.rule_tests import layer_line
from placer.prediction.select import make_predictor
from placer.quantization import Placement
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

# As in TensorRT issue 2527, whose second Conv is a layer of "Conv_55 + PWN(Clip_56) +
# DequantizeLinear_62 + QuantizeLinear_378_clone_0": a pair stands behind it and one behind the
# Concat, which moves onto it. What the first Conv writes is read by others in the first scale.
BRANCHES = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,32,8,8] x) => (float[1,32,8,8] out)
    <float[32,32,3,3] w = {1}, float[32,64,3,3] wide = {1}, float lo = {0}, float hi = {6}> {
        [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(x, w)
        [clip1] a = Clip(c1, lo, hi)
        [conv2] c2 = Conv<pads = [1, 1, 1, 1]>(a, w)
        [clip2] b = Clip(c2, lo, hi)
        [join] j = Concat<axis = 1>(a, b)
        [conv3] out = Conv<pads = [1, 1, 1, 1]>(j, wide)
    }
"""
WEIGHTS = [Edge("w", "conv1", 1), Edge("w", "conv2", 1), Edge("wide", "conv3", 1)]
FIRST = [Edge("a", "conv2", 0), Edge("a", "join", 0)]


def test_a_conv_rounds_to_both_scales_if_nothing_else_reads_what_it_writes(
    save: Callable[..., Path],
):
    graph = load_model(save(BRANCHES)).graph
    behind = [Edge("x", "conv1", 0), *FIRST, Edge("b", "join", 1), Edge("j", "conv3", 0)]
    placement = Placement.of([*behind, *WEIGHTS])
    target = Target(engine_version="8.5", compute_capability="8.6", typing="weak")
    predictor = make_predictor(graph, load_pack("tensorrt"), target, "float16")
    lines = [layer_line(layer) for layer in predictor.predict(placement).plan.layers]
    assert lines[1:] == [
        "conv1+clip1: int8 -> int8",
        "conv2+clip2: int8 -> int8",
        "requantize a: int8 -> int8",
        "join: int8, int8 -> int8",
        "conv3: int8 -> float",
    ]


# As ONNX Runtime quantizes symmetrically: it keeps Relus, with a pair before and one behind.
RESIDUAL = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,64,8,8] x) => (float[1,64,8,8] out)
    <float[64,64,3,3] w = {1}> {
        [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(x, w)
        [relu1] a = Relu(c1)
        [conv2] c2 = Conv<pads = [1, 1, 1, 1]>(a, w)
        [add] s = Add(c2, x)
        [relu2] b = Relu(s)
        [conv3] out = Conv<pads = [1, 1, 1, 1]>(b, w)
    }
"""


@pytest.mark.parametrize(
    ("version", "first"),
    [
        ("10.3", ["conv1+relu1: int8 -> int8"]),
        ("8.6", ["conv1: int8 -> int8", "relu1: int8 -> int8"]),
    ],
)
def test_a_relu_between_two_pairs(save: Callable[..., Path], version: str, first: list[str]):
    graph = load_model(save(RESIDUAL)).graph
    read = [e for t in ("x", "c1", "a", "c2", "s", "b") for e in graph.edges_of(t)]
    weights = [Edge("w", f"conv{i}", 1) for i in (1, 2, 3)]
    target = Target(engine_version=version, compute_capability="8.6", typing="weak")
    predictor = make_predictor(graph, load_pack("tensorrt"), target, "float16")
    found = predictor.predict(Placement.of([*read, *weights])).plan.layers
    assert [layer_line(layer) for layer in found] == [
        "quantize x: float -> int8",
        *first,
        "conv2: int8 -> int8",
        "add+relu2: int8, int8 -> int8",
        "conv3: int8 -> float",
    ]


# As ModelOpt quantizes where Sigmoids are not left out: every edge carries a pair.
SILU = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,64,8,8] x) => (float[1,64,8,8] out)
    <float[64,64,1,1] w = {1}> {
        [conv1] c = Conv(x, w)
        [sigmoid] s = Sigmoid(c)
        [mul] y = Mul(c, s)
        [conv2] out = Conv(y, w)
    }
"""


def test_a_silu_with_a_pair_between_sigmoid_and_mul_is_one_layer(save: Callable[..., Path]):
    graph = load_model(save(SILU)).graph
    read = [e for t in ("x", "c", "s", "y") for e in graph.edges_of(t)]
    placement = Placement.of([*read, Edge("w", "conv1", 1), Edge("w", "conv2", 1)])
    target = Target(engine_version="11.1", compute_capability="12.0", typing="strong")
    predictor = make_predictor(graph, load_pack("tensorrt"), target, "float16")
    assert [layer_line(layer) for layer in predictor.predict(placement).plan.layers][:4] == [
        "quantize x: float -> int8",
        "conv1: int8 -> int8",
        "sigmoid+mul: int8, int8 -> int8",
        "conv2: int8 -> float16",
    ]
