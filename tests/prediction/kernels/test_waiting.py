"""What is computed of a tensor beside an INT8 block, as NVIDIA's builder makes it."""

from pathlib import Path

from placer.graph import Graph
from tests.prediction.kernels.building import (
    builder_test,
    model_of,
    placement_of,
    predicted,
    text_of,
)

PAIRS = "x->conv1 w->conv1 a->conv2 w->conv2 s->conv3 w->conv3"


def block(beside: str, end: str = "[add1] s = Add(r, u)\n[conv3] out = CONV(s, w)") -> str:
    """``beside`` makes ``u`` of ``c`` and ``a``, which the block of ``conv2`` reads."""
    body = f"""
    (float[1,16,8,8] x) => (float[1,16,8,8] out)
    <float[16,16,3,3] w = {{1}}, float[16,1,1] g = {{1}}> {{
      [conv1] c = CONV(x, w)
      [relu1] a = Relu(c)
      {beside}
      [conv2] d = CONV(a, w)
      [relu2] r = Relu(d)
      {end}
    }}"""
    return body.replace("CONV", "Conv<pads = [1, 1, 1, 1]>")


SCALED = block("[mul1] u = Mul(a, g)")
GRAPHS = {
    "the sum behind the block scales what it adds": (PAIRS, SCALED),
    "and dequantizes it where it reads the block's own integers": (PAIRS + " a->mul1", SCALED),
    "and quantizes it where the sum has a pair": (PAIRS + " u->add1", SCALED),
    "so it does with several nodes": (
        PAIRS,
        block("[gate1] t = Sigmoid(a)\n[mul1] m = Mul(a, t)\n[mul2] u = Mul(m, g)"),
    ),
    "though it reads more tensors then": (
        PAIRS,
        block("[gate1] t = Sigmoid(c)\n[mul1] u = Mul(a, t)"),
    ),
    "and with what is transposed": (
        PAIRS,
        block("[mul1] m = Mul(a, g)\n[turn1] u = Transpose<perm = [0, 1, 3, 2]>(m)"),
    ),
    "and what it alone joined is in two kernels then": (
        PAIRS + " x->conv4 w->conv4 b->conv5 w->conv5",
        block(
            "[conv4] e = Conv<pads = [2, 2, 2, 2], dilations = [2, 2]>(x, w)\n"
            "[gate1] b = Sigmoid(e)\n[mul1] u = Mul(a, b)",
            "[conv5] f = CONV(b, w)\n[add2] t = Add(r, f)\n[add1] s = Add(t, u)\n"
            "[conv3] out = CONV(s, w)",
        ),
    ),
    "but a square is computed where its operand is": (PAIRS, block("[mul1] u = Mul(a, a)")),
    "and so is what is added to what is made of it": (
        PAIRS,
        block("[act1] t = Tanh(a)\n[mul1] u = Add(a, t)"),
    ),
    "what two kernels read is computed before them": (
        PAIRS,
        block(
            "[mul1] u = Mul(a, g)",
            "[add1] s = Add(r, u)\n[conv3] e = CONV(s, w)\n[relu3] f = Relu(e)\n"
            "[add2] out = Add(f, u)",
        ),
    ),
    "and so is what the block reads too": (
        PAIRS + " u->conv4 w->conv4",
        block(
            "[mul1] u = Mul(a, g)",
            "[conv4] e = CONV(u, w)\n[add1] f = Add(r, e)\n[add2] s = Add(f, u)\n"
            "[conv3] out = CONV(s, w)",
        ),
    ),
    "and what a float Conv's kernel computes": ("a->conv2 w->conv2 s->conv3 w->conv3", SCALED),
}


def layers_of(pairs: str, shown: str, tmp_path: Path) -> list[tuple[str, ...]]:
    graph: Graph = model_of(text_of(shown, 18), tmp_path).graph
    plan = predicted(graph, placement_of(graph, tuple(pairs.split())))
    return [layer.nodes for layer in plan.layers]


def test_the_kernel_of_the_sum_scales_what_it_adds(tmp_path: Path):
    nodes = layers_of(PAIRS, SCALED, tmp_path)
    assert ("relu1",) in nodes
    assert ("add1", "mul1", "relu2") in nodes


def test_a_square_is_computed_in_the_kernel_that_writes_its_operand(tmp_path: Path):
    shown = GRAPHS["but a square is computed where its operand is"]
    assert ("mul1", "relu1") in layers_of(*shown, tmp_path)


def test_what_waits_leaves_two_kernels_where_it_alone_joined_them(tmp_path: Path):
    nodes = layers_of(*GRAPHS["and what it alone joined is in two kernels then"], tmp_path)
    assert {("relu1",), ("gate1",)} <= set(nodes)


def test_what_two_kernels_read_is_computed_before_them(tmp_path: Path):
    shown = GRAPHS["what two kernels read is computed before them"]
    assert ("mul1", "relu1") in layers_of(*shown, tmp_path)


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=18)
VIEWED = """
    (float[1,20,64] x) => (float[1,4,5,64] out, float[1,20,64] p) <float[64,64] w = {1}> {
      shape = Constant<value = int64[4] {1, 4, 5, 64}>()
      [tanh1] a = Tanh(x)
      [product1] p = MatMul(a, w)
      [sin1] s = Sin(p)
      [view1] v = Reshape(s, shape)
      [view2] r = Reshape(a, shape)
      [mul1] m = Mul(r, v)
      [soft1] out = Softmax<axis = -1>(m)
    }"""
test_views_are_part_of_the_kernel_that_reads_them = builder_test({"of rows": VIEWED}, 17)
