"""Norms, attentions and products of rows: what NVIDIA's builder makes of them is predicted."""

from pathlib import Path
from types import ModuleType

import pytest

from placer.prediction.select import make_predictor
from placer.prediction.times.gpus import load_gpu
from placer.prediction.times.layer_classes import load_layer_classes
from placer.prediction.times.roofline import Roofline
from placer.quantization import EMPTY
from placer.rules.packaging.load import load_pack
from tests.prediction.kernels.building import (
    TARGET,
    builder_test,
    check_built,
    model_of,
    placement_of,
)

GROUP_NORM = """
    (float[1,16,8,8] x) => (float[1,16,8,8] out)
    <float[64,16,3,3] w1 = {1}, float[64,1,1] g = {1},
     float[16,64,1,1] w2 = {1}> {
      one = Constant<value = float[8] {1, 1, 1, 1, 1, 1, 1, 1}>()
      zero = Constant<value = float[8] {0, 0, 0, 0, 0, 0, 0, 0}>()
      rows = Constant<value = int64[3] {1, 8, -1}>()
      map = Constant<value = int64[4] {1, 64, 8, 8}>()
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
      [rows1] r = Reshape(c, rows)
      [norm1] n = InstanceNormalization(r, one, zero)
      [map1] m = Reshape(n, map)
      [scale1] s = Mul(m, g)
      [shift1] y = Add(s, g)
      [relu1] a = Relu(y)
      [conv2] out = Conv(a, w2)
    }"""
GRAPHS = {
    "a GroupNorm of 64 channels is one kernel, with memory that is cleared before": GROUP_NORM,
    "of 48 channels it is the kernel for InstanceNorm between two generated ones": (
        GROUP_NORM.replace("[64,", "[48,")
        .replace(",64,", ",48,")
        .replace("1, 64, 8", "1, 48, 8")
        .replace("{1, 8, -1}", "{1, 4, -1}")
        .replace("float[8]", "float[4]")
        .replace("1, 1, 1, 1, 1, 1, 1, 1", "1, 1, 1, 1")
        .replace("0, 0, 0, 0, 0, 0, 0, 0", "0, 0, 0, 0")
    ),
    "an InstanceNorm reads and writes maps that are stored otherwise": """
        (float[1,16,8,8] x) => (float[1,16,8,8] out)
        <float[16,16,3,3] w1 = {1}, float[16] g = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
          [norm1] n = InstanceNormalization(c, g, g)
          [relu1] r = Relu(n)
          [conv2] out = Conv<pads = [1, 1, 1, 1]>(r, w1)
        }""",
    "a Conv of several groups gives its bias to the kernel that sums": """
        (float[1,32,8,8] x) => (float[1,32,1,1] out)
        <float[32,8,3,3] w1 = {1}, float[32] b = {1}> {
          [conv1] c = Conv<group = 4, pads = [1, 1, 1, 1]>(x, w1, b)
          [relu1] r = Relu(c)
          [mean1] out = GlobalAveragePool(r)
        }""",
    "a residual of several batches is not added where rows are one matrix": """
        (float[2,16,32] x) => (float[2,16,32] out) <float[32,32] w1 = {1}, float[32] b = {1}> {
          [relu1] r = Relu(x)
          [product1] p = MatMul(r, w1)
          [bias1] y = Add(p, b)
          [add1] s = Add(y, r)
          [product2] out = MatMul(s, w1)
        }""",
    "products of a single row add their bias if another one follows": """
        (float[1,32] x) => (float[1,16] out)
        <float[32,24] w1 = {1}, float[24] b1 = {1}, float[24,16] w2 = {1}, float[16] b2 = {1}> {
          [relu1] r = Relu(x)
          [product1] p = Gemm(r, w1, b1)
          [tanh1] t = Tanh(p)
          [product2] out = Gemm(t, w2, b2)
        }""",
    "a norm of rows by their length is one kernel with what follows": """
        (float[1,16,32] x) => (float[1,16,32] out) <float[32,32] w1 = {1}> {
          [relu1] r = Relu(x)
          [length1] n = ReduceL2<axes = [-1], keepdims = 1>(r)
          [div1] d = Div(r, n)
          [product1] out = MatMul(d, w1)
        }""",
    "by the length of its maps it is two, and the second takes the root": """
        (float[1,32,8,8] x) => (float[1,16,8,8] out) <float[16,32,1,1] w1 = {1}> {
          [relu1] r = Relu(x)
          [length1] n = ReduceL2<axes = [2, 3], keepdims = 1>(r)
          [div1] d = Div(r, n)
          [conv1] out = Conv(d, w1)
        }""",
    "where no root is taken, the second is not named after the sum": """
        (float[1,32,8,8] x) => (float[1,16,8,8] out) <float[16,32,1,1] w1 = {1}> {
          [relu1] r = Relu(x)
          [squares1] n = ReduceSumSquare<axes = [2, 3], keepdims = 1>(r)
          [div1] d = Div(r, n)
          [conv1] out = Conv(d, w1)
        }""",
    "a norm of which one token is taken is two kernels": """
        (float[1,16,64] x) => (float[1,64] out) <float[64] g = {1}> {
          first = Constant<value = int64 {0}>()
          [relu1] r = Relu(x)
          [norm1] n = LayerNormalization(r, g, g)
          [token1] t = Gather<axis = 1>(n, first)
          [tanh1] out = Tanh(t)
        }""",
}


def text_of(shown: str) -> str:
    return f'<ir_version: 9, opset_import: ["": 17]> g {GRAPHS[shown]}'


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=17)
test_group_norms_with_a_pair_inside = builder_test(
    {
        "a factor with a pair is no part of the GroupNorm": ("m->scale1", GROUP_NORM),
        "a pair behind its norm leaves no GroupNorm": ("n->map1", GROUP_NORM),
    },
    opset=17,
)


@pytest.mark.builder
def test_an_int8_conv_without_a_bias_is_scaled_for_the_norm(tmp_path: Path, builder: ModuleType):
    shown = "an InstanceNorm reads and writes maps that are stored otherwise"
    model = model_of(text_of(shown), tmp_path)
    pairs = placement_of(model.graph, ("x->conv1", "w1->conv1", "r->conv2", "w1->conv2"))
    check_built(model, pairs, builder)


@pytest.mark.parametrize("shown", GRAPHS)
def test_every_layer_has_a_time(shown: str, tmp_path: Path):
    model = model_of(text_of(shown), tmp_path)
    predictor = make_predictor(model.graph, load_pack("tensorrt-rtx"), TARGET, "float16")
    prediction = predictor.predict(EMPTY)
    plan = Roofline(model.graph, load_gpu("rtx-4090"), load_layer_classes()).estimate(prediction)
    assert plan.layers
    assert all(layer.time_us and layer.time_us > 0 for layer in plan.layers)
