"""Readers of one tensor with pairs of unequal scales, as quantizers of every layer's own make."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import placer
from placer.plan.diff import diff_plans


def _pairs(tensor: str, scale: str, made: str) -> str:
    return (
        f"{made}_q = QuantizeLinear({tensor}, {scale}, z) "
        f"{made} = DequantizeLinear({made}_q, {scale}, z)"
    )


def _weight(tensor: str, axis: int, made: str) -> str:
    """A scale for each channel, which no two weights need have in common."""
    axis_text = f"<axis = {axis}>"
    return (
        f"{made}_q = QuantizeLinear{axis_text}({tensor}, each, zeros) "
        f"{made} = DequantizeLinear{axis_text}({made}_q, each, zeros)"
    )


def _projections(rows: str, *scales: str) -> str:
    """Queries, keys and values of ``rows``, each quantized with the scale at its place."""
    return "\n".join(
        f"{_pairs(rows, scale, f'x{i}')} {_weight(f'w{i}', 1, f'v{i}')}"
        f" [product{i}] m{i} = MatMul(x{i}, v{i}) [bias{i}] y{i} = Add(m{i}, b)"
        for i, scale in enumerate(scales)
    )


def _zeros(count: int) -> str:
    return f"int8[{count}] zeros = {{{', '.join(['0'] * count)}}}"


HEAD = f"""
<ir_version: 8, opset_import: ["": 17]>
g (float[1,197,384] x) => (float[1,197,384] y0, float[1,197,384] y1, float[1,197,384] y2)
<float[384,384] w0 = {{1}}, float[384,384] w1 = {{1}}, float[384,384] w2 = {{1}},
 float[384] b = {{1}}, float[384] g = {{1}}, int8 z = {{0}}, float s = {{0.03}},
 float t = {{0.05}}, float u = {{0.07}},
 float[384] each = {{0.02}}, {_zeros(384)}> {{"""
NORMED = "[norm] n = LayerNormalization<axis = -1>(x, g, b)"
CONVS = f"""
<ir_version: 8, opset_import: ["": 17]>
g (float[1,32,28,28] x) => (float[1,32,28,28] y0, float[1,32,28,28] y1)
<float[32,32,1,1] w0 = {{1}}, float[32,32,1,1] w1 = {{1}}, float s = {{0.03}}, float t = {{0.05}},
 int8 z = {{0}}, float[32] each = {{0.02}}, {_zeros(32)}> {{
  {_pairs("x", "s", "a")} {_weight("w0", 0, "v0")} [conv0] c0 = Conv(a, v0) [relu0] y0 = Relu(c0)
  {_pairs("x", "t", "b")} {_weight("w1", 0, "v1")} [conv1] c1 = Conv(b, v1) [relu1] y1 = Relu(c1)
}}"""
GRAPHS = {
    "products of one scale are one": f"{HEAD} {NORMED} {_projections('n', 's', 's', 's')} }}",
    "products of several are not": f"{HEAD} {NORMED} {_projections('n', 's', 't', 'u')} }}",
    "two of one scale are": f"{HEAD} {NORMED} {_projections('n', 's', 't', 's')} }}",
    "one kernel quantizes a graph input": f"{HEAD} {_projections('x', 's', 't', 'u')} }}",
    "for Convs, too": CONVS,
}


@pytest.mark.builder
@pytest.mark.parametrize("shown", GRAPHS)
def test_layers_are_those_that_the_builder_makes(
    shown: str, save: Callable[..., Path], builder: ModuleType
):
    del builder
    path = save(GRAPHS[shown])
    built = placer.check(path).plan
    assert built is not None
    predicted = placer.explain(path, pack="tensorrt-rtx", base="float").explanation.plan
    found = diff_plans(predicted, built)
    assert found.agrees, found.sentences
