"""Blocks of diffusion networks: what NVIDIA's builder makes of them is predicted."""

from tests.prediction.kernels.building import builder_test

# A GroupNorm of eight groups, as PyTorch exports it, of what is called ``c``; it writes ``n``.
NUMBERS = """
      one = Constant<value = float[8] {1, 1, 1, 1, 1, 1, 1, 1}>()
      zero = Constant<value = float[8] {0, 0, 0, 0, 0, 0, 0, 0}>()
      groups = Constant<value = int64[3] {1, 8, -1}>()"""
NORM = """
      [rows1] r = Reshape(c, groups)
      [norm1] i = InstanceNormalization(r, one, zero)
      [map1] m = Reshape(i, given)
      [scale1] s = Mul(m, g)
      [shift1] n = Add(s, g)"""
OF_MAP = f"""
    (float[1,16,8,8] x) => (float[1,16,8,8] out)
    <float[64,16,3,3] w1 = {{1}}, float[64,1,1] g = {{1}}, float[64,64] w2 = {{1}},
     float[64] b = {{1}}, float[16,64,1,1] w3 = {{1}}> {{
      {NUMBERS}
      given = Constant<value = int64[4] {{1, 64, 8, 8}}>()
      tokens = Constant<value = int64[3] {{1, 64, 64}}>()
      back = Constant<value = int64[4] {{1, 8, 8, 64}}>()
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
      {NORM}
      [turn1] t1 = Transpose<perm = [0, 2, 3, 1]>(n)
      [flat1] t = Reshape(t1, tokens)
      [product1] p = MatMul(t, w2)
      [bias1] y = Add(p, b)
      [long1] l = Reshape(y, back)
      [turn2] k = Transpose<perm = [0, 3, 1, 2]>(l)
      [add1] a = Add(k, c)
      [conv2] out = Conv(a, w3)
    }}"""
OF_LINE = f"""
    (float[1,16,8,8] x) => (float[1,16,8,8] out)
    <float[64,16,3,3] w1 = {{1}}, float[64,1] g = {{1}}, float[64,64] w2 = {{1}},
     float[64] b = {{1}}, float[16,64,1,1] w3 = {{1}}> {{
      {NUMBERS}
      given = Constant<value = int64[3] {{1, 64, 64}}>()
      back = Constant<value = int64[4] {{1, 64, 8, 8}}>()
      [conv1] c0 = Conv<pads = [1, 1, 1, 1]>(x, w1)
      [flat1] c = Reshape(c0, given)
      {NORM}
      [turn1] t = Transpose<perm = [0, 2, 1]>(n)
      [product1] p = MatMul(t, w2)
      [bias1] y = Add(p, b)
      [turn2] k = Transpose<perm = [0, 2, 1]>(y)
      [long1] l = Reshape(k, back)
      [add1] a = Add(l, c0)
      [conv2] out = Conv(a, w3)
    }}"""
WIDE = (
    OF_MAP.replace("[turn1] t1 = Transpose<perm = [0, 2, 3, 1]>(n)", "[sig1] t1 = Sigmoid(n)")
    .replace("[flat1] t = Reshape(t1, tokens)", "[gate1] a = Mul(n, t1)")
    .replace("8,8]", "16,16]")
    .replace("8, 8}", "16, 16}")
    .replace("[64,", "[96,")
    .replace(",64", ",96")
    .replace("1, 64,", "1, 96,")
)
LARGE = WIDE[: WIDE.index("[product1]")] + WIDE[WIDE.index("[conv2]") :]
JOINED = f"""
    (float[1,16,8,8] x) => (float[1,16,8,8] out)
    <float[32,16,3,3] w1 = {{1}}, float[64,1,1] g = {{1}}, float[32,32,3,3] w2 = {{1}},
     float[16,64,1,1] w3 = {{1}}, float[16,64,1,1] w4 = {{1}}> {{
      {NUMBERS}
      given = Constant<value = int64[4] {{1, 64, 8, 8}}>()
      half = Constant<value = int64[4] {{1, 32, 8, 8}}>()
      [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(x, w1)
      [relu1] r1 = Relu(c1)
      [conv2] c2 = Conv<pads = [1, 1, 1, 1]>(r1, w2)
      [join1] c = Concat<axis = 1>(c2, r1)
      {NORM}
      [relu2] a = Relu(n)
      [conv3] d = Conv(a, w3)
      [conv4] e = Conv(c, w4)
      [add1] out = Add(d, e)
    }}"""
