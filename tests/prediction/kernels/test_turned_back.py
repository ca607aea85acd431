"""Rows that a product writes turned, what moves rows behind their sums, and maps for products."""

from tests.prediction.kernels.building import builder_test

BACK = """(float[{n},16,64] x, float[{n},32,16] z) => (float out)
    <float[64,32] w = {{1}}, float[32] b = {{1}}, float[16] s = {{1}}> {{
      [product] m = MatMul(x, w) {rows} [back] t = Transpose<perm = [0, 2, 1]>(r) {behind} }}"""
BIAS, RELU = "[bias] r = Add(m, b)", "[active] r = Relu(m)"
ADDED = "[add] out = Add(t, z)"
NORMED = "[add] a = Add(t, z) [norm] out = LayerNormalization<axis = -1>(a, s, s)"
MOVED = """(float[{n},16,64] x) => (float out) {{
      zero = Constant<value = int64[1] {{0}}>() half = Constant<value = int64[1] {{8}}>()
      axis = Constant<value = int64[1] {{1}}>()
      {summed} [cut] out = Slice(r, zero, half, axis) }}"""
FLAT = """(float[{n},16,8,8] x) => (float out)
    <float[24,16,3,3] w = {{1}}, float[{depth},32] v = {{1}}> {{
      rows = Constant<value = int64[{rank}] {{{n}, {shape}}}>()
      [conv] c = Conv<pads = [1, 1, 1, 1]>(x, w) {active} {behind} }}"""
POOL = "[pool] p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(c)"
PRODUCT = "[view] r = Reshape(p, rows) [product] out = MatMul(r, v)"
THREE = """(float[1,24,64] x) => (float out, float one, float other)
    <float[64,64] w = {{1}}, float[64] b = {{1}}, float[64,64] u = {{1}}, float[64,64] v = {{1}}> {{
      [active] n = Relu(x) [first] a = MatMul(n, w) [second] c = MatMul(n, u)
      [third] d = MatMul(n, v) {behind} [tanh] one = Tanh(c) {third} }}"""
PLAIN = "[active2] other = Sigmoid(d)"
TURNED = "[bias2] e = Add(d, b) [back2] other = Transpose<perm = [0, 2, 1]>(e)"
HEADS = "heads = Constant<value = int64[4] {1, 4, 16, 24}>()"
GRAPHS = {
    "a product that is turned is none with others of the same rows": THREE.format(
        behind="[back] t = Transpose<perm = [0, 2, 1]>(a) [active3] out = Sigmoid(t)", third=PLAIN
    ),
    "two that are turned are one, and each adds its bias behind it": THREE.format(
        behind="[bias] r = Add(a, b) [back] t = Transpose<perm = [0, 2, 1]>(r)"
        " [active3] out = Relu(t)",
        third=TURNED,
    ),
    "one that another product reads besides others is by itself": THREE.format(
        behind="[again] m = MatMul(a, u) [active3] s = Relu(a) [add] out = Add(m, s)", third=PLAIN
    ),
    "columns of a sum with a bias are reshaped by another kernel": THREE.format(
        behind=f"{HEADS} [bias] r = Add(a, b) [back] t = Transpose<perm = [0, 2, 1]>(r)"
        " [view] h = Reshape(t, heads) [active3] out = Sigmoid(h)",
        third=PLAIN,
    ),
    "nor are those of a map whose channels are averaged": THREE.format(
        behind=f"{HEADS} [bias] r = Add(a, b) [back] t = Transpose<perm = [0, 2, 1]>(r)"
        " [view] h = Reshape(t, heads) [mean] out = ReduceMean<axes = [1], keepdims = 1>(h)",
        third=PLAIN,
    ),
    "a product turns the sum with its bias, and adds what is behind": BACK.format(
        n=1, rows=BIAS, behind=ADDED
    ),
    "of several samples as well": BACK.format(n=2, rows=BIAS, behind=ADDED),
    "a single number is a bias, too": BACK.format(
        n=2,
        rows="number = Constant<value = float {0.5}>() [bias] r = Add(m, number)",
        behind=ADDED,
    ),
    "what a norm reads is added by the norm's kernel": BACK.format(n=2, rows=BIAS, behind=NORMED),
    "an activation is computed before, and turned by another kernel": BACK.format(
        n=1, rows=RELU, behind=ADDED
    ),
    "a Softmax ends its kernel where rows are cut": MOVED.format(
        n=1, summed="[shares] r = Softmax<axis = -1>(x)"
    ),
    "deviations of rows that the kernel computes are part of it": MOVED.format(
        n=2, summed="[mean] m = ReduceMean<axes = [-1]>(x) [less] r = Sub(x, m)"
    ),
    "a map is copied for a product with a weight": FLAT.format(
        n=2, depth=64, rank=3, shape="24, 64", active=POOL, behind=PRODUCT
    ),
    "the copy of all of it is called after the view": FLAT.format(
        n=2, depth=1536, rank=2, shape="1536", active=POOL, behind=PRODUCT
    ),
    "places that are flattened for an output are only cast": FLAT.format(
        n=1,
        depth=1,
        rank=3,
        shape="24, 64",
        active="[active] p = Relu(c)",
        behind="[view] out = Reshape(p, rows)",
    ),
}
test_turned_back = builder_test(GRAPHS, 17)
test_quantized_products = builder_test(
    {
        "sums of integers are turned by another kernel": (
            "x->product w->product",
            BACK.format(n=1, rows=BIAS, behind=ADDED),
        )
    },
    17,
)
