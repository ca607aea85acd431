"""Views between kernels: at graph outputs, before channels that are padded and before Convs."""

from tests.prediction.kernels.building import builder_test

CONV = "[conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w)\n"


def leaving(body: str, out: str, given: str = "[1,16,8,8]", made: str = "{1, 16, 64}") -> str:
    """A graph whose last node reshapes what ``body`` computes of a map, rows or a row."""
    return f"""
    (float{given} x) => (float{out} out)
    <float[16,16,3,3] w = {{1}}, float[64,64] a = {{1}}, float[64] b = {{1}}> {{
      shape = Constant<value = int64[{made.count(",") + 1}] {made}>()
      {body}
      [view] out = Reshape(c, shape)
    }}"""


ROWS, ROW, MATRIX = "[1,16,64]", "[1,64]", "[16,64]"
BIASED = "[product] p = MatMul(x, a)\n[bias] c = Add(p, b)"
OUTPUTS = {
    "what casts a reshaped map is called after the Reshape": leaving(CONV, "[1,16,64]"),
    "as is what casts pooled maps": leaving(
        "[pool] c = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)", "[1,256]", made="{1, 256}"
    ),
    "but not if a dimension of one is all that goes": leaving(CONV, "[16,8,8]", made="{16, 8, 8}"),
    "rows with a bias are moved, too": leaving(BIASED, "[1,16,2,32]", ROWS, "{1, 16, 2, 32}"),
    "those of a product alone are not": leaving(
        "[product] c = MatMul(x, a)", "[1,16,2,32]", ROWS, "{1, 16, 2, 32}"
    ),
    "nor are those of one matrix": leaving(BIASED, "[4,4,64]", MATRIX, "{4, 4, 64}"),
    "a single row is": leaving("[product] c = MatMul(x, a)", "[4,16]", ROW, "{4, 16}"),
    "places that become rows are called after both nodes": leaving(CONV, "[1,64,16]").replace(
        "out = Reshape(c, shape)",
        "r = Reshape(c, shape)\n[turn] out = Transpose<perm = [0, 2, 1]>(r)",
    ),
}


def padded(body: str, given: str = "[1,16,64]") -> str:
    """A graph with a Conv of one channel, which is padded."""
    return f"""
    (float{given} x) => (float[1,16,16,64] out) <float[16,1,3,3] w = {{1}}> {{
      axis = Constant<value = int64[1] {{1}}>()
      {body}
      [conv1] out = Conv<pads = [1, 1, 1, 1]>(m, w)
    }}"""


LINE = """(float[1,15,64] x) => (float[1,16,64] out) <float[16,15,3] w = {1}> {
      [tanh] t = Tanh(x)
      [conv1] c = Conv<pads = [1, 1]>(t, w)
      [relu] out = Relu(c)
    }"""
PADDED = {
    "channels behind a view are padded by another kernel": padded("[view] m = Unsqueeze(x, axis)"),
    "also integers": ("m->conv1 w->conv1", padded("[view] m = Unsqueeze(x, axis)")),
    "and what is computed before": padded("[tanh] t = Tanh(x)\n[view] m = Unsqueeze(t, axis)"),
    "those of a line are, as it is a map to the builder": LINE,
}


def mapped(given: str, body: str, made: str = "{1, 16, 8, 8}") -> str:
    """A graph with a Conv of what ``body`` makes a map of, ``m``."""
    return f"""
    ({given}) => (float out)
    <float[64,64] a = {{1}}, float[64] b = {{1}}, float[32,16,3,3] w = {{1}}> {{
      shape = Constant<value = int64[4] {made}>()
      {body}
      [conv1] out = Conv<pads = [1, 1, 1, 1]>(m, w)
    }}"""


HEADS = "[product] p = MatMul(x, y)\n"
MAPPED = {
    "rows that become a map are moved": mapped(
        "float[1,16,64] x", "[product] p = MatMul(x, a)\n[view] m = Reshape(p, shape)"
    ),
    "by the kernel that adds their bias": mapped(
        "float[1,16,64] x",
        "[product] p = MatMul(x, a)\n[bias] c = Add(p, b)\n[view] m = Reshape(c, shape)",
    ),
    "heads that a Conv reads are": mapped(
        "float[1,4,16,16] x, float[1,4,16,8] y", HEADS + "[turn] m = Transpose<perm = [0,2,1,3]>(p)"
    ),
    "a map of other channels is": mapped(
        "float[1,16,16,16] x",
        "[conv0] c = Conv<pads = [1, 1, 1, 1]>(x, w)\n[view] m = Reshape(c, shape)",
        "{1, 16, 16, 32}",
    ),
}
SCALED = {
    "a Div by a constant is computed behind a Conv and its bias": """
    (float[1,16,8,8] x) => (float[1,16,8,8] out) <float[16,16,3,3] w = {1}, float[16] b = {1}> {
      root = Constant<value = float {1.4142}>()
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w, b)
      [scale] out = Div(c, root)
    }""",
    "means of a line are taken in float": (
        "x->pool1 p->conv1 w->conv1",
        """(float[1,16,60] x) => (float[1,16,30] out) <float[16,16,3] w = {1}> {
      [pool1] p = AveragePool<kernel_shape = [2], strides = [2], count_include_pad = 1>(x)
      [conv1] out = Conv<pads = [1, 1]>(p, w)
    }""",
    ),
    "a graph input that is pooled and joined is copied for the pool": """
    (float[1,32,8,8] x) => (float[1,8,8,8] out) <float[8,64,1,1] w = {1}> {
      [pool1] p = MaxPool<kernel_shape = [5, 5], pads = [2, 2, 2, 2]>(x)
      [join] j = Concat<axis = 1>(x, p)
      [conv1] out = Conv(j, w)
    }""",
}
test_views_of_what_leaves_the_graph = builder_test(OUTPUTS, opset=17)
test_views_before_channels_are_padded = builder_test(PADDED, opset=17)
test_views_that_become_maps = builder_test(MAPPED, opset=17)
test_what_else_is_scaled_pooled_and_copied = builder_test(SCALED, opset=17)
