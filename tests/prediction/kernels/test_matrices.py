"""Products of several batches: what NVIDIA's builder makes of them is predicted."""

from pathlib import Path
from types import ModuleType

import pytest

from tests.prediction.kernels.building import (
    builder_test,
    check_built,
    model_of,
    placement_of,
    predicted,
)

WEIGHTS = """<float[64,64] w1 = {1}, float[64,64] w2 = {1}, float[64,64] w3 = {1},
     float[64] b = {1}, float[64] s = {1}>"""
BATCHES = "(float[4,16,64] x) => (float[4,16,64] out) " + WEIGHTS
ROWS = """(float[1,4,16,64] x) => (float[1,4,16,64] out) WEIGHTS {
      [product1] p = MatMul(x, w1)
      [add1] y = Add(p, b)
      RESIDUAL
      [product2] o = MatMul(r, w2)
      [sum2] a = Add(o, LAST)
      [product4] out = MatMul(a, w1)
    }""".replace("WEIGHTS", WEIGHTS)
MAP = """(float[1,64,32] x) => (float[1,32,8,8] out)
    <float[32,32] w1 = {1}, float[32,32] w2 = {1}, float[32] b = {1}, float[32,1,3,3] w3 = {1}>"""
BLOCK = """
      [product1] p = MatMul(x, w1)
      [add1] y = Add(p, b)
      [product2] q = MatMul(y, w2)
      [add2] z = Add(q, b)
"""
AS_MAP = """
      size = Constant<value = int64[4] {1, 32, 8, 8}>()
      [product1] y = MatMul(x, w1)
      [product2] q = MatMul(y, w2)
      [add1] z = Add(q, b)
      LAST
      [turn1] t = Transpose<perm = [0, 2, 1]>(r)
      [shape1] m = Reshape(t, size)
      [conv1] out = Conv<group = 32, pads = [1, 1, 1, 1]>(m, w3)
"""
GRAPHS = {
    "rows of another matrix are added by the product": BATCHES
    + "{"
    + BLOCK
    + """[sum1] r = Add(y, z)
      [norm1] n = LayerNormalization<axis = -1>(r, s, b)
      [product3] k = MatMul(n, w3)
      [sum2] v = Add(k, r)
      [product4] out = MatMul(v, w1)
    }""",
    "batches that were given are added by another kernel, which makes a matrix of the sum": BATCHES
    + """{
      [product1] p = MatMul(x, w1)
      [sum1] r = Add(x, p)
      [product2] q = MatMul(r, w2)
      [sum2] v = Add(r, q)
      [product3] out = MatMul(v, w3)
    }""",
    "rows of a map that rows of another product were added to are a matrix": ROWS.replace(
        "RESIDUAL", "[product3] q = MatMul(x, w3) [add3] z = Add(q, s) [sum1] r = Add(z, y)"
    ).replace("LAST", "z"),
    "those that a map was added to are a map": ROWS.replace(
        "RESIDUAL", "[relu1] z = Relu(x) [sum1] r = Add(z, y)"
    ).replace("LAST", "r"),
    "what a norm makes is a matrix": BATCHES
    + """{
      [norm1] n = LayerNormalization<axis = -1>(x, s, b)
      [product1] p = MatMul(n, w1)
      [add1] a = Add(p, b)
      [sum1] r = Add(n, a)
      [product2] out = MatMul(r, w2)
    }""",
    "two dimensions before the rows are batches, of 1 too": BATCHES.replace("[4,16", "[4,1,16")
    + "{"
    + BLOCK
    + """[sum1] r = Add(y, z)
      [product3] out = MatMul(r, w3)
    }""",
    "so are two of 1": BATCHES.replace("[4,16", "[1,1,16")
    + "{"
    + BLOCK
    + """[product3] out = MatMul(z, w3)
    }""",
    "but a first one of 1 is none": BATCHES.replace("[4,16", "[1,4,16")
    + "{"
    + BLOCK
    + """[sum1] r = Add(y, z)
      [product3] out = MatMul(r, w3)
    }""",
    "an activation needs no bias before it": BATCHES
    + """{
      [product1] p = MatMul(x, w1)
      [relu1] a = LeakyRelu(p)
      [product2] q = MatMul(a, w2)
      [sum1] r = Add(a, q)
      [product3] out = MatMul(r, w3)
    }""",
    "a Tanh is computed of the batches": BATCHES
    + "{"
    + BLOCK
    + """[sum1] r = Add(y, z)
      [tanh1] h = Tanh(r)
      [product3] out = MatMul(h, w3)
    }""",
    "what leaves as batches is made of the matrix by the cast": BATCHES
    + """{
      [norm1] n = LayerNormalization<axis = -1>(x, s, b)
      [product1] p = MatMul(n, w1)
      [add1] out = Add(p, b)
    }""",
    "what is only transposed takes the bias along": MAP
    + "{"
    + AS_MAP.replace("LAST", "[relu1] r = Relu(z)")
    + "}",
    "rows that others are added to are transposed for nothing": MAP
    + "{"
    + AS_MAP.replace("LAST", "[sum1] r = Add(z, y)")
    + "}",
}


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=18)


VIEW = """
    (float[1,16,32] x) => (float[1,2,8,16] out)
    <float[32,32] w1 = {1}, float[32,16] w2 = {1}> {
      parts = Constant<value = int64[4] {1, 2, 8, 32}>()
      [product1] p = MatMul(x, w1)
      [view1] v = Reshape(p, parts)
      [product2] out = MatMul(v, w2)
    }"""
QUANTIZED_VIEW = ("v->product2", "w2->product2")


def test_a_view_of_what_a_float_product_writes_is_quantized_by_a_kernel_of_its_own(tmp_path: Path):
    graph = model_of(f'<ir_version: 9, opset_import: ["": 18]> g {VIEW}', tmp_path).graph
    plan = predicted(graph, placement_of(graph, QUANTIZED_VIEW))
    assert [layer.output_types for layer in plan.of_kind("quantize")] == [("int8",)]


@pytest.mark.builder
def test_nvidias_builder_quantizes_the_view_so(tmp_path: Path, builder: ModuleType):
    model = model_of(f'<ir_version: 9, opset_import: ["": 18]> g {VIEW}', tmp_path)
    check_built(model, placement_of(model.graph, QUANTIZED_VIEW), builder)


SHIFTED = """
    (float[1,4,16,16] x) => (float[1,4,OUT] out)
    <float[1,4,16,COLUMNS] w = {1}, float[1,4,1,16] b = {1}> {
      pads = Constant<value = int64[8] {0, 0, 0, 1, 0, 0, 0, 0}>()
      rows = Constant<value = int64[4] {1, 4, -1, 16}>()
      one = Constant<value = int64[1] {1}>()
      two = Constant<value = int64[1] {2}>()
      end = Constant<value = int64[1] {9999}>()
      [bias] q = Add(x, b)
      [product] m = MatMul(q, w)
      BEHIND
    }"""
SHIFT = """[pad] p = Pad(m, pads)
      [view] r = Reshape(p, rows)
      [cut] l = Slice(r, one, end, two)
      [behind] out = Tanh(l)"""
test_weights_of_several_heads = builder_test(
    {
        "of an odd number of columns, before what computes": (
            SHIFTED.replace("OUT", "16,31")
            .replace("COLUMNS", "31")
            .replace("BEHIND", "[behind] out = Tanh(m)")
        ),
        "of an odd number of columns, before a shift": (
            SHIFTED.replace("OUT", "31,16").replace("COLUMNS", "31").replace("BEHIND", SHIFT)
        ),
    },
    17,
)
