"""Products of flattened rows, GELUs in parts and gates, as NVIDIA's builder makes them."""

from pathlib import Path

import onnx
import onnx.parser

import placer
from placer.quantization import EMPTY
from tests.prediction.kernels.building import (
    builder_test,
    model_of,
    placement_of,
    predicted,
    text_of,
)

FLAT = """
    (float[1,16,64] x, float[1,16,64] y) => (float[1,16,64] out)
    <float[64,64] w1 = {1}, float[64] b = {1}, float[64,64] w2 = {1}, float[64] c = {1}> {
      flat = Constant<value = int64[2] {-1, 64}>()
      rows = Constant<value = int64[3] {1, 16, 64}>()
      [flatten] f = Reshape(x, flat)
      [product1] p = PRODUCT
      [shape] r = Reshape(p, rows)
      BEHIND
      [product2] out = MatMul(o, w2)
    }"""


def flat(product: str, behind: str) -> str:
    return FLAT.replace("PRODUCT", product).replace("BEHIND", behind)


GEMM, MATMUL = "Gemm(f, w1, b)", "MatMul(f, w1)"
test_flattened_rows = builder_test(
    {
        "a Gemm and an activation": flat(GEMM, "[active] o = Relu(r)"),
        "a Gemm and a constant": flat(GEMM, "[more] o = Add(c, r)"),
        "a Gemm and a residual": flat(GEMM, "[add] o = Add(y, r)"),
        "a Gemm, a residual and a norm": flat(
            GEMM, "[add] s = Add(r, y)\n[norm] o = LayerNormalization(s, c, b)"
        ),
        "a MatMul and a bias": flat(MATMUL, "[bias] o = Add(r, b)"),
        "a MatMul and an activation": flat(MATMUL, "[active] o = Relu(r)"),
    },
    17,
)

BLOCK = """
    (float[1,16,64] x) => (float[1,16,64] out)
    <float[64,64] w1 = {1}, float[64] b = {1}, float[64,128] w2 = {1}, float[128] d = {1},
     float[128,64] w3 = {1}, float[64] c = {1}> {
      flat = Constant<value = int64[2] {-1, 64}>()
      wide = Constant<value = int64[2] {-1, 128}>()
      rows = Constant<value = int64[3] {1, 16, 64}>()
      more = Constant<value = int64[3] {1, 16, 128}>()
      [positions] r = Add(x, c)
      [norm1] n = LayerNormalization(r, c, b)
      [flatten1] n2 = Reshape(n, flat)
      [product1] p = Gemm(n2, w1, b)
      [shape1] a = Reshape(p, rows)
      [residual1] z = Add(a, r)
      [norm2] m = LayerNormalization(z, c, b)
      [flatten2] m2 = Reshape(m, flat)
      [product2] q = Gemm(m2, w2, d)
      [shape2] e = Reshape(q, more)
      ACTIVE
      [flatten3] g2 = Reshape(g, wide)
      [product3] s = Gemm(g2, w3, c)
      [shape3] t = Reshape(s, rows)
      [residual2] u = Add(z, t)
      [norm3] v = LayerNormalization(u, c, b)
      [flatten4] v2 = Reshape(v, flat)
      [product4] y = Gemm(v2, w1, b)
      [shape4] k = Reshape(y, rows)
      [residual3] out = Add(u, k)
    }"""
test_residuals_of_flattened_rows = builder_test(
    {
        title: BLOCK.replace("ACTIVE", active)
        for title, active in (
            ("of an activation", "[relu] g = Relu(e)"),
            ("of SiLU", "[sigmoid] f = Sigmoid(e)\n[gate] g = Mul(e, f)"),
        )
    },
    17,
)


# As onnxsim and onnxslim leave it, which take out what shapes rows between two products.
BETWEEN = """[shape2] e = Reshape(q, more)
      ACTIVE
      [flatten3] g2 = Reshape(g, wide)"""
