"""Norms of what a product writes, as SwinV2 has them, as NVIDIA's builder makes them."""

from pathlib import Path

from placer.quantization import EMPTY
from tests.prediction.kernels.building import builder_test, model_of, predicted, text_of


def normed(shape: str, behind: str = "[relu1] out = Relu(z)", out: str = "", bias: str = "") -> str:
    """A product whose rows are normed and added to others, in ``shape``."""
    added = bias or "[bias1] c = Add(p, b)"
    return f"""
    (float{shape} x) => (float{out or shape} out)
    <float[64,64] w = {{1}}, float[64] b = {{1}}, float[64] g = {{1}}> {{
      [gate1] a = Sigmoid(x)
      [product1] p = MatMul(a, w)
      {added}
      [norm1] m = LayerNormalization<axis = -1>(c, g, b)
      [add1] z = Add(a, m)
      {behind}
    }}"""


MAP, ROWS = "[1,8,8,64]", "[1,64,64]"
GRAPHS = {
    "rows of a map are cast in the product's kernel": normed(MAP),
    "behind whatever it computes": normed(MAP, bias="[tanh1] c = Tanh(p)"),
    "and if a kernel of its own norms them": normed(
        MAP, "[turn1] out = Transpose<perm = [0, 2, 1, 3]>(z)"
    ),
    "other rows with the norm, as the bias is added": normed(ROWS),
    "of several samples, too": normed("[2,64,64]"),
    "and those of maps of several samples": normed("[2,8,8,64]"),
    "what is padded is moved": normed(
        MAP,
        "pads = Constant<value = int64[8] {0, 0, 0, 0, 0, 1, 1, 0}>()\n[pad1] out = Pad(z, pads)",
        "[1,9,9,64]",
    ),
}


def test_the_products_kernel_writes_float32(tmp_path: Path):
    plan = predicted(model_of(text_of(normed(MAP), 17), tmp_path).graph, EMPTY)

    product = next(layer for layer in plan.layers if "product1" in layer.nodes)
    assert (product.nodes, product.output_types) == (("bias1", "norm1", "product1"), ("float",))


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=18)
