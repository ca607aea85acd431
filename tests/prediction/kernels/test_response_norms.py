"""LRN as NVIDIA's builder makes it."""

from pathlib import Path

from placer.quantization import EMPTY
from tests.prediction.kernels.building import builder_test, model_of, predicted, text_of


def normed(behind: str, pool: str = "[tanh0] a = Tanh(r)") -> str:
    return f"""
    (float[1,16,8,8] x) => (float[1,16,8,8] out)
    <float[16,16,3,3] w = {{1}}, float[16,16,3,3] v = {{1}}> {{
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w)
      [relu1] r = Relu(c)
      {pool}
      [norm1] n = LRN<size = 5>(a)
      {behind}
    }}"""


CONV = "[conv2] out = Conv<pads = [1, 1, 1, 1]>(n, v)"
POOL = "[pool1] a = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(r)"
GRAPHS = {
    "squares are made of what is computed before": ("", normed(CONV)),
    "or of what a pool writes": ("", normed(CONV, POOL)),
    "what follows is with what divides": (
        "",
        normed("[tanh1] t = Tanh(n)\n[add1] out = Add(t, a)"),
    ),
    "which quantizes for a Conv": (
        "x->conv1 w->conv1 n->conv2 v->conv2",
        normed(CONV),
    ),
}


def test_it_is_three_kernels_in_float32(tmp_path: Path):
    plan = predicted(model_of(text_of(normed(CONV, POOL), 17), tmp_path).graph, EMPTY)

    types = [layer.output_types for layer in plan.layers if layer.nodes == ("norm1",)]
    assert sorted(types) == [("float",), ("float",), ("float16",)]


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=17)
