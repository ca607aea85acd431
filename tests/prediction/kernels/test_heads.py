"""Joint queries, keys and values, and products of heads, as NVIDIA's builder makes them."""

from pathlib import Path

import pytest

from placer.quantization import EMPTY
from tests.prediction.kernels.building import (
    builder_test,
    model_of,
    placement_of,
    predicted,
)

JOINT = """
    (float[1,16,64] x) => (float[1,4,16,16] out)
    <float[64,192] w = {1}, float[192] b = {1}, float[1,1,16,16] c = {1}, float[4,1,1] h = {1}> {
      shape = Constant<value = int64[5] {1, 16, 3, 4, 16}>()
      zero = Constant<value = int64[1] {0}>()
      quarter = Constant<value = float {0.25}>()
      [product1] p = MatMul(x, w)
      [bias1] a = Add(p, b)
      [heads1] r = Reshape(a, shape)
      [turn1] t = Transpose<perm = [2, 0, 3, 1, 4]>(r)
      [parts] q0, k0, v0 = Split<axis = 0, num_outputs = 3>(t)
      [view1] q = Squeeze(q0, zero)
      [view2] k = Squeeze(k0, zero)
      [view3] v = Squeeze(v0, zero)
      BETWEEN
      [scores] s = MatMul(QUERIES, KEYS)
      [soft] m = Softmax<axis = -1>(s)
      [mix] out = MatMul(m, v)
    }"""


def joint(between: str, queries: str = "q", keys: str = "u") -> str:
    turned = "[turn2] u = Transpose<perm = [0, 1, 3, 2]>(k)\n" + between
    return JOINT.replace("BETWEEN", turned).replace("QUERIES", queries).replace("KEYS", keys)


ONE_HEAD = """
    (float[1,64,32] x) => (float[1,64,32] out) <float[32,32] w = {1}, float[32] b = {1}> {
      head = Constant<value = int64[4] {1, 64, 1, 32}>()
      rows = Constant<value = int64[3] {1, 64, 32}>()
      [product1] p1 = MatMul(x, w)
      [bias1] a1 = Add(p1, b)
      [head1] h1 = Reshape(a1, head)
      [turn1] q = Transpose<perm = [0, 2, 1, 3]>(h1)
      [product2] p2 = MatMul(x, w)
      [bias2] a2 = Add(p2, b)
      [head2] h2 = Reshape(a2, head)
      [turn2] k = Transpose<perm = [0, 2, 3, 1]>(h2)
      [scores] s = MatMul(q, k)
      [soft] m = Softmax<axis = -1>(s)
      [mix] o = MatMul(m, q)
      [turn3] t = Transpose<perm = [0, 2, 1, 3]>(o)
      [rows1] r = Reshape(t, rows)
      [product3] out = MatMul(r, w)
    }"""


WINDOWS = """
    (float[1,4,16,64] x) => (float[1,4,4,16,16] out) <float[64,192] w = {1}, float[192] b = {1}> {
      shape = Constant<value = int64[6] {1, 4, 16, 3, 4, 16}>()
      zero = Constant<value = int64[1] {0}>()
      quarter = Constant<value = float {0.25}>()
      [product1] p = MatMul(x, w)
      [bias1] a = Add(p, b)
      [heads1] r = Reshape(a, shape)
      [turn1] t = Transpose<perm = [3, 0, 4, 1, 2, 5]>(r)
      [parts] q0, k0, v0 = Split<axis = 0, num_outputs = 3>(t)
      [view1] q = Squeeze(q0, zero)
      [view2] k = Squeeze(k0, zero)
      [view3] v = Squeeze(v0, zero)
      [mul1] qs = Mul(q, quarter)
      [turn2] u = Transpose<perm = [0, 1, 2, 4, 3]>(k)
      [mul2] ks = Mul(u, quarter)
      [scores] s = MatMul(qs, ks)
      [soft] m = Softmax<axis = -1>(s)
      [mix] out = MatMul(m, v)
    }"""


