"""Products of a single row, as classifiers end with, as NVIDIA's builder makes them."""

from pathlib import Path

import pytest

from placer.quantization import EMPTY
from tests.prediction.kernels.building import builder_test, model_of, predicted, text_of


def head(inner: int, columns: int, body: str = "[fc1] out = Gemm(r, w, b)", rows: int = 1) -> str:
    return f"""
    (float[{rows},{inner}] x) => (float[{rows},{columns}] out)
    <float[{inner},{columns}] w = {{1}}, float[{columns}] b = {{1}}> {{
      [relu1] r = Relu(x)
      {body}
    }}"""


def joined(body: str) -> str:
    return f"""
    (float[1,32] x, float[1,32] y, float[1,32,8,8] z) => (float[1,10] out)
    <float[64,10] w = {{1}}, float[10] b = {{1}}, float[32,32,1,1] c = {{1}}> {{
      {body}
    }}"""


SCALED = "[fc1] o = MatMul(r, w)\n[add1] p = Add(o, b)\n[mul1] q = Mul(p, b)\n"
NORMALIZED = "[fc1] o = Gemm(r, w, b)\n[soft1] out = Softmax<axis = -1>(o)"
BESIDE = """
    (float[1,32] x) => (float out, float other) <float[32,32] w = {1}, float[32] b = {1}> {
      [relu1] r = Relu(x) [fc1] out = Gemm(r, w, b) [beside] other = Sigmoid(r)
    }"""
GRAPHS = {
    "a row that an activation reads, too": BESIDE,
    "a row is multiplied where it is computed": head(256, 512),
    "however long it is": head(4096, 384),
    "or many the columns": head(248, 4096),
    "a large weight needs a kernel of its own": head(256, 520),
    "from 512 columns on": head(264, 512),
    "a Softmax adds the bias": head(64, 10, NORMALIZED),
    "also of a sum that would end with the bias": head(1024, 10, NORMALIZED),
    "also of a large weight": head(256, 1000, NORMALIZED),
    "and all else that lies between": head(1024, 10, SCALED + "[soft1] out = Softmax(q)"),
    "and of several rows": head(64, 10, NORMALIZED, rows=8),
    "a product reads a row that is joined": joined(
        "[join1] r = Concat<axis = 1>(x, y)\n[fc1] out = Gemm(r, w, b)"
    ),
    "and then activated": joined(
        "[join1] j = Concat<axis = 1>(x, y)\n[relu1] r = Relu(j)\n[fc1] out = Gemm(r, w, b)"
    ),
    "means of one map are joined by another kernel": joined(
        "[conv1] m = Conv(z, c)\n[mean1] p = GlobalAveragePool(m)\n[max1] q = GlobalMaxPool(m)\n"
        "[flat1] f = Flatten(p)\n[flat2] g = Flatten(q)\n[join1] r = Concat<axis = 1>(f, g)\n"
        "[fc1] out = Gemm(r, w, b)"
    ),
}


@pytest.mark.parametrize(
    ("shown", "layers"),
    [
        ("a large weight needs a kernel of its own", [{"relu1"}, {"fc1"}]),
        ("or many the columns", [{"relu1", "fc1"}, {"fc1"}]),
        ("and of several rows", [{"relu1"}, {"fc1"}, {"fc1", "soft1"}]),
    ],
)
def test_layers_of_classifiers(shown: str, layers: list[set[str]], tmp_path: Path):
    plan = predicted(model_of(text_of(GRAPHS[shown], 18), tmp_path).graph, EMPTY)
    assert [set(layer.nodes) for layer in plan.of_kind("compute")] == layers


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=18)


def beside(body: str) -> str:
    return f"""
    (float[1,32] x) => (float first, float second)
    <float[32,32] w = {{1}}, float[32,32] v = {{1}}, float[32,32] u = {{1}}, float[32] b = {{1}}> {{
      [fc2] q = Gemm(x, v, b)
      {body}
    }}"""


INTEGERS = "q->fc3 u->fc3"
test_rows_that_products_of_integers_read = builder_test(
    {
        "another kernel adds the bias of one of two rows, and quantizes": (
            INTEGERS,
            beside("[fc1] first = Gemm(x, w, b) [fc3] second = Gemm(q, u, b)"),
        ),
        "of both rows, each": (
            f"{INTEGERS} p->fc4 w->fc4",
            beside(
                "[fc1] p = Gemm(x, w, b) [fc3] second = Gemm(q, u, b) [fc4] first = Gemm(p, w, b)"
            ),
        ),
        "and what an activation reads, too": (
            INTEGERS,
            beside(
                "[fc1] first = Gemm(x, w, b) [fc3] r = Gemm(q, u, b) [sin1] s = Sin(q)"
                " [add1] second = Add(r, s)"
            ),
        ),
    },
    opset=18,
)
