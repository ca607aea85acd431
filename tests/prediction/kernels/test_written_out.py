"""Sums of few elements, products of vectors: what NVIDIA's builder makes of them is predicted."""

from pathlib import Path

import pytest

from placer.quantization import EMPTY
from tests.prediction.kernels.building import builder_test, model_of, predicted

SUM = """
    (float[1,LENGTH,16,16] x) => (float[1,1,16,16] out) {
      first = Constant<value = int64[1] {1}>()
      [relu1] r = Relu(x)
      [sum1] s = OPERATOR(r, first)
      [tanh1] out = Tanh(s)
    }"""
MIX = """
    (float[1,ROWS,LENGTH] x, float[1,LENGTH,COLUMNS] y) => (float[1,ROWS,COLUMNS] out) {
      [relu1] r = Relu(x)
      [softmax1] s = Softmax<axis = -1>(r)
      [mix1] m = MatMul(s, y)
      [tanh1] out = Tanh(m)
    }"""


def mix(rows: int, length: int, columns: int) -> str:
    sizes = {"ROWS": rows, "LENGTH": length, "COLUMNS": columns}
    text = MIX
    for name, size in sizes.items():
        text = text.replace(name, str(size))
    return text


def with_vector(first: str, second: str, made: str) -> str:
    return f"""
    (float{first} x, float{second} y) => (float{made} out) {{
      [relu1] r = Relu(x)
      [mix1] m = MatMul(r, y)
      [tanh1] out = Tanh(m)
    }}"""


VECTORS = {
    "a vector of one dimension times a matrix": with_vector("[64]", "[64,32]", "[32]"),
    "a matrix times a vector of one dimension": with_vector("[16,64]", "[64]", "[16]"),
    "two vectors": with_vector("[64]", "[64]", ""),
    "a vector of four elements is written out": with_vector("[4]", "[4,16]", "[16]"),
    "matrices times one vector are one": with_vector("[4,16,64]", "[64]", "[4,16]"),
    "so they are times one column": with_vector("[2,3,16,64]", "[64,1]", "[2,3,16,1]"),
    "weights may be the vector": """
    (float[16,64] x) => (float[16] out) <float[64] w = {1}> {
      [relu1] r = Relu(x)
      [mix1] m = MatMul(r, w)
      [tanh1] out = Tanh(m)
    }""",
}
TWO_CONVS = """
    (float[1,32,8,8] x) => (float[1,32,8,8] out)
    <float[96,32,1,1] w1 = {1}, float[96,32,1,1] w2 = {1}, float[32,96,1,1] w3 = {1}> {
      [conv1] c = Conv(x, w1)
      [conv2] d = Conv(x, w2)
      [relu1] r = Relu(c)
      [both1] m = OPERATOR(d, r)
      [conv3] out = Conv(m, w3)
    }"""
BESIDE = """
    (float[1,32,8,8] x) => (OUTPUTS) <float[32,32,3,3] w = {1}, float[1,32,1,1] s = {2}> {
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w)
      [relu1] r = LeakyRelu(c)
      [tanh1] t = Tanh(r)
      [conv2] d = Conv<pads = [1, 1, 1, 1]>(r, w)
      LAST
      [conv3] out = Conv<pads = [1, 1, 1, 1]>(a, w)
    }"""


def beside(last: str, outputs: str = "float[1,32,8,8] out") -> str:
    return BESIDE.replace("LAST", last).replace("OUTPUTS", outputs)


