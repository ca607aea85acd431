"""Means and norms that are computed of before they are joined or multiplied; pairs in float."""

from tests.prediction.kernels.building import builder_test

NORM = "[norm] y = LayerNormalization<axis = -1>(p, g, b)"


def joined(behind: str, norm: str = NORM, rows: int = 17) -> str:
    return f"""
    (float[1,16,64] x, float[1,16,64] z) => (float[1,{rows},64] out)
    <float[64] g = {{1}}, float[64] b = {{1}}, float[64,64] w = {{1}}, float[64,64] v = {{1}},
     float[1,1,64] token = {{1}}> {{
      [product] p = MatMul(x, w)
      {norm}
      {behind}
    }}"""


def means(behind: str, outputs: str = "float[1,16,1,1] out") -> str:
    return f"""
    (float[1,16,8,8] x) => ({outputs})
    <float[16,16,1,1] w = {{1}}, float[16,16,1,1] v = {{1}}, float[10,16] f = {{1}},
     float[10] fb = {{1}}> {{
      [conv0] y = Conv(x, v)
      [mean] m = GlobalAveragePool(y)
      {behind}
    }}"""


def row(length: int) -> str:
    return f"""
    (float[1,{length}] x) => (float[1,10] out)
    <float[{length},10] w = {{1}}, float[10] b = {{1}}> {{
      [act] a = Tanh(x)
      [product] p = Gemm(a, w, b)
      [soft] out = Softmax<axis = -1>(p)
    }}"""


GRAPHS = {
    "what norms rows does not join them": joined(
        "[join] c = Concat<axis = 1>(token, y)\n[last] out = MatMul(c, v)"
    ),
    "another norm's kernel does": joined(
        "[join] c = Concat<axis = 1>(token, y)\n"
        "[again] n = LayerNormalization<axis = -1>(c, g, b)\n[last] out = MatMul(n, v)"
    ),
    "and does what is added before": joined(
        "[add] a = Add(y, z)\n[join] c = Concat<axis = 1>(token, a)\n"
        "[again] out = LayerNormalization<axis = -1>(c, g, b)"
    ),
    "so it is of a Softmax": joined(
        "[join] c = Concat<axis = 1>(z, y)\n[again] out = LayerNormalization<axis = -1>(c, g, b)",
        "[soft] y = Softmax<axis = -1>(p)",
        rows=32,
    ),
    "means are rectified before a Conv by a kernel of its own": means(
        "[relu] a = Relu(m)\n[conv1] out = Conv(a, w)"
    ),
    "before a product of one row by that": means(
        "[relu] a = Relu(m)\n[flat] r = Flatten(a)\n[classes] out = Gemm<transB = 1>(r, f, fb)",
        "float[1,10] out",
    ),
    "where they leave as they are taken": means("[act] out = Sigmoid(m)"),
    "a row of six elements is multiplied element by element": row(6),
    "one of seven is not": row(7),
    "pools that are alike are one": """
    (float[1,16,8,8] x) => (float[1,16,8,8] out)
    <float[16,16,1,1] v = {1}, float[16,16,1,1] w = {1}> {
      [conv0] y = Conv(x, v)
      [pool1] a = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(y)
      [pool2] b = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(y)
      [act] t = Tanh(a)
      [add] c = Add(t, b)
      [conv1] out = Conv(c, w)
    }""",
    "a Concat of one tensor is nothing": """
    (float[1,16,8,8] x) => (float[1,16,8,8] out)
    <float[16,16,3,3] v = {1}, float[16,16,3,3] w = {1}> {
      [conv0] y = Conv<pads = [1, 1, 1, 1]>(x, v)
      [join] c = Concat<axis = 1>(y)
      [conv1] d = Conv<pads = [1, 1, 1, 1]>(c, w)
      [add] out = Add(y, d)
    }""",
    "so is a Slice of all": """
    (float[1,16,16,16] x) => (float[1,16,16,16] out)
    <float[16,16,3,3] u = {1}, float[16,16,2,2] v = {1}, float[16,16,1,1] w = {1}> {
      start = Constant<value = int64[1] {0}>()
      end = Constant<value = int64[1] {16}>()
      axis = Constant<value = int64[1] {2}>()
      [conv0] y = Conv(x, w)
      [conv1] s = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(y, u)
      [up] t = ConvTranspose<strides = [2, 2]>(s, v)
      [cut] c = Slice(t, start, end, axis)
      [add] a = Add(y, c)
      [conv2] out = Conv(a, w)
    }""",
}
QUANTIZED = {
    "a ConvTranspose reads what a kernel quantizes and dequantizes": (
        "r->up w->up",
        """
        (float[1,16,8,8] x) => (float[1,16,16,16] out)
        <float[16,16,1,1] v = {1}, float[16,16,2,2] w = {1}> {
          [conv0] y = Conv(x, v)
          [relu] r = Relu(y)
          [up] u = ConvTranspose<strides = [2, 2]>(r, w)
          [act] out = Sigmoid(u)
        }""",
    ),
    "what a MaxPool of integers writes is dequantized for a Concat of floats": (
        "t->pool",
        """
        (float[1,16,8,8] x) => (float[1,16,8,8] out)
        <float[16,16,1,1] v = {1}, float[16,16,3,3] u = {1}, float[16,32,1,1] w = {1}> {
          [conv0] y = Conv(x, v)
          [act] t = HardSwish(y)
          [pool] p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(t)
          [conv1] d = Conv<pads = [1, 1, 1, 1]>(t, u)
          [join] c = Concat<axis = 1>(p, d)
          [conv2] out = Conv(c, w)
        }""",
    ),
    "means that are rectified are quantized by another kernel": (
        "a->conv1 w->conv1",
        means("[relu] a = Relu(m)\n[conv1] out = Conv(a, w)"),
    ),
}
test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, 17)
test_quantized_layers_are_those_that_the_builder_makes = builder_test(QUANTIZED, 17)
