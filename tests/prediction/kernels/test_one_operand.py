"""Products of activations of which some operands have pairs."""

from tests.prediction.kernels.building import builder_test

ATTENTION = """
    (float[1,2,8,16] x, float[1,2,16,8] y, float[1,2,8,16] z) => (float out) {
      [relu1] q = Relu(x) [relu2] k = Relu(y) [relu3] v = Relu(z)
      [scores] s = MatMul(q, k) [shares] p = Softmax<axis = -1>(s) [mix] out = MatMul(p, v)
    }"""
MATRICES = "(float[1,8,16] a, float[1,16,8] b) => (float out) { [product] out = MatMul(a, b) }"
FEW = """
    (float[2,4,1,1] x) => (float out) <float[16,4,1,1] w = {1}, float[16] b = {1}> {
      [conv] c = Conv(x, w, b) [gate] out = HardSigmoid(c)
    }"""
TURNED = """
    (float[1,16,8,8] x) => (float out) <float[16,32] w = {1}> {
      size = Constant<value = int64[3] {1, 16, 64}>()
      [flat] f = Reshape(x, size) [turn] t = Transpose<perm = [0, 2, 1]>(f)
      [product] out = MatMul(t, w)
    }"""
SCALED = """
    (float[1,16,32] x) => (float out) <float[32,32] w = {1}, float[32,32] v = {1}> {
      third = Constant<value_float = 0.3>()
      [product1] p = MatMul(x, w) [scale] s = Mul(p, third) [product2] out = MatMul(s, v)
    }"""
GRAPHS = {
    "an attention is one kernel if no product multiplies integers": (
        "q->scores v->mix",
        ATTENTION,
    ),
    "it is none if one does, and the other one dequantizes its second operand": (
        "q->scores k->scores v->mix",
        ATTENTION,
    ),
    "of three dimensions the first one is dequantized, too": ("a->product", MATRICES),
    "Convs of few channels sum integers of several samples themselves": (
        "x->conv w->conv",
        FEW,
    ),
    "what turns and quantizes a graph input has no name": ("t->product w->product", TURNED),
    "nor has what scales and quantizes": ("s->product2 v->product2", SCALED),
}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
