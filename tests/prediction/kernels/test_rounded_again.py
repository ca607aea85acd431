"""MaxPools behind a DQ that stays there, and products whose matrix alone is quantized."""

from pathlib import Path
from types import ModuleType

import pytest

from placer.graph import Edge
from placer.quantization import Placement
from tests.prediction.kernels.building import builder_test, check_built, model_of, text_of

POOL = "MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>"
TWO_POOLS = f"""
(float[1,32,16,16] x) => (float[1,32,16,16] a, float[1,32,16,16] b)
<float[32,32,1,1] w0 = {{1}}, float[32,32,1,1] w1 = {{1}}, float[32,32,1,1] w2 = {{1}}> {{
  [first] y = Conv(x, w0)
  [relu] r = Relu(y)
  [pool] p = {POOL}(r)
  [again] q = {POOL}(p)
  [one] a = Conv(p, w1)
  [two] b = Conv(q, w2)
}}"""
POOLED = {
    "a Q moves back to one of two readers": "r->pool p->one q->two",
    "a Q moves back to the only quantized reader": "r->pool q->two",
    "pairs everywhere": "r->pool p->again p->one q->two",
    "no pair before the pool": "p->again p->one q->two",
    "Q moves back past both": "p->one q->two",
}


@pytest.mark.builder
@pytest.mark.parametrize("shown", POOLED)
def test_pools_of_one_scale(shown: str, tmp_path: Path, builder: ModuleType):
    model = model_of(text_of(TWO_POOLS, 17), tmp_path)
    pooled = [_edge(text) for text in POOLED[shown].split()]
    read = {edge.node for edge in pooled}
    weights = [Edge("w0", "first", 1), Edge("w1", "one", 1), Edge("w2", "two", 1)]
    kept = [edge for edge in weights if edge.node in read | {"first"}]
    groups = [pooled, [Edge("x", "first", 0)], *([edge] for edge in kept)]
    check_built(model, Placement.of_groups(groups), builder)


def _edge(text: str) -> Edge:
    tensor, node = text.split("->")
    return Edge(tensor, node, 0)


def classifier(inputs: int, classes: int, bias: bool = True) -> str:
    return f"""
    (float[1,32,8,8] x) => (float[1,{classes}] out)
    <float[{inputs},32,1,1] w0 = {{1}}, float[{classes},{inputs}] w = {{1}},
     float[{classes}] b = {{1}}> {{
      [conv] y = Conv(x, w0)
      [relu] r = Relu(y)
      [mean] m = GlobalAveragePool(r)
      [flat] v = Flatten(m)
      [fc] out = Gemm<transB = 1>(v, w{", b" if bias else ""})
    }}"""


def rows(behind: str) -> str:
    return f"""
    (float[1,16,64] x) => (float[1,16,64] out)
    <float[64,64] w0 = {{1}}, float[64,64] w = {{1}}, float[64] b = {{1}}> {{
      [first] y = MatMul(x, w0)
      [relu] r = Sigmoid(y)
      [second] z = MatMul(r, w)
      {behind}
    }}"""


test_float_weights = builder_test(
    {
        "a thousand classes": ("m->flat", classifier(512, 1000)),
        "the pair behind the view": ("v->fc", classifier(512, 1000)),
        "just enough of them": ("m->flat", classifier(256, 520)),
        "without a bias": ("m->flat", classifier(512, 1000, bias=False)),
        "an INT8 Conv before": ("x->conv w0->conv m->flat", classifier(512, 1000)),
        "rows": ("r->second", rows("[bias] out = Add(z, b)")),
        "rows that are quantized again": (
            "r->second z->third w0->third",
            rows("[third] out = MatMul(z, w0)"),
        ),
    },
    opset=17,
)


def volume(op: str) -> str:
    return f"""
    (float[1,32,8,16,16] x) => (float[1,32,8,16,16] out)
    <float[32,32,1,1,1] w0 = {{1}}, float[32,32,1,1,1] w1 = {{1}}> {{
      [first] y = Conv(x, w0)
      [relu] r = Relu(y)
      [pool] p = {op}<kernel_shape = [1, 3, 3], pads = [0, 1, 1, 0, 1, 1]>(r)
      [second] out = Conv(p, w1)
    }}"""


CONVS = "x->first w0->first p->second w1->second"
test_pools_of_three_dimensions = builder_test(
    {
        "nothing moves past them": (CONVS, volume("MaxPool")),
        "they read floats": (f"{CONVS} r->pool", volume("MaxPool")),
        "so do averages": (f"{CONVS} r->pool", volume("AveragePool")),
    },
    opset=17,
)
