"""Einsums of two tensors, which are products, as NVIDIA's builder makes them."""

from pathlib import Path

import pytest

from placer.graph import Graph
from placer.prediction.kernels.einsums import Equation, with_products
from placer.quantization import EMPTY
from tests.prediction.kernels.building import builder_test, model_of, predicted, text_of

HEADS = """
    (float[1,16,64] x) => (float[1,16,64] out)
    <float[64,4,16] wq = {1}, float[64,4,16] wk = {1}, float[64,4,16] wv = {1},
     float[4,16] b = {1}, float[4,16,64] wo = {1}, float[64] c = {1}> {
      scale = Constant<value = float {0.25}>()
      [query] q0 = Einsum<equation = "abc,cde->abde">(x, wq)
      [bias1] q = Add(q0, b)
      [key] k0 = Einsum<equation = "abc,cde->abde">(x, wk)
      [bias2] k = Add(k0, b)
      [value] v0 = Einsum<equation = "abc,cde->abde">(x, wv)
      [bias3] v = Add(v0, b)
      [scaled] s = Mul(q, scale)
      [scores] e = Einsum<equation = "aecd,abcd->acbe">(k, s)
      [softmax] p = Softmax(e)
      [mix] o = Einsum<equation = "acbe,aecd->abcd">(p, v)
      [project] y = Einsum<equation = "abcd,cde->abe">(o, wo)
      [bias4] out = Add(y, c)
    }"""
POSITIONS = """
    (float[2,8,8,32] x) => (float[2,8,8,6] out) <float[8,6,32] w = {1}> {
      [before] r = Relu(x)
      [product] out = Einsum<equation = "bhwc,hkc->bhwk">(r, w)
    }"""
MASKS = """
    (float[1,10,32] x, float[1,32,16,16] z) => (float[1,10,16,16] out)
    <float[32,32,1,1] w = {1}> {
      [before] q = Relu(x)
      [conv] m = Conv(z, w)
      [product] p = Einsum<equation = "bqc,bchw->bqhw">(q, m)
      [behind] out = Sigmoid(p)
    }"""
OUTER = """
    (float[10] x, float[8] z) => (float[10,8] out) {
      [before] r = Relu(x)
      [product] p = Einsum<equation = "i,j->ij">(r, z)
      [behind] out = Sin(p)
    }"""
test_einsums = builder_test(
    {
        "an attention as Keras writes it": HEADS,
        "positions of rows and columns": POSITIONS,
        "masks of a map": MASKS,
        "an outer product is computed element by element": OUTER,
    },
    17,
)


def graph_of(graph: str, folder: Path) -> Graph:
    return model_of(text_of(graph, 17), folder).graph


def test_einsums_of_one_tensor_are_one_product(tmp_path: Path):
    layers = predicted(graph_of(HEADS, tmp_path), EMPTY).layers
    assert ("key", "query", "value") in [tuple(sorted(layer.nodes)) for layer in layers]
    assert [layer.nodes for layer in layers if layer.kind == "reformat"] == [(), ()]


def test_a_product_reads_and_writes_what_the_equation_says(tmp_path: Path):
    made = with_products(graph_of(POSITIONS, tmp_path))
    product = made.graph.by_name["product"]
    shapes = [made.graph.type_of(tensor).shape for tensor in (*product.inputs, *product.outputs)]
    assert product.op == "MatMul"
    assert shapes == [(8, 16, 32), (8, 32, 6), (8, 16, 6)]
    assert [node.op for node in made.graph.nodes] == [
        "Relu",
        "Transpose",
        "Reshape",
        "MatMul",
        "Reshape",
        "Transpose",
    ]
    assert made.graph.type_of("out").shape == (2, 8, 8, 6)


@pytest.mark.parametrize(
    "equation", ["ii,ij->j", "ij->i", "i,j->ij", "...a,ab->...b", "ab,bc", "abz,bc->ac"]
)
def test_what_is_no_product_stays(equation: str):
    assert Equation.of(equation) is None
