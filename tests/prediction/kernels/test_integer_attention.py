"""Attention in INT8: one kernel for heads of 16, 32 or 64 channels and up to 512 tokens alone."""

from placer.graph.text import graph_of_text
from placer.prediction.kernels.attention import attentions
from tests.prediction.kernels.building import builder_test
from tests.prediction.test_onnxruntime_plans import HEAD


def attention(width: int, tokens: int, values: int = 0, axis: int = -1) -> str:
    """Two heads of ``width`` channels, those of values of ``values`` if they differ."""
    shape, wide = (f"float[1,2,{tokens},{channels}]" for channels in (width, values or width))
    return f"""
    ({shape} q, {shape} k, {wide} v) => ({wide} out) {{
      half = Constant<value = float {{0.5}}>()
      [reluq] rq = Relu(q)
      [reluk] rk = Relu(k)
      [reluv] rv = Relu(v)
      [turnk] tk = Transpose<perm = [0, 1, 3, 2]>(rk)
      [scores1] s = MatMul(rq, tk)
      [scale1] t = Mul(s, half)
      [soft1] a = Softmax<axis = {axis}>(t)
      [mix1] m = MatMul(a, rv)
      [relu1] out = Relu(m)
    }}"""


PAIRS = "rq->scores1 tk->scores1 a->mix1 rv->mix1 m->relu1"

GRAPHS = {
    "heads of 16 channels are one kernel": (PAIRS, attention(16, 128)),
    "heads of 32 channels and 512 tokens are": (PAIRS, attention(32, 512)),
    "heads of 40 channels are two products and a Softmax": (PAIRS, attention(40, 128)),
    "and so are values of 32 channels": (PAIRS, attention(16, 128, 32)),
    "and so are 520 tokens": (PAIRS, attention(16, 520)),
}

test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)


def test_a_softmax_of_columns_is_none_of_an_attention():
    # TensorRT-RTX 1.7.1 runs both products as layers of their own.
    assert attentions(graph_of_text(HEAD + "g" + attention(16, 128)), ())
    assert not attentions(graph_of_text(HEAD + "g" + attention(16, 128, axis=2)), ())
