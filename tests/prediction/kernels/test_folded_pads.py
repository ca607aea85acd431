"""Pads that become part of the Convs behind them, and biases of Convs that stand apart."""

from pathlib import Path

from placer.quantization import EMPTY
from tests.prediction.kernels.building import (
    builder_test,
    model_of,
    placement_of,
    predicted,
    text_of,
)

PADS = "0, 0, 0, 0, 0, 0, 1, 1"
NHWC = """[turn1] t = Transpose<perm = [0, 2, 3, 1]>(a)
      [pad1] q = Pad(t, pads)
      [turn2] p = Transpose<perm = [0, 3, 1, 2]>(q)"""


def padded(pads: str = PADS, by: str = "[pad1] p = Pad(a, pads)", group: int = 1) -> str:
    """Convs with a Pad between, as Keras and TensorFlow write strides of 2."""
    return f"""
    (float[1,16,16,16] x) => (float[1,32,8,8] out)
    <float[32,16,1,1] w = {{1}}, float[32,{32 // group},3,3] v = {{1}}> {{
      pads = Constant<value = int64[8] {{{pads}}}>()
      [conv1] c = Conv(x, w)
      [relu1] a = Relu(c)
      {by}
      [conv2] d = Conv<strides = [2, 2], group = {group}>(p, v)
      [relu2] out = Relu(d)
    }}"""


GATED = """
    (float[1,16,32,32] x) => (float[1,32,32,32] out)
    <float[32,16,3,3] w = {1}, float[8,32,1,1] v = {1}, float[1,8,1,1] b = {1},
     float[32,8,1,1] u = {1}, float[32,1,1] d = {1}, float[32,32,1,1] s = {1}> {
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w)
      [relu1] a = Relu(c)
      [mean1] m = GlobalAveragePool(a)
      [conv2] e = Conv(m, v)
      [bias2] f = Add(e, b)
      [relu2] r = Relu(f)
      [conv3] g = Conv(r, u)
      [bias3] h = Add(g, d)
      [gate1] i = Sigmoid(h)
      [scale1] j = Mul(a, i)
      [conv4] out = Conv(j, s)
    }"""

GRAPHS = {
    "a Pad is part of the Conv": padded(),
    "of a depthwise one, too": padded(group=32),
    "and in front of a Transpose": padded("0, 0, 0, 0, 0, 1, 1, 0", NHWC),
    "a bias that stands apart is the Conv's": GATED,
}
QUANTIZED = {
    "a pair before the Pad is the Conv's": ("a->pad1 v->conv2", padded()),
    "and so is one behind it": ("p->conv2 v->conv2 x->conv1 w->conv1", padded()),
    "a depthwise Conv's channels are padded besides": ("a->pad1 v->conv2", padded(group=32)),
}


def test_a_pad_of_zeros_is_in_no_kernel(tmp_path: Path):
    plan = predicted(model_of(text_of(padded(), 17), tmp_path).graph, EMPTY)

    assert [layer.nodes for layer in plan.of_kind("compute")] == [
        ("conv1", "relu1"),
        ("conv2", "relu2"),
    ]


def test_a_conv_that_says_valid_reads_what_is_padded(tmp_path: Path):
    text = padded().replace("<strides", '<auto_pad = "VALID", strides')
    plan = predicted(model_of(text_of(text, 17), tmp_path).graph, EMPTY)

    assert [layer.nodes for layer in plan.of_kind("compute")][1] == ("pad1",)


def test_a_conv_reads_integers_through_a_pad(tmp_path: Path):
    graph = model_of(text_of(padded(), 17), tmp_path).graph
    plan = predicted(graph, placement_of(graph, ("a->pad1", "v->conv2")))

    sums = next(layer for layer in plan.layers if layer.nodes == ("conv2",))
    assert ([port.dtype for port in sums.inputs], sums.output_types) == (["int8"], ("float",))


test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, 17)
test_quantized_layers_are_those_that_the_builder_makes = builder_test(QUANTIZED, 17)
