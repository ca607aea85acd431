"""Operands of attentions that are read where a product wrote them, and what scales them."""

from onnx import TensorProto

from placer.graph.text import graph_of_text
from tests.prediction.kernels.building import builder_test, placement_of, predicted


def attention(
    operands: str, scores: str = "[scores] s1 = MatMul(q, k)", more: str = "", width: int = 64
) -> str:
    """Two heads over 16 tokens; ``operands`` makes q, k (turned) and v of x."""
    return f"""
    (float[1,16,{width}] x{more}) => (float[1,16,{width}] out)
    <float[{width},{3 * width}] w3 = {{1}}, float[{width},{2 * width}] w2 = {{1}},
     float[{width},{width}] w1 = {{1}}, float[{width},{width}] wq = {{1}},
     float[{width},{width}] wo = {{1}}, float[{3 * width}] b3 = {{1}}, float[{width}] b = {{1}}> {{
      threes = Constant<value = int64[5] {{1, 16, 3, 2, {width // 2}}}>()
      twos = Constant<value = int64[5] {{1, 16, 2, 2, {width // 2}}}>()
      heads = Constant<value = int64[4] {{1, 16, 2, {width // 2}}}>()
      other_heads = Constant<value = int64[4] {{1, 24, 2, {width // 2}}}>()
      rows = Constant<value = int64[3] {{1, 16, {width}}}>()
      first = Constant<value = int64[1] {{0}}>()
      half = Constant<value = float {{0.5}}>()
      {operands}
      {scores}
      [soft] p = Softmax<axis = -1>(s1)
      [mix] o = MatMul(p, v)
      [turn] t = Transpose<perm = [0, 2, 1, 3]>(o)
      [flat] r = Reshape(t, rows)
      [project] out = MatMul(r, wo)
    }}"""


SPLIT = """
      [view] c = Reshape(a, threes)
      [sort] d = Transpose<perm = [2, 0, 3, 1, 4]>(c)
      [split] e1, e2, e3 = Split<axis = 0>(d)
      [queries] q = Squeeze(e1, first)
      [keys] k0 = Squeeze(e2, first)
      [values] v = Squeeze(e3, first)
      [turnk] k = Transpose<perm = [0, 1, 3, 2]>(k0)"""


def made(name: str, given: str, bias: bool, weight: str, heads: str) -> str:
    """A product of heads, with or without a bias."""
    turned = "0, 2, 3, 1" if name == "k" else "0, 2, 1, 3"
    added = f"Add(m{name}, b)" if bias else f"Identity(m{name})"
    return f"""
      [product{name}] m{name} = MatMul({given}, {weight})
      [bias{name}] b{name} = {added}
      [view{name}] c{name} = Reshape(b{name}, {heads})
      [turn{name}] {name} = Transpose<perm = [{turned}]>(c{name})"""


def separate(queries: bool, keys: bool, values: bool, crossed: bool = False) -> str:
    other, heads = ("z", "other_heads") if crossed else ("x", "heads")
    operands = made("q", "x", queries, "wq", "heads")
    operands += made("k", other, keys, "w1", heads) + made("v", other, values, "wo", heads)
    return attention(operands, more=", float[1,24,64] z" if crossed else "")


def scaled(before: str) -> str:
    """Queries that a number multiplies after ``before`` made q0 of what a product wrote."""
    queries = made("q", "x", True, "wq", "heads").replace("[turnq] q =", "[turnq] q1 =")
    operands = queries + before + "[scale] q = Mul(q0, half)"
    return attention(
        operands + made("k", "x", True, "w1", "heads") + made("v", "x", True, "wo", "heads")
    )