GRAPHS = VECTORS | {
    "a third output is made by another kernel, with all that is computed of the Conv": beside(
        "[mul1] m = Mul(r, s) [add1] b = Add(d, t) [add2] a = Add(b, m)"
    ),
    "so it is where a mean of the second output is taken": beside(
        "[mean1] m = GlobalAveragePool(t) [add1] a = Add(d, m)"
    ),
    "and where the second output leaves": beside(
        "[relu2] a = Relu(d)", "float[1,32,8,8] out, float[1,32,8,8] t"
    ),
    "of what leaves itself nothing is computed beside": beside(
        "[add1] a = Add(d, t)", "float[1,32,8,8] out, float[1,32,8,8] r"
    ),
    "a Conv that adds constants is prepared, beside which nothing is computed": """
    (float[1,32,8,8] x) => (float[1,32,8,8] out)
    <float[32,32,3,3] w = {1}, float[1,32,8,8] places = {1}> {
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w)
      [add1] p = Add(c, places)
      [tanh1] t = Tanh(p)
      [conv2] d = Conv<pads = [1, 1, 1, 1]>(t, w)
      [add2] a = Add(d, p)
      [conv3] out = Conv<pads = [1, 1, 1, 1]>(a, w)
    }""",
    "four elements are written out": SUM.replace("LENGTH", "4").replace("OPERATOR", "ReduceMax"),
    "so are six that are only added": SUM.replace("LENGTH", "6").replace("OPERATOR", "ReduceSum"),
    "five that have a mean are not": SUM.replace("LENGTH", "5").replace("OPERATOR", "ReduceMean"),
    "a product of four columns and rows is written out, and the Softmax before it": mix(16, 4, 32),
    "a matrix times a vector is a sum": mix(64, 256, 1),
    "so is a vector times a matrix, which ends its kernel": mix(1, 256, 64),
    "what a written-out Softmax reads is there before": """
        (float[1,16,64] x) => (float[1,16,32] out)
        <float[64,4] w1 = {1}, float[4,32] w2 = {1}, float[32,32] w3 = {1}> {
          [product1] p = MatMul(x, w1)
          [softmax1] s = Softmax<axis = -1>(p)
          [product2] q = MatMul(s, w2)
          [relu1] r = Relu(q)
          [product3] out = MatMul(r, w3)
        }""",
    "the weights of two branches are written out, and the sum of both": """
        (float[1,16,8,8] x) => (float[1,16,8,8] out)
        <float[16,16,3,3] w1 = {1}, float[16,16,3,3] w2 = {1}> {
          first = Constant<value = int64[1] {1}>()
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
          [conv2] d = Conv<pads = [1, 1, 1, 1]>(c, w2)
          [view1] u = Unsqueeze(c, first)
          [view2] v = Unsqueeze(d, first)
          [join1] j = Concat<axis = 1>(u, v)
          [sum1] s = ReduceSum<keepdims = 0>(j, first)
          [conv3] out = Conv<pads = [1, 1, 1, 1]>(s, w1)
        }""",
    "a generated Conv computes what is made of its output alone": """
        (float[1,32,8,8] x) => (float[1,32,8,8] out)
        <float[32,32,3,3] w1 = {1}, float[32,32,3,3] w2 = {1}, float[32] s = {1}, float[32] b = {1},
         float[32] m = {1}, float[32] v = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
          [relu1] r = LeakyRelu(c)
          [norm1] n = BatchNormalization(r, s, b, m, v)
          [conv2] d = Conv<pads = [1, 1, 1, 1]>(r, w2)
          [add1] a = Add(d, n)
          [conv3] out = Conv<pads = [1, 1, 1, 1]>(a, w1)
        }""",
    "of two Convs that are multiplied the first one multiplies": TWO_CONVS.replace(
        "OPERATOR", "Mul"
    ),
    "so it is where they are divided": TWO_CONVS.replace("OPERATOR", "Div"),
    "and where the larger is taken": TWO_CONVS.replace("OPERATOR", "Max"),
    "a pool beside a Conv runs first, and the Conv adds to it": """
        (float[1,32,8,8] x) => (float[1,32,8,8] out) <float[32,32,3,3] w = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w)
          [conv2] d = Conv<pads = [1, 1, 1, 1]>(c, w)
          [pool1] p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(c)
          [add1] a = Add(d, p)
          [conv3] out = Conv<pads = [1, 1, 1, 1]>(a, w)
        }""",
    "a norm of one row is scaled where its map is made": """
        (float[1,64,8,8] x) => (float[1,10,1,1] out)
        <float[64,64,1,1] w1 = {1}, float[10,64,1,1] w2 = {1}, float[64] s = {1},
         float[64] b = {1}> {
          [conv1] c = Conv(x, w1)
          [mean1] m = GlobalAveragePool(c)
          [turn1] t = Transpose<perm = [0, 2, 3, 1]>(m)
          [norm1] n = LayerNormalization<axis = -1>(t, s, b)
          [turn2] u = Transpose<perm = [0, 3, 1, 2]>(n)
          [relu1] r = Relu(u)
          [conv2] out = Conv(r, w2)
        }""",
    "a response norm sums, takes the mean and scales in kernels of their own": """
        (float[1,32,8,8] x) => (float[1,32,8,8] out)
        <float[160,32,1,1] w1 = {1}, float[32,160,1,1] w2 = {1}, float[1,160,1,1] s = {1},
         float[1,160,1,1] b = {1}> {
          tiny = Constant<value = float {0.000001}>()
          places = Constant<value = int64[2] {2, 3}>()
          channels = Constant<value = int64[1] {1}>()
          [conv1] c = Conv(x, w1)
          [act1] a = HardSwish(c)
          [root1] g = ReduceL2(a, places)
          [mean1] m = ReduceMean(g, channels)
          [add1] e = Add(m, tiny)
          [div1] d = Div(g, e)
          [mul1] h = Mul(a, d)
          [mul2] i = Mul(s, h)
          [add2] j = Add(b, i)
          [add3] k = Add(a, j)
          [conv2] out = Conv(k, w2)
        }""",
}


@pytest.mark.parametrize("shown", VECTORS)
def test_no_kernel_shapes_a_vector_for_its_product(shown: str, tmp_path: Path):
    text = f'<ir_version: 9, opset_import: ["": 18]> g {VECTORS[shown]}'
    plan = predicted(model_of(text, tmp_path).graph, EMPTY)
    nodes = [name for layer in plan.layers for name in layer.nodes]
    assert sorted(nodes) == ["mix1", "relu1", "tanh1"]


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=18)
