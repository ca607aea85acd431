"""Places of maxima (ArgMax), the largest values (TopK) and running sums, which end a kernel."""

from tests.prediction.kernels.building import builder_test

CONV = "(float[1,16,8,8] x) => (%s) <float[16,16,3,3] w = {1}> { [conv] c = Conv(x, w) %s }"
SIZE = "size = Constant<value = int64[3] {1, 16, 36}>()"
ROUTER = """(float[16,24] x) => (float[16,4] v, int64[16,4] i %s) <float[24,64] w = {1}> {
      count = Constant<value = int64[1] {4}>()
      [scores] s = MatMul(x, w) [active] r = Sigmoid(s) [sort] v, i = TopK(r, count) %s }"""
SUMMED = """(float[16,24] x) => (float out) {
      axis = Constant<value = int64 {1}>() count = Constant<value = int64[1] {24}>()
      [first] r = Relu(x) [sort] v, i = TopK(r, count) [sums] c = CumSum(v, axis)
      [active] a = Sigmoid(c) [again] d = CumSum(a, axis) [last] out = Sub(d, v) }"""
GRAPHS = {
    "what a product makes for a sort alone is computed by the sort's kernel": ROUTER % ("", ""),
    "but not a Relu of what it sums": (ROUTER % ("", "")).replace("Sigmoid", "Relu"),
    "what others read, too, is computed by the product's": ROUTER
    % (", float[16,64] out", "[act] out = Sigmoid(r)"),
    "sums along rows are taken in FP32, too": SUMMED,
    "the places of maxima are cast for the graph's output by another kernel": CONV
    % ("int64 out", "[places] out = ArgMax<axis = 1, keepdims = 0>(c)"),
    "what is computed of them is in another kernel": CONV
    % ("float out", "[act] a = Sigmoid(c) [places] i = ArgMax<axis = 3>(a) "
       "[cast] f = Cast<to = 1>(i) [tanh] out = Tanh(f)"),
    "a view is computed before": CONV
    % ("int64 out", f"{SIZE} [flat] f = Reshape(c, size) [places] out = ArgMax<axis = 2>(f)"),
    "sorting is done in FP32": CONV
    % ("float out", f"{SIZE} count = Constant<value = int64[1] {{5}}>() "
       "[flat] f = Reshape(c, size) [sort] v, i = TopK(f, count) [act] out = Sigmoid(v)"),
    "the places of minima are found as those of maxima": CONV
    % ("int64 out", "[places] out = ArgMin<axis = 1, keepdims = 0>(c)"),
    "integers stay integers": "(int32[2,8] x) => (int32[2,3] v, int64[2,3] i) "
       "{ count = Constant<value = int64[1] {3}>() [sort] v, i = TopK(x, count) }",
}  # fmt: skip

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
