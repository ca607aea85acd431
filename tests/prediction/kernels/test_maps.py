"""Maps of Convs that products of activations read, as NVIDIA's builder makes them."""

from pathlib import Path

from placer.quantization import EMPTY
from tests.prediction.kernels.building import builder_test, model_of, predicted, text_of


def mapped(body: str, out: str = "[1,16,16]", samples: int = 1) -> str:
    text = """
    (float[N,32,8,8] x, float[N,16,64] y, float[N,64,16] z) => (floatOUT out)
    <float[16,32,1,1] w = {1}> {
      shape = Constant<value = int64[3] {N, 16, 64}>()
      [relu1] a = Relu(y)
      [relu2] b = Relu(z)
      [conv1] c = Conv(x, w)
      BODY
    }"""
    return text.replace("BODY", body).replace("OUT", out).replace("N,", f"{samples},")


READ = "[rows1] r = Reshape(c, shape)\n"
TURNED = READ + "[turn1] t = Transpose<perm = [0, 2, 1]>(r)\n"
GRAPHS = {
    "a map that a product reads is copied to rows": mapped(READ + "[product1] out = MatMul(r, b)"),
    "as first or second operand": mapped(READ + "[product1] out = MatMul(b, r)", "[1,64,64]"),
    "and of several samples": mapped(
        READ + "[product1] out = MatMul(r, b)", "[2,16,16]", samples=2
    ),
    "where it is turned the copy has no name": mapped(
        TURNED + "[product1] out = MatMul(t, a)", "[1,64,64]"
    ),
    "nor if it is computed of before": mapped(
        "[gate1] g = Sigmoid(c)\n[rows1] r = Reshape(g, shape)\n"
        "[turn1] t = Transpose<perm = [0, 2, 1]>(r)\n[product1] out = MatMul(a, t)"
    ),
    "a map that is pooled is copied, too": mapped(
        "[pool1] p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(c)\n"
        "[rows1] r = Reshape(p, shape)\n[product1] out = MatMul(r, b)"
    ),
    "it is copied once for a product and a sum": mapped(
        READ + "[product1] o = MatMul(r, b)\n[product2] p = MatMul(o, a)\n[add1] out = Add(p, r)",
        "[1,16,64]",
    ),
    "a Softmax reads it as it is": mapped(
        READ + "[soft1] s = Softmax<axis = -1>(r)\n[product1] out = MatMul(s, b)"
    ),
}


def test_the_copy_is_named_after_the_reshape_alone(tmp_path: Path):
    shown = GRAPHS["a map that a product reads is copied to rows"]
    plan = predicted(model_of(text_of(shown, 18), tmp_path).graph, EMPTY)
    assert ("rows1",) in [layer.nodes for layer in plan.layers]
    shown = GRAPHS["where it is turned the copy has no name"]
    plan = predicted(model_of(text_of(shown, 18), tmp_path).graph, EMPTY)
    copies = [port.tensor for layer in plan.of_kind("reformat") for port in layer.outputs]
    assert copies == ["x", "t"]


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=18)
