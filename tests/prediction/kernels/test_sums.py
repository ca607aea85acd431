"""Sums over maps and long rows: what NVIDIA's builder makes of them is predicted."""

from pathlib import Path
from types import ModuleType

import pytest

from tests.prediction.kernels.building import builder_test, check_built, model_of, placement_of

GATE = """
    (float[1,16,SIDE,SIDE] x) => (float[1,16,SIDE,SIDE] out)
    <float[48,16,3,3] w1 = {1}, float[48] b1 = {1}, float[48,48,1,1] w2 = {1},
     float[16,48,1,1] w3 = {1}> {
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)
      [mean1] m = GlobalAveragePool(c)
      [conv2] g = Conv(m, w2)
      [mul1] y = Mul(c, g)
      [conv3] out = Conv(y, w3)
    }"""
NORM = """
    (float[1,16,8,8] x) => (float[1,16,8,8] out)
    <float[24,16,1,1] w1 = {1}, float[16,24,1,1] w2 = {1}> {
      [conv1] c = Conv(x, w1)
      [mean1] m = ReduceMean<axes = [1]>(c)
      [sub1] d = Sub(c, m)
      [square1] s = Mul(d, d)
      [mean2] v = ReduceMean<axes = [1]>(s)
      [root1] r = Sqrt(v)
      [div1] y = Div(d, r)
      [conv2] out = Conv(y, w2)
    }"""
SIGNAL = """
    (float[1,16,100] x) => (float[1,16,100] out)
    <float[48,16,3] w1 = {1}, float[16,48,3] w2 = {1}> {
      tiny = Constant<value = float {0.00001}>()
      [conv1] c = Conv<pads = [1, 1]>(x, w1)
      [mean1] m = ReduceMean<axes = [1, 2]>(c)
      [sub1] d = Sub(c, m)
      [square1] s = Mul(d, d)
      [mean2] v = ReduceMean<axes = [1, 2]>(s)
      [add1] e = Add(v, tiny)
      [root1] r = Sqrt(e)
      [div1] y = Div(d, r)
      [conv2] out = Conv<pads = [1, 1]>(y, w2)
    }"""