NORMED_PART = JOINED.replace(
    "[conv2] c2 = Conv<pads = [1, 1, 1, 1]>(r1, w2)",
    """[rows0] r0 = Reshape(r1, groups)
      [norm0] i0 = InstanceNormalization(r0, one, zero)
      [map0] m0 = Reshape(i0, half)
      [scale0] s0 = Mul(m0, hg)
      [shift0] n0 = Add(s0, hg)
      [conv2] c2 = Conv<pads = [1, 1, 1, 1]>(n0, w2)""",
).replace("<float[32,16", "<float[32,1,1] hg = {1}, float[32,16")
GRAPHS = {
    "rows of a GroupNorm's map cost nothing, and rows that become a map get their bias there": (
        OF_MAP
    ),
    "of flattened places the kernel for InstanceNorm is between two, of which the last one turns": (
        OF_LINE
    ),
    "a large map is turned before what follows a GroupNorm of 96 channels, but for Relu": LARGE,
    "a Concat of what a GroupNorm reads is a kernel": NORMED_PART,
    "one of what it does not is written in place": JOINED,
    "single rows are multiplied in turn: a square weight's kernel computes no bias": """
        (float[1,32] x) => (float[1,48] out)
        <float[64,64] w1 = {1}, float[64] b1 = {1}, float[64,64] w2 = {1},
         float[64,48] w3 = {1}, float[48] b3 = {1}> {
          [sin1] s = Sin(x)
          [cos1] c = Cos(x)
          [join1] j = Concat<axis = 1>(s, c)
          [product1] p1 = Gemm(j, w1, b1)
          [sig1] g1 = Sigmoid(p1)
          [gate1] a1 = Mul(p1, g1)
          [product2] p2 = Gemm(a1, w2, b1)
          [sig2] g2 = Sigmoid(p2)
          [gate2] a2 = Mul(p2, g2)
          [product3] out = Gemm(a2, w3, b3)
        }""",
    "products of one row are one, of a large weight a kernel that does not compute the row": """
        (float[1,256] x) => (float[1,256] out, float[1,264] other)
        <float[256,256] w1 = {1}, float[256] b1 = {1}, float[256,264] w2 = {1},
         float[264] b2 = {1}> {
          [sig1] g1 = Sigmoid(x)
          [gate1] a1 = Mul(x, g1)
          [product1] p1 = Gemm(a1, w1, b1)
          [product2] p2 = Gemm(a1, w2, b2)
          [relu1] out = Relu(p1)
          [relu2] other = Relu(p2)
        }""",
    "rows that become a map and are resized are turned by a kernel of their own": """
        (float[1,64,16] x) => (float[1,16,16,16] out)
        <float[16,64] w1 = {1}, float[64] b = {1}, float[16,64,3,3] w2 = {1}> {
          map = Constant<value = int64[4] {1, 64, 8, 8}>()
          scales = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()
          [relu1] r = Relu(x)
          [product1] p = MatMul(r, w1)
          [bias1] y = Add(p, b)
          [turn1] t = Transpose<perm = [0, 2, 1]>(y)
          [long1] m = Reshape(t, map)
          [resize1] u = Resize<mode = "linear">(m, , scales)
          [conv1] out = Conv<pads = [1, 1, 1, 1]>(u, w2)
        }""",
}
QUANTIZED = {
    "a GroupNorm's map is quantized by a kernel of its own, and its rows cost nothing": (
        "t->product1 w2->product1",
        OF_MAP,
    ),
    "an INT8 Conv's sum is written before the GroupNorm's first kernel": (
        "x->conv1 w1->conv1",
        OF_LINE,
    ),
}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
test_quantized_layers_are_those_that_the_builder_makes = builder_test(QUANTIZED, opset=17)