def heads(body: str, rows: str = "[1,4,16,16]", columns: str = "[1,4,16,16]") -> str:
    return f"""
    (float{rows} x, float{columns} y) => (float{rows} out)
    <float[16,16] w = {{1}}, float[16] g = {{1}}> {{
      last = Constant<value = int64[1] {{-1}}>()
      quarter = Constant<value = float {{0.25}}>()
      [relu1] q = Relu(x)
      [relu2] k = Relu(y)
      {body}
    }}"""


GRAPHS = {
    "queries, keys and values have a kernel each, which adds the bias": joint(""),
    "so they have if queries or keys are scaled right before the product": joint(
        "[mul1] qs = Mul(q, h)\n[mul2] ks = Mul(u, h)", "qs", "ks"
    ),
    "if anything else is computed of one, all are cut out in one kernel": joint(
        "[add1] qs = Add(q, c)", "qs"
    ),
    "and if one is divided": joint("[div1] qs = Div(q, quarter)", "qs"),
    "and if there are heads of several windows": WINDOWS,
    "columns that are cut out as they are may be read by anything": """
        (float[1,16,32] x) => (float[1,16,32] out) <float[32,64] w = {1}, float[64] b = {1}> {
          [relu1] r = Relu(x)
          [product1] p = MatMul(r, w)
          [bias1] y = Add(p, b)
          [parts] a, c = Split<axis = 2, num_outputs = 2>(y)
          [gate1] s = Sigmoid(c)
          [mul1] out = Mul(a, s)
        }""",
    "columns that are reshaped may not": """
        (float[1,16,32] x) => (float[1,16,32] out) <float[32,64] w = {1}, float[64] b = {1}> {
          shape = Constant<value = int64[4] {1, 16, 2, 32}>()
          two = Constant<value = int64[1] {2}>()
          [product1] p = MatMul(x, w)
          [bias1] y = Add(p, b)
          [shape1] r = Reshape(y, shape)
          [parts] d, e = Split<axis = 2, num_outputs = 2>(r)
          [view1] a = Squeeze(d, two)
          [view2] c = Squeeze(e, two)
          [gate1] s = Sigmoid(c)
          [mul1] out = Mul(a, s)
        }""",
    "scores that weight columns are no attention": heads(
        "[product1] s = MatMul(q, k)\n[soft] m = Softmax<axis = -1>(s)\n[mix] out = MatMul(k, m)"
    ),
    "products of a single head of a single sample are single matrices, and no attention": heads(
        "[turn1] t = Transpose<perm = [0, 1, 3, 2]>(k)\n[scores] p = MatMul(q, t)\n"
        "[mul1] s = Mul(p, quarter)\n[soft] m = Softmax<axis = -1>(s)\n[mix] out = MatMul(m, k)",
        "[1,1,64,16]",
        "[1,1,32,16]",
    ),
    "turning a single head moves nothing": ONE_HEAD,
    "of several samples they are one": heads(
        "[scores] p = MatMul(q, k)\n[soft] m = Softmax<axis = -1>(p)\n[mix] out = MatMul(m, k)",
        "[2,1,16,16]",
        "[2,1,16,16]",
    ),
    "a product of heads does Relu": heads(
        "[product1] s = MatMul(q, k)\n[relu3] r = Relu(s)\n[product2] out = MatMul(r, k)"
    ),
    "and nothing else": heads(
        "[product1] s = MatMul(q, k)\n[add1] a = Add(s, q)\n[product2] out = MatMul(a, k)"
    ),
    "a product of single matrices does more": heads(
        "[product1] s = MatMul(q, k)\n[tanh1] a = Tanh(s)\n[product2] out = MatMul(a, k)",
        "[4,16,16]",
        "[4,16,16]",
    ),
    "but not if its second operand is of fewer batches": heads(
        "[product1] s = MatMul(q, k)\n[tanh1] out = Tanh(s)", "[4,16,16]", "[1,16,16]"
    ),
    "rows that are normed are turned for a product of heads by another kernel": heads(
        "[norm1] n = LayerNormalization<axis = -1>(q, g, g)\n"
        "[turn1] t = Transpose<perm = [0, 1, 3, 2]>(n)\n[product1] out = MatMul(k, t)"
    ),
    "but not for one of single matrices": heads(
        "[norm1] n = LayerNormalization<axis = -1>(q, g, g)\n"
        "[turn1] t = Transpose<perm = [0, 2, 1]>(n)\n[product1] out = MatMul(k, t)",
        "[4,16,16]",
        "[4,16,16]",
    ),
    "queries that are normed are stored head by head by another kernel": heads(
        "[norm1] n = LayerNormalization<axis = -1>(q, g, g)\n[scores] p = MatMul(n, k)\n"
        "[soft] m = Softmax<axis = -1>(p)\n[mix] out = MatMul(m, k)"
    ),
    "and so are those that are divided by their length": heads(
        "[root1] l = ReduceL2(q, last)\n[clip1] c = Clip(l, quarter)\n[div1] n = Div(q, c)\n"
        "[scores] p = MatMul(n, k)\n[soft] m = Softmax<axis = -1>(p)\n[mix] out = MatMul(m, k)"
    ),
    "nodes that compute element by element are with what scales normed rows": heads(
        "[norm1] n = LayerNormalization<axis = -1>(q, g, g)\n[silu1] r = Sigmoid(n)\n"
        "[silu2] a = Mul(n, r)\n[scores] p = MatMul(a, k)\n[soft] m = Softmax<axis = -1>(p)\n"
        "[mix] o = MatMul(m, k)\n[add1] out = Add(o, a)"
    ),
    "and with what divides rows by their length": heads(
        "[root1] l = ReduceL2(q, last)\n[clip1] c = Clip(l, quarter)\n[div1] n = Div(q, c)\n"
        "[mul1] a = Mul(n, g)\n[turn1] t = Transpose<perm = [0, 1, 3, 2]>(a)\n"
        "[product1] out = MatMul(k, t)"
    ),
    "a residual that is added to normed rows is moved with them": heads(
        "[norm1] n = LayerNormalization<axis = -1>(q, g, g)\n[add1] a = Add(n, k)\n"
        "[turn1] t = Transpose<perm = [0, 2, 1]>(a)\n[tanh1] out = Tanh(t)",
        "[1,16,16]",
        "[1,16,16]",
    ),
    "but what is added to a product is in the product's kernel": heads(
        "[product1] p = MatMul(k, w)\n[norm1] n = LayerNormalization<axis = -1>(q, g, g)\n"
        "[add1] a = Add(p, n)\n[turn1] t = Transpose<perm = [0, 2, 1]>(a)\n[tanh1] out = Tanh(t)",
        "[1,16,16]",
        "[1,16,16]",
    ),
    "and what waits for another norm is in that one's": heads(
        "[norm1] n = LayerNormalization<axis = -1>(q, g, g)\n[add1] a = Add(n, k)\n"
        "[product1] p = MatMul(a, w)\n[norm2] o = LayerNormalization<axis = -1>(p, g, g)\n"
        "[add2] b = Add(a, o)\n[turn1] t = Transpose<perm = [0, 2, 1]>(b)\n[add3] out = Add(t, k)",
        "[1,16,16]",
        "[1,16,16]",
    ),
    "means of normed rows move nothing": heads(
        "[norm1] n = LayerNormalization<axis = -1>(q, g, g)\n[mean1] m = ReduceMean(n, last)\n"
        "[add1] out = Add(m, k)",
        "[1,16,16]",
        "[1,16,16]",
    ),
    "a number that an operand is scaled by is part of the product": heads(
        "[mul1] a = Mul(q, quarter)\n[turn1] t = Transpose<perm = [0, 1, 3, 2]>(a)\n"
        "[div1] b = Div(k, quarter)\n[product1] out = MatMul(t, b)"
    ),
    "and so is one that scales what a weight multiplies": heads(
        "[mul1] a = Mul(q, quarter)\n[product1] p = MatMul(a, w)\n[product2] out = MatMul(p, k)"
    ),
    "and one that scales queries of scores that weight columns": heads(
        "[mul1] a = Mul(q, quarter)\n[scores] s = MatMul(a, k)\n[soft] m = Softmax<axis = -1>(s)\n"
        "[mix] out = MatMul(k, m)"
    ),
    "or keys of heads that are narrower than the values": heads(
        "[mul1] a = Mul(k, quarter)\n[turn1] t = Transpose<perm = [0, 1, 3, 2]>(a)\n"
        "[scores] s = MatMul(k, t)\n[soft] m = Softmax<axis = -1>(s)\n[mix] out = MatMul(m, q)",
        "[1,4,16,32]",
    ),
    "weights that are turned for a product of single matrices are read as columns": heads(
        "[soft] m = Softmax<axis = -1>(q)\n[turn1] t = Transpose<perm = [0, 2, 1]>(m)\n"
        "[mix] out = MatMul(k, t)",
        "[2,16,16]",
        "[2,16,16]",
    ),
    "but moved for one of heads": heads(
        "[soft] m = Softmax<axis = -1>(q)\n[turn1] t = Transpose<perm = [0, 1, 3, 2]>(m)\n"
        "[mix] out = MatMul(k, t)"
    ),
}


