"""Activations in parts, and constants that several nodes read, behind a kernel of OpenVINO."""

import pytest

from placer.graph import Edge
from tests.prediction.test_openvino_followers import agree

CUBES = {
    "power": "[cube] p = Pow(a, three)",
    "products": "[square] q = Mul(a, a) [cube] p = Mul(q, a)",
}
HALVES = {
    "of x": "[half] h = Mul(a, half) [last] y = Mul(h, f)",
    "of the sum": "[half] h = Mul(f, half) [last] y = Mul(a, h)",
    "of the product": "[last] h = Mul(a, f) [half] y = Mul(h, half)",
}
GELU = """
g (float[1,16,8,8] x) => (float[1,16,8,8] out)
<float[16,16,1,1] w = {1}, float[16,16,1,1] w2 = {1}, float three = {3}, float root = {0.7978846},
 float[1,1,1,1] k = {0.044715}, float[1,1,1,1] one = {1}, float half = {0.5}> {
  [conv] a = Conv(x, w)
  CUBE
  [part] r = Mul(p, k)
  [inner] s = Add(a, r)
  [scale] u = Mul(s, root)
  [tanh] t = Tanh(u)
  [plus] f = Add(t, one)
  HALF
  [conv2] out = Conv(y, w2)
}
"""
SHARED = """
g (float[1,16,8,8] x) => (float[1,16,1,8] y1, float[1,16,1,8] y2)
<TYPE k = {0.5}> {
  [soft] s = Softmax(x)
  [mean1] a = ReduceMean<axes = [2]>(x)
  [add1] b = OPERATOR(a, k)
  [act1] y1 = Sigmoid(b)
  [mean2] c = ReduceMean<axes = [2]>(s)
  [add2] d = OPERATOR(c, k)
  [act2] y2 = Sigmoid(d)
}
"""
READ = (Edge("x", "conv", 0),), (Edge("w", "conv", 1),)


@pytest.mark.parametrize("pairs", [(), READ], ids=["float", "int8"])
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("cube", CUBES)
def test_gelu_by_tanh_is_part_of_the_conv_before_it(cube, half, pairs, tmp_path):
    """But with a Pow and the half behind the product, which GeluFusion does not know."""
    text = GELU.replace("CUBE", CUBES[cube]).replace("HALF", HALVES[half])
    together = agree(text, pairs, tmp_path)
    is_known = cube == "products" or half != "of the product"
    assert any({"conv", "tanh"} <= set(names) for names in together) == is_known


@pytest.mark.parametrize("operator", ["Add", "Sub"])
@pytest.mark.parametrize("shape", ["float", "float[1,1]", "float[1,1,1,1]"])
def test_constants_of_all_axes_that_others_read_go_to_what_is_element_wise(
    shape, operator, tmp_path
):
    """A constant of fewer axes is reshaped for each reader, and Sub becomes Add with another."""
    text = SHARED.replace("TYPE", shape).replace("OPERATOR", operator)
    together = agree(text, (), tmp_path)
    is_apart = shape == "float[1,1,1,1]" and operator == "Add"
    assert any({"mean1", "add1"} <= set(names) for names in together) != is_apart