HEADS = """
    (float[1,16,64] x, float[1,16,64] y) => (float[1,16,64] out)
    <float[64,64] w1 = {1}, float[64] b = {1}, float[64] c = {1}, float[64,64] w2 = {1},
     float[64,64] w3 = {1}, float[64,64] w4 = {1}> {
      heads = Constant<value = int64[4] {1, 16, 4, 16}>()
      flat = Constant<value = int64[2] {16, 64}>()
      rows = Constant<value = int64[3] {1, 16, 64}>()
      [positions] e = Add(x, y)
      [norm1] n = LayerNormalization(e, c, b)
      [queries] q = MatMul(n, w2) [keys] k = MatMul(n, w3) [values] v = MatMul(n, w4)
      [split1] qs = Reshape(q, heads) [split2] ks = Reshape(k, heads)
      [split3] vs = Reshape(v, heads)
      [turn1] qt = Transpose<perm = [0, 2, 1, 3]>(qs)
      [turn2] kt = Transpose<perm = [0, 2, 3, 1]>(ks)
      [turn3] vt = Transpose<perm = [0, 2, 1, 3]>(vs)
      [scores] d = MatMul(qt, kt) [shares] a = Softmax<axis = -1>(d) [mix] m = MatMul(a, vt)
      [back] t = Transpose<perm = [0, 2, 1, 3]>(m)
      [join] f = Reshape(t, flat)
      [product] p = Gemm(f, w1, b)
      [shape] r = Reshape(p, rows)
      [residual] s = Add(e, r)
      [norm2] l = LayerNormalization(s, c, b)
      [sum] out = Add(l, s)
    }"""
JOINT = """
    (float[2,16,64] x, float[2,16,64] y) => (float[2,4,16,16] out)
    <float[64,192] w1 = {1}, float[192] b = {1}, float[64] c = {1}, float[64] d = {1}> {
      flat = Constant<value = int64[2] {32, 64}>() axis = Constant<value = int64[1] {0}>()
      SHAPES
      [positions] e = Add(x, y)
      [norm] n = LayerNormalization(e, c, d)
      [flatten] f = Reshape(n, flat)
      [product] p = Gemm(f, w1, b)
      HEADS
      [turn2] kt = Transpose<perm = [0, 1, 3, 2]>(k)
      [scores] s = MatMul(q, kt) [shares] a = Softmax<axis = -1>(s) [mix] out = MatMul(a, v)
    }"""
APART = """[split] r = Reshape(p, five) [turn1] t = Transpose<perm = [2, 0, 3, 1, 4]>(r)
      [parts] q1, k1, v1 = Split<axis = 0>(t) [squeeze1] q = Squeeze(q1, axis)
      [squeeze2] k = Squeeze(k1, axis) [squeeze3] v = Squeeze(v1, axis)"""
CHUNKS = """[split] r = Reshape(p, heads) [turn1] t = Transpose<perm = [0, 2, 1, 3]>(r)
      [parts] q, k, v = Split<axis = 3>(t)"""
FIVE = "five = Constant<value = int64[5] {2, 16, 3, 4, 16}>()"
CHUNKED = "heads = Constant<value = int64[4] {2, 16, 4, 48}>()"
test_heads_of_flattened_rows = builder_test(
    {
        "each part adds the bias of a Gemm": JOINT.replace("SHAPES", FIVE).replace("HEADS", APART),
        "or the product does, of chunks of heads": JOINT.replace("SHAPES", CHUNKED).replace(
            "HEADS", CHUNKS
        ),
    },
    17,
)
test_rows_that_stay_flat = builder_test(
    {
        **{
            f"between products with {title}": BLOCK.replace(BETWEEN, active)
            for title, active in (
                ("an activation", "[relu] g2 = Relu(q)"),
                ("SiLU", "[sigmoid] f = Sigmoid(q)\n[gate] g2 = Mul(q, f)"),
            )
        },
        "where heads are joined": HEADS,
    },
    17,
)


def test_a_gemm_of_flattened_rows_is_named_once_and_reads_pairs_where_they_are(tmp_path: Path):
    model = model_of(text_of(flat(GEMM, "[active] o = Relu(r)"), 17), tmp_path)
    layers = predicted(model.graph, EMPTY).layers
    assert [layer.nodes for layer in layers if layer.kind == "compute"] == [
        ("active", "product1"),
        ("product2",),
    ]
    placement = placement_of(model.graph, ("f->product1", "w1->product1"))
    layers = predicted(model.graph, placement).layers
    assert [layer.nodes for layer in layers if layer.kind == "compute"] == [
        ("product1",),
        ("active", "product1"),
        ("product2",),
    ]