def test_a_number_is_part_of_the_kernel_of_the_product(tmp_path: Path):
    text = heads("[mul1] a = Mul(q, quarter)\n[product1] out = MatMul(a, k)")
    graph = model_of(f'<ir_version: 9, opset_import: ["": 18]> g {text}', tmp_path).graph
    nodes = [layer.nodes for layer in predicted(graph, EMPTY).layers]
    assert ("mul1", "product1") in nodes
    quantized = placement_of(graph, ("a->product1", "k->product1"))
    nodes = [layer.nodes for layer in predicted(graph, quantized).layers]
    assert ("relu1",) in nodes  # The pair's scale takes the number in.


@pytest.mark.parametrize(("samples", "count"), [(1, 3), (2, 1)])
def test_an_attention_of_a_single_head_is_one_kernel_for_several_samples(
    samples: int, count: int, tmp_path: Path
):
    rows = f"[{samples},1,16,16]"
    body = "[scores] p = MatMul(q, k)\n[soft] m = Softmax<axis = -1>(p)\n[mix] out = MatMul(m, k)"
    text = heads(body, rows, rows)
    graph = model_of(f'<ir_version: 9, opset_import: ["": 18]> g {text}', tmp_path).graph
    nodes = [layer.nodes for layer in predicted(graph, EMPTY).layers]
    assert sum(bool({"scores", "soft", "mix"} & set(names)) for names in nodes) == count


def test_turning_a_single_head_is_no_kernel(tmp_path: Path):
    text = f'<ir_version: 9, opset_import: ["": 18]> g {ONE_HEAD}'
    plan = predicted(model_of(text, tmp_path).graph, EMPTY)
    assert not [layer for layer in plan.layers if {"turn3", "rows1"} & set(layer.nodes)]
    assert [port.tensor for layer in plan.of_kind("reformat") for port in layer.outputs] == ["x"]


def test_what_is_computed_of_normed_rows_before_a_move_is_not_in_the_kernel_of_the_sums(
    tmp_path: Path,
):
    shown = GRAPHS["nodes that compute element by element are with what scales normed rows"]
    graph = model_of(f'<ir_version: 9, opset_import: ["": 18]> g {shown}', tmp_path).graph
    nodes = [layer.nodes for layer in predicted(graph, EMPTY).layers]
    assert ("norm1", "relu1") in nodes
    assert ("norm1", "silu1", "silu2") in nodes


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=18)
