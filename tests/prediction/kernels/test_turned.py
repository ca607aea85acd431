"""Norms of rows of maps, and what Convs of groups and means are read by, as the builder has it."""

from tests.prediction.kernels.building import builder_test


def normed(body: str, channels: int = 64) -> str:
    text = """
    (float[1,C,8,8] x) => (float[1,C,8,8] out)
    <float[C,C,3,3] w1 = {1}, float[C,1,7,7] w2 = {1}, float[C,C,1,1] w3 = {1}, float[C] s = {1},
     float[C] b = {1}, float[1] f = {1}> {
      two = Constant<value = float {2}>()
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
      [turn1] t = Transpose<perm = [0, 2, 3, 1]>(c)
      [norm1] n = LayerNormalization<axis = -1>(t, s, b)
      [turn2] u = Transpose<perm = [0, 3, 1, 2]>(n)
      BODY
    }"""
    return text.replace("BODY", body).replace("C,", f"{channels},").replace("[C]", f"[{channels}]")


def grouped(body: str, inputs: str = "x, w1, b") -> str:
    return f"""
    (float[1,32,8,8] x) => (float[1,32,8,8] out)
    <float[32,4,3,3] w1 = {{1}}, float[32,32,1,1] w2 = {{1}}, float[32] b = {{1}}> {{
      first = Constant<value = int64[1] {{1}}>()
      [conv1] c = Conv<pads = [1, 1, 1, 1], group = 8>({inputs})
      [relu1] r = Relu(c)
      {body}
    }}"""


GRAPHS = {
    "Convs and what they add read rows of a norm as a map": normed(
        "[conv2] d = Conv<pads = [3, 3, 3, 3], group = 64>(u, w2, b)\n"
        "[conv3] e = Conv(d, w3, b)\n[add1] out = Add(e, u)"
    ),
    "so do pools": normed(
        "[pool1] p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(u)\n"
        "[conv2] out = Conv(p, w3, b)"
    ),
    "a Conv that is a matrix product reads rows that were turned": normed(
        "[conv2] d = Conv(u, w3)\n[relu1] r = Relu(d)\n"
        "[conv3] out = Conv<pads = [1, 1, 1, 1]>(r, w1, b)",
        256,
    ),
    "a power of a Conv's output is part of its kernel": normed(
        "[conv2] d = Conv(u, w3, b)\n[relu1] r = Relu(d)\n[square1] p = Pow(r, two)\n"
        "[mul1] m = Mul(p, f)\n[conv3] out = Conv(m, w3, b)"
    ),
    "but not if the output is read once more": normed(
        "[conv2] d = Conv(u, w3, b)\n[square1] p = Pow(d, two)\n[mul1] m = Mul(d, p)\n"
        "[conv3] out = Conv(m, w3, b)"
    ),
    "a Conv of groups leaves what is stacked next to another kernel": grouped(
        "[view1] u = Unsqueeze(r, first)\n[view2] v = Unsqueeze(x, first)\n"
        "[join1] j = Concat<axis = 1>(u, v)\n[sum1] k = ReduceSum<keepdims = 0>(j, first)\n"
        "[conv2] out = Conv(k, w2)"
    ),
    "but not what Convs read": grouped("[conv2] out = Conv(r, w2)"),
    "a kernel that takes a mean does not pad it": """
        (float[1,32,8,8] x) => (float[1,32,8,8] out)
        <float[32,32,3,3] w1 = {1}, float[1,1,3] w2 = {1}, float[32] b = {1}> {
          places = Constant<value = int64[2] {2, 3}>()
          row = Constant<value = int64[3] {1, 1, 32}>()
          column = Constant<value = int64[4] {1, 32, 1, 1}>()
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b)
          [mean1] m = ReduceMean<keepdims = 0>(c, places)
          [view1] r = Reshape(m, row)
          [conv2] y = Conv<pads = [1, 1]>(r, w2)
          [gate1] s = Sigmoid(y)
          [view2] z = Reshape(s, column)
          [mul1] out = Mul(c, z)
        }""",
}


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=18)
