"""ConvTransposes of channels that are no multiple of eight, as NVIDIA's builder makes them."""

from pathlib import Path

from placer.quantization import EMPTY
from tests.prediction.kernels.building import builder_test, model_of, predicted, text_of


def transposed(behind: str, channels: int = 16, made: int = 3, out: str = "") -> str:
    """A ConvTranspose of a map that is computed, and another one of the graph's input."""
    return f"""
    (float[1,{channels},8,8] x) => (float{out or f"[1,{made},16,16]"} out)
    <float[{channels},{made},2,2] w = {{1}}, float[{channels},{made},2,2] u = {{1}},
     float[{made}] b = {{1}}, float[1,{made},1,1] s = {{1}}, float[8,{made},3,3] v = {{1}}> {{
      [gate1] a = Sigmoid(x)
      [up1] y = ConvTranspose<strides = [2, 2]>(a, w, b)
      {behind}
    }}"""


RELU = "[relu1] out = Relu(y)"
SECOND = "[up2] z = ConvTranspose<strides = [2, 2]>(x, u)\n"
GRAPHS = {
    "eight channels are as they are": transposed(RELU, 8, 8),
    "four are padded": transposed(RELU, 4, 8),
    "and so are twelve": transposed(RELU, 12, 8),
    "what leaves is cut by a kernel without a name": transposed(RELU),
    "what is computed is computed of what is cut": transposed(
        "[tanh1] t = Tanh(y)\n[scale1] out = Mul(t, s)"
    ),
    "a Conv reads it padded otherwise": transposed(
        "[relu1] r = Relu(y)\n[conv1] out = Conv<pads = [1, 1, 1, 1]>(r, v)", out="[1,8,16,16]"
    ),
    "a pool reads it cut": transposed(
        "[pool1] out = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(y)", out="[1,3,8,8]"
    ),
    "the first of two adds the second one": transposed(SECOND + "[add1] out = Add(z, y)"),
    "and ends with that": transposed(
        SECOND + "[relu1] r = Relu(y)\n[sub1] d = Sub(z, r)\n[scale1] e = Mul(d, s)\n"
        "[gate2] out = Sigmoid(e)"
    ),
    "one reads what another one wrote as it is": transposed(
        "[up2] out = ConvTranspose<strides = [2, 2]>(y, q)", made=12, out="[1,8,32,32]"
    ).replace("float[12] b", "float[12,8,2,2] q = {1}, float[12] b"),
}


def test_the_cut_is_computed_with_what_reads_it(tmp_path: Path):
    text = transposed("[tanh1] t = Tanh(y)\n[scale1] out = Mul(t, s)")
    plan = predicted(model_of(text_of(text, 17), tmp_path).graph, EMPTY)

    assert ("scale1", "tanh1", "up1") in [layer.nodes for layer in plan.layers]


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=17)
