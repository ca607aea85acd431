"""Attentions that add positions in two dimensions, as NVIDIA's builder makes them."""

from pathlib import Path

from placer.quantization import EMPTY
from tests.prediction.kernels.building import builder_test, model_of, predicted, text_of


def positions(body: str) -> str:
    """Four heads over a map of 4x4 places, as in SAM and ViTDet."""
    return f"""
    (float[4,16,16] q, float[4,16,16] k, float[4,16,16] v, float[4,4,4,4] h, float[4,4,4,4] w)
    => (float[4,16,16] out)
    <float[16,16] o = {{1}}> {{
      three = Constant<value = int64[1] {{3}}>()
      four = Constant<value = int64[1] {{4}}>()
      places = Constant<value = int64[5] {{4, 4, 4, 4, 4}}>()
      rows = Constant<value = int64[3] {{4, 16, 16}}>()
      [relu1] a = Relu(q)
      [relu2] b = Relu(k)
      [relu3] c = Relu(v)
      [relu4] d = Relu(h)
      [relu5] e = Relu(w)
      [turn1] t = Transpose<perm = [0, 2, 1]>(b)
      [product1] s = MatMul(a, t)
      {body}
      [softmax1] p = Softmax<axis = -1>(z)
      [product2] m = MatMul(p, c)
      [product3] out = MatMul(m, o)
    }}"""


MAP = """
      [shape1] s5 = Reshape(s, places)
      [wide1] d5 = Unsqueeze(d, four)
      [add1] y1 = Add(s5, d5)
      [wide2] e5 = Unsqueeze(e, three)
      [add2] y2 = Add(y1, e5)
      [shape2] z = Reshape(y2, rows)"""


def test_positions_in_two_dimensions_keep_products_and_softmax_apart(tmp_path: Path):
    plan = predicted(model_of(text_of(positions(MAP), 17), tmp_path).graph, EMPTY)

    named = [set(layer.nodes) for layer in plan.of_kind("compute")]
    (scored,) = (nodes for nodes in named if "softmax1" in nodes)
    assert {"add1", "add2", "wide1", "wide2"} < scored
    assert {"product1"} in named and {"product2"} in named


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(
    {"positions of rows and columns of a map": ("", positions(MAP))}, opset=17
)