ACTIVE = """
    (float[1,16,32] x) => (float[1,32,32] out)
    <float[16,16,3] w1 = {1}, float[16] b1 = {1}, float[32,16,3] w2 = {1}> {
      half = Constant<value = float {0.5}>()
      one = Constant<value = float {1.0}>()
      root = Constant<value = float {1.4142135}>()
      c1 = Constant<value = float {0.044715}>()
      c2 = Constant<value = float {0.7978846}>()
      [conv1] a = Conv<pads = [1,1]>(x, w1, b1)
      GELU
      [conv2] out = Conv<pads = [1,1]>(g, w2)
    }"""
ERF = "[div] d = Div(a, root)\n[erf] e = Erf(d)\n[plus] p = Add(e, one)\n"
TANH = """[square] s2 = Mul(a, a)
      [cube] s3 = Mul(a, s2)
      [weigh] k1 = Mul(c1, s3)
      [sum] s = Add(a, k1)
      [scale] k2 = Mul(c2, s)
      [tanh] t = Tanh(k2)
      [plus] p = Add(one, t)\n"""
LAST = "[gate] h = Mul(a, p)\n[halve] g = Mul(h, half)"
FIRST = "[halve] h = Mul(a, half)\n[gate] g = Mul(h, p)"
test_gelus_behind_one_dimensional_convs = builder_test(
    {
        f"{name}, halved {when}": ACTIVE.replace("GELU", parts + end)
        for name, parts in (("erf", ERF), ("tanh", TANH))
        for when, end in (("last", LAST), ("first", FIRST))
    },
    17,
)

# Files in FP16: constants are rounded, and no Pow is cast.
HALF = """
    (float16[16,32] x) => (float16[16,32] out)
    <float16[32,64] w1 = {1}, float16[64] b = {1}, float16[64,32] w2 = {1}> {
      root32 = Constant<value = float {1.4142135}>() root = Cast<to = 10>(root32)
      half32 = Constant<value = float {0.5}>() half = Cast<to = 10>(half32)
      one32 = Constant<value = float {1.0}>() one = Cast<to = 10>(one32)
      three32 = Constant<value = float {3.0}>() three = Cast<to = 10>(three32)
      [product1] a = Gemm(x, w1, b)
      ACTIVE
      [product2] out = MatMul(g, w2)
    }"""
CUBE = """[cube] c = Pow(a, three)
      [sum] s = Add(a, c)
      [tanh] t = Tanh(s)
      [gate] g = Mul(a, t)"""
test_files_in_half_precision = builder_test(
    {
        "a GELU's constants are rounded": HALF.replace("ACTIVE", ERF + LAST),
        "a product's kernel computes a Pow of what others read": HALF.replace("ACTIVE", CUBE),
    },
    17,
)

TWO = """
    (float[1,16,64] x) => (float[1,16,64] out)
    <float[64,128] w1 = {1}, float[64,128] w2 = {1}, float[128] b = {1}, float[128,64] w3 = {1}> {
      half = Constant<value = float {0.5}>()
      one = Constant<value = float {1.0}>()
      root = Constant<value = float {1.4142135}>()
      [before] y = Relu(x)
      [product1] p1 = MatMul(y, w1)
      [bias1] a = Add(p1, b)
      GATE
      [product2] p2 = MatMul(y, w2)
      [bias2] v = Add(p2, b)
      [factor] o = Mul(g, v)
      [product3] out = MatMul(o, w3)
    }"""
ONE = """
    (float[1,16,64] x) => (float[1,16,64] out)
    <float[64,256] w1 = {1}, float[256] b = {1}, float[128,64] w2 = {1}> {
      half = Constant<value = float {0.5}>()
      one = Constant<value = float {1.0}>()
      root = Constant<value = float {1.4142135}>()
      first = Constant<value = int64[1] {0}>()
      middle = Constant<value = int64[1] {128}>()
      last = Constant<value = int64[1] {256}>()
      axis = Constant<value = int64[1] {2}>()
      [before] y = Relu(x)
      [product1] p1 = MatMul(y, w1)
      [bias] c = Add(p1, b)
      PARTS
      GATE
      [factor] o = Mul(u, g)
      [product2] out = MatMul(o, w2)
    }"""
