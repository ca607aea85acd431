"""What PyTorch's exporters write: what NVIDIA's builder makes of it is predicted."""

from pathlib import Path
from types import ModuleType

import pytest

from tests.prediction.kernels.building import builder_test, check_built, model_of, placement_of

CUT = """
    (float[1,256,8,8] x) => (float[1,CHANNELS,8,8] out)
    <float[CHANNELS,256,1,1] w1 = {1}, float[CHANNELS] b1 = {1}, float[HALF,HALF,3,3] w2 = {1}> {
      [conv1] c = Conv(x, w1, b1)
      [relu1] r = Relu(c)
      [split1] p, q = Split<axis = 1, num_outputs = 2>(r)
      [conv2] s = Conv<pads = [1, 1, 1, 1]>(p, w2)
      [join1] out = Concat<axis = 1>(s, q)
    }"""
JOINT = """
    (float[1,64,32] x) => (float[1,64,32] out)
    <float[32,96] w1 = {1}, float[96] b1 = {1}, float[32,32] w2 = {1}> {
      parts = Constant<value = int64[5] {1, 64, 3, 2, 16}>()
      first = Constant<value = int64[1] {0}>()
      joined = Constant<value = int64[3] {1, 64, 32}>()
      flat = Constant<value = int64[3] {2, 64, 16}>()
      heads = Constant<value = int64[4] {1, 2, 16, 64}>()
      scale = Constant<value = float {0.25}>()
      [product1] p = MatMul(x, w1)
      [add1] a = Add(p, b1)
      [shape1] s = Reshape(a, parts)
      [turn1] t = Transpose<perm = [2, 0, 3, 1, 4]>(s)
      [split1] q1, k1, v1 = Split<axis = 0, num_outputs = 3>(t)
      [squeeze1] q = Squeeze(q1, first)
      [squeeze2] k = Squeeze(k1, first)
      [squeeze3] v = Squeeze(v1, first)
      KEYS
      [scores1] d = MatMul(q, kt)
      [scale1] e = Mul(d, scale)
      [softmax1] f = Softmax<axis = -1>(e)
      [mix1] g = MatMul(f, v)
      [turn3] h = Transpose<perm = [0, 2, 1, 3]>(g)
      [shape4] i = Reshape(h, joined)
      [product2] out = MatMul(i, w2)
    }"""
FLAT_KEYS = """[shape2] kf = Reshape(k, flat)
      [turn2] kr = Transpose<perm = [0, 2, 1]>(kf)
      [shape3] ks = Reshape(kr, heads)
      [scale2] kt = Mul(ks, scale)"""
PLAIN_KEYS = "[turn2] kt = Transpose<perm = [0, 1, 3, 2]>(k)"
TOKENS = """
    (float[1,64,32] x) => (float[1,32,4,4] out)
    <float[32,32] w1 = {1}, float[32] b1 = {1}, float[32] gain = {0.5}, float[32] shift = {0.1},
     float[32,32,2,2] w2 = {1}> {
      rows = Constant<value = int64[4] {1, 8, 8, 32}>()
      [product1] p = MatMul(x, w1)
      [add1] a = Add(p, b1)
      LAST
      [shape1] s = Reshape(n, rows)
      [turn1] t = Transpose<perm = [0, 3, 1, 2]>(s)
      [conv1] out = Conv<strides = [2, 2]>(t, w2)
    }"""
NORM = "[norm1] n = LayerNormalization(a, gain, shift)"
GRAPHS = {
    "a 1x1 Conv of 256 channels writes a matrix, which one kernel cuts": CUT.replace(
        "CHANNELS", "256"
    ).replace("HALF", "128"),
    "of one of fewer channels each part is cut by itself": CUT.replace("CHANNELS", "224").replace(
        "HALF", "112"
    ),
    "keys that are reshaped and scaled are moved with queries and values": JOINT.replace(
        "KEYS", FLAT_KEYS
    ),
    "keys that are only reshaped by kernels of their own, as queries and values": JOINT.replace(
        "KEYS", FLAT_KEYS.replace("ks = ", "kt = ").split("\n      [scale2]")[0]
    ),
    "others by kernels of their own, which add the bias": JOINT.replace("KEYS", PLAIN_KEYS),
    "a norm's rows are read as the map that they become": TOKENS.replace("LAST", NORM),
    "those of a product are turned by the kernel that adds its bias": TOKENS.replace(
        "LAST", "[tanh1] n = Tanh(a)"
    ),
    "a map that is normed twice is scaled with the second norm": """
        (float[1,3,32,32] x) => (float[1,64,32] out)
        <float[32,3,4,4] w1 = {1}, float[32] gain = {0.5}, float[32] shift = {0.1},
         float[32,32] w2 = {1}> {
          tokens = Constant<value = int64[3] {1, 64, 32}>()
          [conv1] c = Conv<strides = [4, 4]>(x, w1)
          [turn1] t = Transpose<perm = [0, 2, 3, 1]>(c)
          [norm1] n = LayerNormalization(t, gain, shift)
          [shape1] s = Reshape(n, tokens)
          [norm2] m = LayerNormalization(s, gain, shift)
          [product1] p = MatMul(m, w2)
          [add1] out = Add(p, s)
        }""",
    "two heads of a single row are one product": """
        (float[1,16,8,8] x) => (float[1,10] one, float[1,4] two)
        <float[24,16,3,3] w1 = {1}, float[10,24] w2 = {1}, float[10] b2 = {1},
         float[4,24] w3 = {1}, float[4] b3 = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
          [relu1] r = Relu(c)
          [mean1] m = GlobalAveragePool(r)
          [flat1] f = Flatten(m)
          [head1] one = Gemm<transB = 1>(f, w2, b2)
          [head2] two = Gemm<transB = 1>(f, w3, b3)
        }""",
    "channels of a Conv of groups are shuffled in the kernel of its bias": """
        (float[1,64,8,8] x) => (float[1,64,8,8] out)
        <float[64,16,1,1] w1 = {1}, float[64] b1 = {1}, float[64,64,3,3] w2 = {1}> {
          apart = Constant<value = int64[5] {1, 4, 16, 8, 8}>()
          joined = Constant<value = int64[4] {1, 64, 8, 8}>()
          [conv1] c = Conv<group = 4>(x, w1, b1)
          [relu1] r = Relu(c)
          [shape1] s = Reshape(r, apart)
          [turn1] t = Transpose<perm = [0, 2, 1, 3, 4]>(s)
          [shape2] u = Reshape(t, joined)
          [conv2] out = Conv<pads = [1, 1, 1, 1]>(u, w2)
        }""",
}


def text_of(graph: str) -> str:
    return f'<ir_version: 9, opset_import: ["": 18]> g {graph}'


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=18)


@pytest.mark.builder
def test_the_weight_of_a_joint_product_is_dequantized_by_a_kernel(
    tmp_path: Path, builder: ModuleType
):
    model = model_of(text_of(JOINT.replace("KEYS", PLAIN_KEYS)), tmp_path)
    pairs = placement_of(model.graph, ("x->product1", "w1->product1"))
    check_built(model, pairs, builder)
