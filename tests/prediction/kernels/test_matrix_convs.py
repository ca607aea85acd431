"""1x1 Convs that are matrix products, pools of integers and the order of Convs that are added."""

from pathlib import Path

from placer.quantization import EMPTY
from tests.prediction.kernels.building import builder_test, model_of, predicted, text_of


def added(body: str, channels: int = 256) -> str:
    """A residual block of one Conv, between a pool and another Conv."""
    return f"""
    (float[1,{channels},16,16] x) => (float[1,{channels},8,8] out)
    <float[{channels},{channels},1,1] w = {{1}}, float[{channels}] b = {{1}},
     float[{channels},{channels},3,3] v = {{1}}> {{
      [pool1] a = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
      [conv1] c = Conv(a, w, b)
      {body}
      [conv2] out = Conv<pads = [1, 1, 1, 1]>(z, v)
    }}"""


SILU = "[gate1] s = Sigmoid(c)\n[silu1] t = Mul(c, s)\n[add1] z = Add(t, a)"


def pooled(attributes: str, size: int) -> str:
    return f"""
    (float[1,32,16,16] x) => (float[1,32,{size},{size}] out)
    <float[32,32,3,3] w = {{1}}, float[32,32,3,3] v = {{1}}> {{
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w)
      [relu1] r = Relu(c)
      [pool1] p = AveragePool<{attributes}>(r)
      [conv2] out = Conv<pads = [1, 1, 1, 1]>(p, v)
    }}"""


POOL_PAIRS = "x->conv1 w->conv1 r->pool1 p->conv2 v->conv2"
HALVED = "kernel_shape = [2, 2], strides = [2, 2]"
GATED = """
    (float[1,16,4,4] x) => (float out)
    <float[512,16,1,1] w0 = {1}, float[256,512,1,1] w1 = {1}, float[256] b1 = {1},
     float[512,256,1,1] w2 = {1}, float[512] b2 = {1}, float[16,512,1,1] w3 = {1}> {
      [conv0] c = Conv(x, w0) [relu0] a = Relu(c) [mean] m = ReduceMean<axes = [2, 3]>(a)
      [conv1] d = Conv(m, w1, b1) [relu1] e = Relu(d) [conv2] f = Conv(e, w2, b2)
      [gate] g = HardSigmoid(f) [scale] s = Mul(a, g) [conv3] out = Conv(s, w3)
    }"""
TWO_DEPTHS = """
    (float[1,32,8,8] x) => (float[1,32,8,8] out)
    <float[32,32,3,3] w = {1}, float[32,32,1,1] v = {1}> {
      [relu1] r = Relu(x)
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(r, w)
      [conv2] d = Conv(x, v)
      [add1] s = Add(d, c)
      [relu2] out = Relu(s)
    }"""
SLICED = """
    (float[1,256,8,8] x) => (float[1,64,8,8] out)
    <float[256,256,1,1] w1 = {1}, float[128,128,3,3] w2 = {1}, float[64,384,1,1] w3 = {1}> {
      axis = Constant<value = int64[1] {1}>()
      zero = Constant<value = int64[1] {0}>()
      half = Constant<value = int64[1] {128}>()
      all = Constant<value = int64[1] {256}>()
      [conv1] c = Conv(x, w1)
      [relu1] r = Relu(c)
      [part1] a = Slice(r, zero, half, axis)
      [part2] b = Slice(r, half, all, axis)
      [conv2] d = Conv<pads = [1, 1, 1, 1]>(b, w2)
      [join1] j = Concat<axis = 1>(a, b, d)
      [conv3] out = Conv(j, w3)
    }"""
JOINED = """
    (float[1,8,8,8] x) => (float[1,64,8,8] out)
    <float[256,8,3,3] w1 = {1}, float[128,256,1,1] w2 = {1}, float[256,384,1,1] w3 = {1},
     float[256,384,1,1] w4 = {1}, float[64,512,3,3] w5 = {1}, float[256] b = {1}> {
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b)
      [relu1] r = Relu(c)
      [conv2] d = Conv(r, w2)
      [relu2] q = Relu(d)
      [join1] j = Concat<axis = 1>(r, q)
      [conv3] e = Conv(j, w3, b)
      [gate3] s = Sigmoid(e)
      [silu3] t = Mul(e, s)
      [conv4] f = Conv(j, w4, b)
      [relu4] u = Relu(f)
      [join2] k = Concat<axis = 1>(t, u)
      [conv5] l = Conv<pads = [1, 1, 1, 1]>(k, w5)
      [relu5] out = Relu(l)
    }"""
GRAPHS = {
    "a matrix product computes a gate that is spread over a map": GATED,
    "joined tensors are copied for matrix products, whose SiLU joins what it makes": ("", JOINED),
    "slices of what a matrix product wrote are of one kernel": ("", SLICED),
    "a matrix product adds nothing behind its activation": ("", added(SILU)),
    "as a Conv of fewer channels does": ("", added(SILU, 64)),
    "but a map before it": ("", added("[add1] s = Add(c, a)\n[relu1] z = Relu(s)")),
    "nor does it multiply maps": ("", added("[gate1] s = Sigmoid(c)\n[mul1] z = Mul(a, s)")),
    "averages of integers that count what is padded": (
        POOL_PAIRS,
        pooled(HALVED + ", count_include_pad = 1", 8),
    ),
    "others are taken in float": (POOL_PAIRS, pooled(HALVED, 8)),
    "but for windows of 3": (POOL_PAIRS, pooled("kernel_shape = [3, 3], pads = [1, 1, 1, 1]", 16)),
    "not of 5": (POOL_PAIRS, pooled("kernel_shape = [5, 5], pads = [2, 2, 2, 2]", 16)),
    "a Conv of the graph's input comes behind what is computed of it": ("", TWO_DEPTHS),
}


def test_the_input_is_cast_before_anything_reads_it(tmp_path: Path):
    plan = predicted(model_of(text_of(TWO_DEPTHS, 17), tmp_path).graph, EMPTY)

    assert ("add1", "conv2", "relu2") in [layer.nodes for layer in plan.layers]


def test_one_copy_of_a_joined_tensor_is_read_as_a_matrix(tmp_path: Path):
    plan = predicted(model_of(text_of(JOINED, 17), tmp_path).graph, EMPTY)

    assert [layer.name for layer in plan.of_kind("reformat")][1:-1] == ["reformat j"]
    assert [layer.nodes for layer in plan.of_kind("compute")][2:] == [
        ("conv3",),
        ("gate3", "silu3"),
        ("conv4", "relu4"),
        ("conv5", "relu5"),
    ]


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=17)
