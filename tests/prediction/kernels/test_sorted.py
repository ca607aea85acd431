"""The largest values and their places (ArgMax, TopK), behind which nothing is in their kernel."""

from tests.prediction.kernels.building import builder_test

CONV = "(float[1,16,8,8] x) => (%s) <float[16,16,3,3] w = {1}> { [conv] c = Conv(x, w) %s }"
SIZE = "size = Constant<value = int64[3] {1, 16, 36}>()"
GRAPHS = {
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
