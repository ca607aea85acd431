"""Maps that are made of tokens: stored anew if these or their channels are few; padded maps."""

from tests.prediction.kernels.building import builder_test


def reduced(side: int, channels: int, window: int) -> str:
    """Keys of a SegFormer: a Conv over normed tokens, which queries are made of as well."""
    tokens, less = side * side, side // window
    return f"""
    (float[1,{channels},{side},{side}] x) =>
    (float[1,{tokens},{channels}] q, float[1,{channels},{less},{less}] k)
    <float[{channels}] g = {{1}}, float[{channels}] b = {{1}},
     float[{channels},{channels}] w = {{1}},
     float[{channels},{channels},{window},{window}] ws = {{1}}> {{
      flat = Constant<value = int64[3] {{1, {channels}, {tokens}}}>()
      map = Constant<value = int64[4] {{1, {channels}, {side}, {side}}}>()
      [relu] x1 = Relu(x)
      [view] x2 = Reshape(x1, flat)
      [turn] x3 = Transpose<perm = [0, 2, 1]>(x2)
      [first] x4 = MatMul(x3, w)
      [norm] n = LayerNormalization<axis = -1, epsilon = 1e-6>(x4, g, b)
      [queries] q = MatMul(n, w)
      [back] t = Transpose<perm = [0, 2, 1]>(n)
      [shape] m = Reshape(t, map)
      [reduce] k = Conv<strides = [{window}, {window}], kernel_shape = [{window}, {window}]>(m, ws)
    }}"""


def mixed(side: int, channels: int) -> str:
    """A depthwise Conv over tokens."""
    tokens = side * side
    return f"""
    (float[1,{tokens},{channels}] x) => (float[1,{channels},{side},{side}] out)
    <float[{channels}] b = {{1}}, float[{channels},{channels}] w = {{1}},
     float[{channels},1,3,3] wd = {{1}}> {{
      map = Constant<value = int64[4] {{1, {channels}, {side}, {side}}}>()
      [first] y = MatMul(x, w)
      [bias] z = Add(y, b)
      [turn] t = Transpose<perm = [0, 2, 1]>(z)
      [shape] m = Reshape(t, map)
      [depth] out = Conv<group = {channels}, pads = [1, 1, 1, 1], kernel_shape = [3, 3]>(m, wd)
    }}"""


def line(behind: str, channels: int = 64) -> str:
    """A depthwise Conv over a line, of what ``behind`` computes of another Conv's."""
    return f"""
    (float[1,{channels},50] x) => (float[1,{channels},50] out)
    <float[{2 * channels},{channels},1] w2 = {{1}}, float[{channels},{channels},1] w = {{1}},
     float[{channels},1,5] wd = {{1}}> {{
      {behind}
      [depth] out = Conv<group = {channels}, pads = [2, 2], kernel_shape = [5]>(m, wd)
    }}"""


ONE = "[conv] y = Conv(x, w)"
GATED = "[conv] y = Conv(x, w2) [parts] a, b = Split<axis = 1>(y) [gate] g = Sigmoid(b)"

test_maps_of_tokens = builder_test(
    {
        "few channels": reduced(8, 16, 2),
        "few tokens": reduced(4, 64, 2),
        "more of both": reduced(8, 32, 4),
    },
    opset=17,
)
QUANTIZED = "x->first w->first m->depth wd->depth"
test_padded_maps_of_tokens = builder_test(
    {
        "few tokens": (QUANTIZED, mixed(4, 64)),
        "few channels": (QUANTIZED, mixed(8, 16)),
        "more of both": (QUANTIZED, mixed(8, 64)),
    },
    opset=17,
)
PAIRS = "x->conv w->conv w2->conv m->depth wd->depth"
test_padded_lines = builder_test(
    {
        "one operand": (PAIRS, line(f"{ONE} [act] m = Tanh(y)")),
        "the same one twice": (PAIRS, line(f"{ONE} [act] m = Mul(y, y)")),
        "gate of an operand": (PAIRS, line(f"{ONE} [gate] g = Sigmoid(y) [act] m = Mul(y, g)")),
        "HardSwish": (PAIRS, line(f"{ONE} [act] m = HardSwish(y)")),
        "gate of another": (PAIRS, line(f"{GATED} [act] m = Mul(a, g)")),
        "sum": (PAIRS, line(f"{ONE} [act] m = Add(y, x)")),
    },
    opset=17,
)
