"""Parts of a float Conv's map, in blocks of YOLOv8, and rows of maps that INT8 Convs write."""

from pathlib import Path

from tests.prediction.kernels.building import (
    builder_test,
    model_of,
    placement_of,
    predicted,
    text_of,
)

CUTS = "[cut1] a = Slice(m, zero, half, one)\n[cut2] b = Slice(m, half, all, one)"


def block(cuts: str = CUTS, added: str = "[add1] o = Add(b, r)") -> str:
    """Two parts of which a Conv reads one, and all joined."""
    return f"""
    (float[1,32,8,8] x) => (float[1,64,8,8] out)
    <float[64,32,1,1] w = {{1}}, float[32,32,3,3] v = {{1}}, float[64,96,1,1] u = {{1}}> {{
      zero = Constant<value = int64[1] {{0}}>()
      half = Constant<value = int64[1] {{32}}>()
      all = Constant<value = int64[1] {{64}}>()
      one = Constant<value = int64[1] {{1}}>()
      sizes = Constant<value = int64[2] {{32, 32}}>()
      [conv1] c = Conv(x, w)
      [gate1] g = Sigmoid(c)
      [silu1] m = Mul(c, g)
      {cuts}
      [conv2] d = Conv<pads = [1, 1, 1, 1]>(b, v)
      [relu2] r = Relu(d)
      {added}
      [join] j = Concat<axis = 1>(a, b, o)
      [conv3] out = Conv(j, u)
    }}"""


SPLIT = "[cut1] a, b = Split<axis = 1>(m, sizes)"
PAIRS = "b->conv2 v->conv2"
GRAPHS = {
    "a Conv's part alone is quantized": (PAIRS, block()),
    "of a Split, too": (PAIRS, block(SPLIT)),
    "all parts that are joined": ("a->join b->join o->join j->conv3 u->conv3", block()),
    "without a sum": (PAIRS, block(added="[same] o = Identity(r)")),
}


def test_what_joins_parts_cuts_them_out_itself(tmp_path: Path):
    graph = model_of(text_of(block(), 17), tmp_path).graph
    plan = predicted(graph, placement_of(graph, tuple(PAIRS.split())))

    written = {layer.nodes: layer.output_types for layer in plan.of_kind("compute")}
    assert written["cut2",] == ("int8",)
    assert ("add1", "cut1", "cut2", "join", "relu2") in written


def tokens() -> str:
    """A product adds the tokens of a Conv's map, as networks for diffusion have them."""
    return """
    (float[1,32,8,8] x) => (float[1,64,32] out)
    <float[32,32,1,1] w = {1}, float[32,32] v = {1}, float[32] b = {1}, float[32] s = {1}> {
      rows = Constant<value = int64[3] {1, 64, 32}>()
      [conv1] c = Conv(x, w)
      [turn1] t = Transpose<perm = [0, 2, 3, 1]>(c)
      [view1] r = Reshape(t, rows)
      [norm1] n = LayerNormalization<axis = -1>(r, s, b)
      [product1] p = MatMul(n, v)
      [bias1] q = Add(p, b)
      [add1] a = Add(q, r)
      [norm2] out = LayerNormalization<axis = -1>(a, s, b)
    }"""


ROWS = {
    "a generated kernel adds those of a float map": tokens(),
    "a product's those that scale an INT8 Conv's sums": ("x->conv1 w->conv1", tokens()),
}
test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, 17)
test_rows_of_maps = builder_test(
    {n: g if isinstance(g, tuple) else ("", g) for n, g in ROWS.items()}, 17
)
