"""Tensors of the same values: their pairs make the same integers, which are there once."""

from pathlib import Path

from placer.prediction.kernels.same_values import sources
from placer.quantization import Range
from tests.prediction.kernels.building import builder_test, model_of, text_of

CONSTANTS = """
<float[32] s = {1}, float[32] b = {1}, float[32,32,3,3] wc = {1}, float[32,32] wq = {1},
 float[32,64] wkv = {1}>"""
CONV = "[conv] out = Conv<pads = [1, 1, 1, 1]>(m, wc)"
TOKENS = f"""
    (float[1,256,32] x) => (float out, float q) {CONSTANTS} {{
      size = Constant<value = int64[4] {{1, 32, 16, 16}}>()
      [norm] n = LayerNormalization(x, s, b)
      [turn] t = Transpose<perm = [0, 2, 1]>(n) [map] m = Reshape(t, size) {CONV}
      [product] q = MatMul(n, wq)
    }}"""
ROWS = f"""
    (float[1,16,16,32] x) => (float out, float q) {CONSTANTS} {{
      [relu] n = Relu(x) [turn] m = Transpose<perm = [0, 3, 1, 2]>(n) {CONV}
      [product] q = MatMul(n, wq)
    }}"""
KEYS_AND_VALUES = f"""
    (float[1,64,32] x) => (float out) {CONSTANTS} {{
      apart = Constant<value = int64[4] {{1, 64, 2, 16}}>()
      parts = Constant<value = int64[5] {{1, 64, 2, 2, 16}}>()
      zero = Constant<value = int64 {{0}}>() one = Constant<value = int64 {{1}}>()
      [norm] n = LayerNormalization(x, s, b)
      [queries] q0 = MatMul(n, wq) [heads] q1 = Reshape(q0, apart)
      [turn1] q = Transpose<perm = [0, 2, 1, 3]>(q1)
      [both] k0 = MatMul(n, wkv) [split] k1 = Reshape(k0, parts)
      [turn2] k2 = Transpose<perm = [2, 0, 3, 1, 4]>(k1)
      [keys] k3 = Gather<axis = 0>(k2, zero) [values] v = Gather<axis = 0>(k2, one)
      [turn3] k = Transpose<perm = [0, 1, 3, 2]>(k3)
      [scores] a = MatMul(q, k) [shares] p = Softmax<axis = -1>(a) [mix] out = MatMul(p, v)
    }}"""
GROUPS = TOKENS.replace("wc = {1}", "wc = {1}, float[32,8,3,3] wg = {1}").replace(
    "pads = [1, 1, 1, 1]>(m, wc)", "group = 4, pads = [1, 1, 1, 1]>(m, wg)"
)
MAP, PRODUCT = "m->conv wc->conv", "n->product wq->product"
GRAPHS = {
    "a Conv reads the integers of tokens that a product reads": (f"{MAP} {PRODUCT}", TOKENS),
    "so does a Conv of groups": (f"m->conv wg->conv {PRODUCT}", GROUPS),
    "tokens are turned for a Conv that alone reads integers": (MAP, TOKENS),
    "tokens are turned for a Conv that alone reads floats": (PRODUCT, TOKENS),
    "a Conv reads the integers of a map's rows that a product reads": (f"{MAP} {PRODUCT}", ROWS),
    "a Conv reads a map's rows that a product reads in float": ("", ROWS),
    "queries are multiplied in INT8, keys and values in float": (
        "n->queries wq->queries n->both wkv->both",
        KEYS_AND_VALUES,
    ),
}


def test_what_rearranges_or_repeats_all_values_keeps_them(tmp_path: Path):
    graph = """
    (float[1,32,8,8] x) => (float out, float y) {
      rows = Constant<value = int64[3] {1, 32, 64}>()
      twice = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()
      [flat] t = Reshape(x, rows) [turn] u = Transpose<perm = [0, 2, 1]>(t)
      [up] v = Resize<mode = "nearest">(x, , twice)
      [smooth] w = Resize<mode = "linear">(x, , twice) [tanh] y = Tanh(u)
      [add] out = Add(v, w)
    }"""
    model = model_of(text_of(graph, 17), tmp_path)
    assert sources(model.graph, {}) == {"t": "x", "u": "x", "v": "x"}
    trained = dict.fromkeys(("x", "t"), Range(-1, 1)) | dict.fromkeys(("u", "v"), Range(-2, 2))
    assert sources(model.graph, trained) == {"t": "x", "v": "u"}


test_of_the_same_values = builder_test(GRAPHS, 17)