GRAPHS = {
    "a norm in parts of which one token is taken is two kernels": """
        (float[1,16,64] x) => (float[1,64] out) <float[64] g = {1}> {
          first = Constant<value = int64 {0}>()
          tiny = Constant<value = float {0.00001}>()
          [relu1] r = Relu(x)
          [mean1] m = ReduceMean<axes = [-1]>(r)
          [sub1] d = Sub(r, m)
          [square1] s = Mul(d, d)
          [mean2] v = ReduceMean<axes = [-1]>(s)
          [add1] e = Add(v, tiny)
          [root1] q = Sqrt(e)
          [div1] y = Div(d, q)
          [mul1] z = Mul(y, g)
          [token1] t = Gather<axis = 1>(z, first)
          [tanh1] out = Tanh(t)
        }""",
    "what a Softmax makes is transposed by a kernel of its own": """
        (float[1,4,16,16] x) => (float[1,4,16,16] out) <float[16,16] w1 = {1}> {
          [softmax1] s = Softmax<axis = -1>(x)
          [turn1] t = Transpose<perm = [0, 1, 3, 2]>(s)
          [tanh1] a = Tanh(t)
          [product1] out = MatMul(a, w1)
        }""",
    "a norm over all of a signal ends its kernel, for Convs read channels stored last": SIGNAL,
    "a product with a single column is generated, with the bias of the one before": """
        (float[32,16] x) => (float[32,1] out)
        <float[16,64] w1 = {1}, float[64] b1 = {1}, float[64,1] w2 = {1}, float[1] b2 = {1}> {
          [product1] p = Gemm(x, w1, b1)
          [relu1] r = Relu(p)
          [product2] q = Gemm(r, w2, b2)
          [sigmoid1] out = Sigmoid(q)
        }""",
    "a small map is turned in the kernel that takes its mean": GATE.replace("SIDE", "19"),
    "a large one by a kernel of its own": GATE.replace("SIDE", "20"),
    "two sums of a small map are one kernel, which turns it once": """
        (float[1,16,16,16] x) => (float[1,8,1,1] out)
        <float[24,16,3,3] w1 = {1}, float[8,24,1,1] w2 = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
          [mean1] m = GlobalAveragePool(c)
          [max1] n = GlobalMaxPool(c)
          [conv2] p = Conv(m, w2)
          [conv3] q = Conv(n, w2)
          [add1] out = Add(p, q)
        }""",
    "a norm over the channels of a map is one kernel": NORM,
    "a sum of 16384 elements is shared by blocks of threads and ends its kernel": """
        (float[1,16,1024] x) => (float[1,16,1024] out) {
          [relu1] r = Relu(x)
          [mean1] m = ReduceMean<axes = [1, 2]>(r)
          [sub1] out = Sub(r, m)
        }""",
    "one of 33 such sums is not": """
        (float[1,33,16384] x) => (float[1,33,16384] out) {
          [relu1] r = Relu(x)
          [mean1] m = ReduceMean<axes = [2]>(r)
          [sub1] out = Sub(r, m)
        }""",
    "a LayerNormalization of long rows is one kernel": """
        (float[1,40,13000] x) => (float[1,40,13000] out)
        <float[13000] gain = {0.5}, float[13000] shift = {0.1}> {
          [relu1] r = Relu(x)
          [norm1] out = LayerNormalization(r, gain, shift)
        }""",
    "a kernel writes one part of what is joined in place": """
        (float[1,16,16,16] x) => (float[1,24,16,16] out)
        <float[24,16,3,3] w1 = {1}, float[24,24,1,1] w2 = {1}, float[1,2,7,7] w3 = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
          [pool1] p = GlobalAveragePool(c)
          [conv2] g = Conv(p, w2)
          [mul1] y = Mul(c, g)
          [mean1] m = ReduceMean<axes = [1]>(y)
          [max1] n = ReduceMax<axes = [1]>(y)
          [join1] j = Concat<axis = 1>(m, n)
          [conv3] s = Conv<pads = [3, 3, 3, 3]>(j, w3)
          [mul2] out = Mul(y, s)
        }""",
    "what reads a maximum over one dimension of a map takes the dimension away": """
        (float[2,16,8,64] x) => (float[2,64,32] out)
        <float[32,16,1,1] w = {1}, float[32] b = {1}> {
          [conv1] c = Conv(x, w, b)
          [max1] m = ReduceMax<axes = [2], keepdims = 0>(c)
          [turn1] t = Transpose<perm = [0, 2, 1]>(m)
          [gate1] out = Sigmoid(t)
        }""",
    "a product ends with a Relu of heads, and two others of its rows are another kernel": """
        (float[1,64,32] x) => (float[1,64,64] out, float[1,64,4,8] heads)
        <float[32,32] w1 = {1}, float[32,64] w2 = {1}, float[32,64] w3 = {1}> {
          shape = Constant<value = int64[4] {1, 64, 4, 8}>()
          [gate1] r = Sigmoid(x)
          [product1] p = MatMul(r, w1)
          [view1] h = Reshape(p, shape)
          [relu1] q = Relu(h)
          [tanh1] heads = Tanh(q)
          [product2] u = MatMul(r, w2)
          [product3] v = MatMul(r, w3)
          [product4] out = MatMul(u, v)
        }""",
}


def text_of(graph: str) -> str:
    return f'<ir_version: 9, opset_import: ["": 17]> g {graph}'


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=17)


@pytest.mark.builder
def test_what_is_read_in_float_too_leaves_in_float(tmp_path: Path, builder: ModuleType):
    """The residual's pair is in the kernel of the Add, since the norm reads what is not rounded."""
    residual = NORM.replace(
        "[conv2] out = Conv(y, w2)",
        "[conv2] e = Conv(y, w2)\n[conv3] f = Conv(e, w1)\n[add1] out = Add(f, c)",
    )
    model = model_of(
        text_of(residual.replace("float[1,16,8,8] out", "float[1,24,8,8] out")), tmp_path
    )
    pairs = placement_of(model.graph, ("x->conv1", "w1->conv1", "y->conv2", "w2->conv2", "c->add1"))
    check_built(model, pairs, builder)