TANH = "[scores] s0 = MatMul(q, k)\n[tanh] s1 = Tanh(s0)"
GRAPHS = {
    "products that are no attention read so, too": attention(
        "[product] a = MatMul(x, w3)" + SPLIT, TANH
    ),
    "of products side by side, what is computed with is turned and the others are read so": (
        separate(False, False, False).replace("[turnv] v =", "[turnv] v4 =")
    ).replace("[scores] s1 = MatMul(q, k)", f"[relu] v = Relu(v4)\n{TANH}"),
    "what a joint product writes is split and turned for nothing": attention(
        "[product] a = MatMul(x, w3)" + SPLIT
    ),
    "so it is if queries and keys are scaled": attention(
        "[product] a = MatMul(x, w3)" + SPLIT,
        "[scale1] q1 = Mul(q, half)\n[scale2] k1 = Mul(k, half)\n[scores] s1 = MatMul(q1, k1)",
    ),
    "a bias needs kernels": attention(
        "[product] a0 = MatMul(x, w3)\n[bias] a = Add(a0, b3)" + SPLIT
    ),
    "a bias of values needs kernels for queries and keys, too": separate(False, False, True),
    "one of queries needs kernels for keys and values": separate(True, False, False),
    "those of others are another product": separate(True, False, False, crossed=True),
    "and queries are one of their own": separate(False, True, False, crossed=True),
    "queries that a function makes are scaled by the attention": scaled("[act] q0 = Tanh(q1)\n"),
    "what is added to them is scaled instead": scaled("[act] q0 = Add(q1, b2)\n").replace(
        "float[64] b = {1}", "float[64] b = {1}, float[1,2,1,32] b2 = {1}"
    ),
}
NARROW = {
    f"heads of {width // 2} channels have kernels of products": attention(
        made("q", "x", True, "wq", "heads")
        + made("k", "x", True, "w1", "heads")
        + made("v", "x", True, "wo", "heads"),
        "[scores] s0 = MatMul(q, k)\n[scale] s1 = Mul(s0, half)",
        width=width,
    )
    for width in (8, 12)
}
test_attentions = builder_test(GRAPHS, 17)
test_narrow_heads = builder_test(NARROW, 17)
INTEGERS = ("x->product", "w3->product")
test_joint_products_of_integers = builder_test(
    {
        title: (" ".join(INTEGERS), graph)
        for title, graph in GRAPHS.items()
        if "[product] a" in graph
    },
    17,
)


TIED = """
<ir_version: 9, opset_import: ["": 17]>
g (int64[1,16] ids) => (float[1,16,80] out) <float[80,64] table = {1}, float[64,64] w = {1}> {
  [look] x = Gather(table, ids)
  [product] h = MatMul(x, w)
  [turn] t = Transpose<perm = [1, 0]>(table)
  [head] out = MatMul(h, t)
}
"""


def test_what_is_made_of_constants_alone_is_no_layer():
    """As a table in another file, which is looked up and multiplied by."""
    graph = graph_of_text(TIED)
    table = graph.initializers["table"]
    table.ClearField("float_data")
    table.data_location = TensorProto.EXTERNAL
    table.external_data.add(key="location", value="table.bin")
    for pairs in ((), ("h->head", "t->head")):
        layers = predicted(graph, placement_of(graph, pairs)).layers
        nodes = {node for layer in layers for node in layer.nodes}
        assert "turn" not in nodes
        assert nodes >= {"look", "product", "head"}


def apart(name: str, heads: int) -> str:
    """A part of a joint product, which is computed with."""
    return f"""
      [view{name}] {name}1 = Reshape({name}0, heads{heads})
      [turn{name}] {name}2 = Transpose<perm = [0, 2, 1, 3]>({name}1)
      [tanh{name}] {name} = Tanh({name}2)"""


UNEVEN = f"""
    (float[1,16,64] x)
    => (float[1,4,16,16] q, float[1,2,16,16] k, float[1,2,16,16] v)
    <float[64,128] w = {{1}}> {{
      sizes = Constant<value = int64[3] {{64, 32, 32}}>()
      heads4 = Constant<value = int64[4] {{1, 16, 4, 16}}>()
      heads2 = Constant<value = int64[4] {{1, 16, 2, 16}}>()
      [product] a = MatMul(x, w)
      [split] q0, k0, v0 = Split<axis = -1>(a, sizes)
      {apart("q", 4)}{apart("k", 2)}{apart("v", 2)}
    }}"""
test_integers_of_uneven_parts_are_scaled_once = builder_test(
    {"queries of more heads": ("x->product w->product", UNEVEN)}, 18
)