SPLIT = "[cut] u, a = Split<axis = -1, num_outputs = 2>(c)"
SLICES = "[cut1] u = Slice(c, first, middle, axis)\n[cut2] a = Slice(c, middle, last, axis)"
SILU = "[sigmoid] s = Sigmoid(a)\n[silu] g = Mul(a, s)"
INT8 = "y->product1 w1->product1 o->product2 w2->product2"
test_gates = builder_test(
    {
        "two products and a GELU": TWO.replace("GATE", ERF + LAST),
        "two products and a Relu": TWO.replace("GATE", "[relu] g = Relu(a)"),
        "two products and SiLU": TWO.replace("GATE", SILU),
        "one product, split, and a GELU": ONE.replace("PARTS", SPLIT).replace("GATE", ERF + LAST),
        "one product, sliced, and a GELU": ONE.replace("PARTS", SLICES).replace("GATE", ERF + LAST),
        "one product, split, and SiLU": ONE.replace("PARTS", SPLIT).replace("GATE", SILU),
        "one product, sliced, and SiLU": ONE.replace("PARTS", SLICES).replace("GATE", SILU),
    },
    18,
)
test_gates_of_integers = builder_test(
    {
        f"{title} and {name}": (INT8, ONE.replace("PARTS", parts).replace("GATE", gate))
        for title, parts in (("split", SPLIT), ("sliced", SLICES))
        for name, gate in (("a GELU", ERF + LAST), ("SiLU", SILU))
    },
    18,
)
ROWS = """
    (float[1,32,8,8] x) => (float[1,64,64] out)
    <float[64,32,1,1] w0 = {1}, float[64,64] w1 = {1}, float[64] b = {1}, float[64,64] w2 = {1}> {
      rows = Constant<value = int64[3] {1, 64, 64}>()
      [conv] a = Conv(x, w0)
      [turn] t = Transpose<perm = [0,2,3,1]>(a)
      [view] r = Reshape(t, rows)
      [norm1] n = LayerNormalization(r, b, b)
      [product1] p = MatMul(n, w1)
      [bias] k = Add(b, p)
      [add] o = Add(k, r)
      [norm2] z = LayerNormalization(o, b, b)
      [product2] out = MatMul(z, w2)
    }"""
test_rows_of_a_turned_map_are_no_part_of_a_product = builder_test({"tokens": ROWS}, 17)
SUMMED = """
    (int64[1,16] x) => (int64[1,16] out) {
      one = Constant<value = int64 {1}>()
      [before] a = Mul(x, x)
      [sum] b = CumSum(a, one)
      [behind] out = Add(b, one)
    }"""
test_running_sums_are_kernels_of_their_own = builder_test({"CumSum": SUMMED}, 17)
REPEATED = """
    (float[1,64] x, float[1,20,64] z) => (float[1,20,64] out)
    <float[64,64] w1 = {1}, float[64,64] w2 = {1}, float[64] b = {1}> {
      [gate1] s1 = Sigmoid(x)
      [silu1] a1 = Mul(x, s1)
      [product1] p1 = Gemm(a1, w1, b)
      [gate2] s2 = Sigmoid(x)
      [silu2] a2 = Mul(x, s2)
      [product2] p2 = Gemm(a2, w2, b)
      [scale] c = Mul(z, p1)
      [shift] d = Add(c, p2)
      [product3] out = MatMul(d, w1)
    }"""
test_nodes_that_compute_the_same_are_one = builder_test({"SiLU of a row": REPEATED}, 17)


def test_operators_of_other_domains_are_not_taken_for_equal(tmp_path: Path):
    """Two calls of what nobody knows may give different results."""
    path = tmp_path / "model.onnx"
    proto = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 17, "my.ops": 1]>
        g (float[4,64] x) => (float[4,64] out) <float[4,64] b, float[4,64] c, float[4,64] d> {
          [one] a = Sigmoid(x)
          [other] b = my.ops.Sigmoid(x)
          [noise1] c = my.ops.Noise(x)
          [noise2] d = my.ops.Noise(x)
          [add1] s = Add(a, b)
          [add2] t = Add(c, d)
          [add3] out = Add(s, t)
        }
    """)
    onnx.save(proto, path)
    plan = placer.explain(path, pack="tensorrt-rtx").explanation.plan
    named = {name for layer in plan.layers for name in layer.nodes}
    assert {"one", "other", "noise1", "noise2"} <= named
