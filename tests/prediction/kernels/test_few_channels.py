"""1x1 Convs of up to four channels, as NVIDIA's builder makes them."""

from pathlib import Path

from placer.quantization import EMPTY
from tests.prediction.kernels.building import builder_test, model_of, predicted, text_of


def excited(channels: int, inner: int) -> str:
    """Squeeze-and-excitation of a map."""
    return f"""
    (float[1,{channels},8,8] x) => (float[1,{channels},8,8] out)
    <float[{inner},{channels},1,1] w = {{1}}, float[{inner}] b = {{1}},
     float[{channels},{inner},1,1] v = {{1}}, float[{channels}] e = {{1}}> {{
      [pool1] p = GlobalAveragePool(x)
      [conv1] c = Conv(p, w, b)
      [relu1] r = Relu(c)
      [conv2] d = Conv(r, v, e)
      [gate1] g = Sigmoid(d)
      [scale1] out = Mul(x, g)
    }}"""


def of_map(body: str, out: str = "[1,16,8,8]", channels: int = 4) -> str:
    return f"""
    (float[1,{channels},8,8] x) => (float{out} out)
    <float[16,{channels},1,1] w = {{1}}, float[16] b = {{1}},
     float[4,4,1,1] v = {{1}}, float[4,4,1,1] u = {{1}}, float[4] e = {{1}}> {{
      [gate1] a = Sigmoid(x)
      {body}
    }}"""


PAIRS = "p->conv1 w->conv1 "
SECOND = "r->conv2 v->conv2"
GRAPHS = {
    "both Convs read channels one by one": ("", excited(4, 4)),
    "a Conv that reads integers is one as others are": (PAIRS, excited(16, 4)),
    "four channels of integers are summed, their bias is added to the map": (
        PAIRS + SECOND,
        excited(16, 4),
    ),
    "which a kernel of its own does behind a float Conv": (SECOND, excited(16, 4)),
    "but for activations in parts": (
        PAIRS + SECOND,
        excited(16, 4).replace("Relu(c)", "LeakyRelu(c)"),
    ),
    "a HardSigmoid's factor is the sum's": (
        PAIRS + SECOND,
        excited(16, 4).replace("Sigmoid(d)", "HardSigmoid(d)"),
    ),
    "channels that are computed are there before": (
        "",
        of_map("[conv1] c = Conv(a, w, b)\n[relu1] out = Relu(c)"),
    ),
    "a single one is computed where it is read": (
        "",
        of_map("[conv1] c = Conv(a, w, b)\n[relu1] out = Relu(c)", channels=1),
    ),
    "what is added to the Conv's map in the end is computed with it": (
        "",
        of_map(
            "[tanh1] t = Tanh(x)\n[conv1] c = Conv(a, v, e)\n[scale1] out = Mul(c, t)",
            "[1,4,8,8]",
        ),
    ),
    "but a prepared kernel adds a map": (
        "",
        of_map(
            "[tanh1] t = Tanh(x)\n[conv1] c = Conv(a, v, e)\n[add1] out = Add(c, t)", "[1,4,8,8]"
        ),
    ),
    "of two Convs that are added the later one is prepared": (
        "",
        of_map(
            "[conv1] c = Conv(a, v, e)\n[conv2] d = Conv(a, u, e)\n[add1] out = Add(c, d)",
            "[1,4,8,8]",
        ),
    ),
    "one place is cast apart as it leaves": (
        "",
        of_map(
            "[pool1] p = MaxPool<kernel_shape = [8, 8]>(a)\n[conv1] c = Conv(p, w, b)\n"
            "[relu1] out = Relu(c)",
            "[1,16,1,1]",
        ),
    ),
}


def test_each_channel_is_read_from_another_kernel(tmp_path: Path):
    text = of_map("[conv1] c = Conv(a, w, b)\n[relu1] out = Relu(c)")
    plan = predicted(model_of(text_of(text, 17), tmp_path).graph, EMPTY)

    assert [layer.nodes for layer in plan.layers] == [("gate1",), ("conv1", "relu1")]


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=17)
