"""Pairs of FP8: what is computed in float all the same."""

from placer.quantization import FLOAT8
from tests.prediction.kernels.building import builder_test


def conv(window: int, channels: int = 32, behind: str = "[relu] out = Relu(y)") -> str:
    pad = window // 2
    return f"""
    (float[1,{channels},16,16] x) => (float[1,32,16,16] out)
    <float[32,{channels},{window},{window}] w = {{1}}, float[32] b = {{1}},
     float[32,32,3,3] v = {{1}}, float[32] vb = {{1}}> {{
      [act] a = Softplus(x)
      [conv] y = Conv<pads = [{pad}, {pad}, {pad}, {pad}]>(a, w, b)
      {behind}
    }}"""


CONV = "a->conv w->conv"
GRAPHS = {
    "a Conv of 25 places": (CONV, conv(5)),
    "one of 49 is of floats": (CONV, conv(7)),
    "whose weight is padded with its channels": (CONV, conv(7, channels=3)),
    "pools are": (
        CONV + " r->pool p->next v->next",
        conv(
            3,
            behind="[relu] r = Relu(y)\n"
            "[pool] p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(r)\n"
            "[next] out = Conv<pads = [1, 1, 1, 1]>(p, v, vb)",
        ),
    ),
    "ConvTransposes are, but write integers": (
        "a->up w->up r->next v->next",
        """
        (float[1,32,8,8] x) => (float[1,32,16,16] out)
        <float[32,32,2,2] w = {1}, float[32,32,3,3] v = {1}> {
          [act] a = Softplus(x)
          [up] y = ConvTranspose<strides = [2, 2]>(a, w)
          [relu] r = Relu(y)
          [next] out = Conv<pads = [1, 1, 1, 1]>(r, v)
        }""",
    ),
}
test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, 20, chosen=FLOAT8)
