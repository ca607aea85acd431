"""Maps of one dimension that are joined, resized and cut: NVIDIA's builder's layers."""

from tests.prediction.kernels.building import builder_test

JOINED = """
    (float[1,32,64] x, float[1,32,64] y) => (float[1,24,64] out)
    <float[24,32,5] w1 = {1}, float[24,32,5] w2 = {1}, float[24,48,5] w3 = {1}> {
      [conv1] c = Conv<pads = [2, 2]>(x, w1)
      [relu1] a = Relu(c)
      [conv2] d = Conv<pads = [2, 2]>(y, w2)
      [relu2] b = Relu(d)
      [join] j = Concat<axis = 1>(a, b)
      [conv3] out = Conv<pads = [2, 2]>(j, w3)
    }"""
RESIZED = """
    (float[1,32,64] x) => (float[1,24,128] out)
    <float[48,32,5] w1 = {1}, float[24,48,5] w2 = {1}> {
      size = Constant<value = int64[3] {1, 48, 128}>()
      [conv1] c = Conv<pads = [2, 2]>(x, w1)
      [leaky] a = LeakyRelu(c)
      [resize] r = Resize<mode = "linear">(a, , , size)
      [conv2] out = Conv<pads = [2, 2]>(r, w2)
    }"""
CHANNELS = """
    (float[1,64,16,16] x) => (float[1,64,16,16] out)
    <float[64,64,3,3] w1 = {1}, float[1,1,3] w2 = {1}, float[64,64,1,1] w3 = {1}> {
      line = Constant<value = int64[3] {1, 1, 64}>()
      map = Constant<value = int64[4] {1, 64, 1, 1}>()
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
      [mean] m = GlobalAveragePool(c)
      [flat] l = Reshape(m, line)
      [conv2] e = Conv<pads = [1, 1]>(l, w2)
      [gate] s = Sigmoid(e)
      [long] t = Reshape(s, map)
      [scale] y = Mul(c, t)
      [conv3] out = Conv(y, w3)
    }"""
GROUPS = """
    (float[1,32,24] x) => (float out)
    <float[32,32,1] w1 = {{1}}, float[32,8,1] w2 = {{1}}, float[32] b = {{1}},
     float[32,32,1] w3 = {{1}}> {{
      heads = Constant<value = int64[4] {{1, 4, 8, 24}}>()
      [conv1] c = Conv<kernel_shape = [1]>(x, w1)
      [conv2] d = Conv<group = 4, kernel_shape = [1]>(c, w2, b)
      {behind}
    }}"""
SILU = "[gate] s = Sigmoid(d) [silu] e = Mul(d, s) [conv3] out = Conv<kernel_shape = [1]>(e, w3)"
HEADS = "[apart] h = Reshape(d, heads) [turn] t = Transpose<perm = [0, 1, 3, 2]>(h)"
SUMMED = """
    (float[1,32,40] x) => (float[1,64] out)
    <float[64,32,1] w1 = {1}, float[64] b = {1}, float[64,64] w2 = {1}> {
      [conv1] c = Conv(x, w1, b)
      [leaky] a = LeakyRelu(c)
      [largest] m = ReduceMax<axes = [2], keepdims = 0>(a)
      [product] out = MatMul(m, w2)
    }"""
ENTERING = """
    (float[1,32,16] x) => (float[1,24,32] out)
    <float[24,16,3] w = {1}, float[24] b = {1}> {
      [turn] t = Transpose<perm = [0, 2, 1]>(x)
      [conv] out = Conv<pads = [1, 1]>(t, w, b)
    }"""
GRAPHS = {
    "a Conv's kernel computes what is summed of its line": SUMMED,
    "another kernel than that of a Conv of groups computes a SiLU": GROUPS.format(behind=SILU),
    "a Conv of groups adds the bias of heads": GROUPS.format(
        behind=f"{HEADS} [shares] out = Softmax<axis = -1>(t)"
    ),
    "lines are joined by a kernel": JOINED,
    "an activation stays with its Conv where the line is resized": RESIZED,
}
QUANTIZED = {
    "what quantizes a graph input and turns it for a Conv is called after it": (
        "t->conv w->conv",
        ENTERING,
    ),
    "and quantized by it": ("a->join b->join j->conv3 w3->conv3", JOINED),
    "a Conv over the channels' means is not padded": (
        "x->conv1 w1->conv1 l->conv2 w2->conv2 y->conv3 w3->conv3",
        CHANNELS,
    ),
}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
test_quantized_layers_are_those_that_the_builder_makes = builder_test(QUANTIZED, opset=17)
