"""What the builder takes for a product's, and what it moves or turns once more."""

from pathlib import Path
from types import ModuleType

import pytest

from tests.prediction.kernels.building import (
    check_built,
    joined_placement,
    model_of,
    predicted,
    text_of,
)

SILU = "[sigmoid{0}] s{0} = Sigmoid(c{0}) [act{0}] {1} = Mul(c{0}, s{0})"
SILU_AND_SUM = """[sigmoid{0}] s{0} = Sigmoid(c{0}) [mul{0}] m{0} = Mul(c{0}, s{0})
    [act{0}] {1} = Add(m{0}, {2})"""
THREE_STEPS = "[abs{0}] s{0} = Abs(c{0}) [mul{0}] m{0} = Mul(s{0}, k) [act{0}] {1} = Add(m{0}, k)"
INT8, FLOAT = "[conv2] e = Conv(j, w2)", "[conv3] f = Conv(j, w3)"


def joined(computed: str, readers: str, outputs: str) -> str:
    """Two float Convs, what is computed of each, and a Concat."""
    return f"""
    (float[1,16,8,8] x, float[1,16,8,8] y) => ({outputs})
    <float[16,16,1,1] w0 = {{1}}, float[16,16,1,1] w1 = {{1}}, float[16,32,1,1] w2 = {{1}},
     float[16,32,1,1] w3 = {{1}}, float[16,1,1] k = {{1}}> {{
      [conv0] c0 = Conv(x, w0) [conv1] c1 = Conv(y, w1)
      {computed.format(0, "a", "x")} {computed.format(1, "b", "y")}
      [join] j = Concat<axis = 1>(a, b) {readers}
    }}"""


def cut(readers: str, outputs: str) -> str:
    return f"""
    (float[1,16,8,8] x) => (float l, {outputs})
    <float[32,16,1,1] w0 = {{1}}, float[16,16,1,1] w2 = {{1}}, float[16,16,1,1] w3 = {{1}}> {{
      sizes = Constant<value = int64[2] {{16, 16}}>()
      [conv0] c = Conv(x, w0) [relu0] a = Relu(c)
      [split] h, j = Split<axis = 1>(a, sizes) [tanh] l = Tanh(h) {readers}
    }}"""


def gated(channels: int, size: int, activation: str) -> str:
    """A gate of the channels of a map, which is computed of their means."""
    return f"""
    (float[1,16,{size},{size}] x) => (float z)
    <float[{channels},16,1,1] w0 = {{1}}, float[{channels},{channels},1,1] w1 = {{1}}> {{
      [conv0] c = Conv(x, w0) [act] a = {activation}(c) [mean] m = GlobalAveragePool(a)
      [conv1] d = Conv(m, w1) [gate] g = Sigmoid(d) [scale] z = Mul(a, g)
    }}"""


QUANTIZED = "j->conv2 w2->conv2"
GRAPHS = {
    "one step behind a Conv: integers are joined in place": (
        QUANTIZED,
        joined(SILU, INT8, "float e"),
    ),
    "two steps: one kernel joins and quantizes": (
        QUANTIZED,
        joined(SILU_AND_SUM, INT8, "float e"),
    ),
    "which reads the floats if others need them": (
        QUANTIZED,
        joined(SILU_AND_SUM, f"{INT8} {FLOAT}", "float e, float f"),
    ),
    "three steps: floats are not joined in place": ("", joined(THREE_STEPS, FLOAT, "float f")),
    "a part is cut out once more for integers": (
        QUANTIZED,
        cut(f"{INT8} {FLOAT}", "float e, float f"),
    ),
    "a map of 49 places is turned with its means": ("", gated(384, 7, "Relu")),
    "one of 36 places by a kernel before": ("", gated(464, 6, "Relu")),
    "a rounded map that is computed in parts takes a kernel more": (
        "x->conv0 w0->conv0 c->act",
        gated(464, 6, "HardSwish"),
    ),
    "if the mean reads it rounded, all is one kernel": (
        "x->conv0 w0->conv0 c->act h->mean",
        gated(464, 6, "HardSwish"),
    ),
}


@pytest.mark.builder
@pytest.mark.parametrize("shown", GRAPHS)
def test_steps_behind_products(shown: str, tmp_path: Path, builder: ModuleType):
    pairs, text = GRAPHS[shown]
    text = text_of(text, 17)
    check_built(model_of(text, tmp_path), joined_placement(text, pairs, tmp_path), builder)


@pytest.mark.parametrize(("computed", "kernels"), [(SILU, 0), (SILU_AND_SUM, 1)])
def test_what_is_not_a_products_is_joined_by_a_kernel(computed: str, kernels: int, tmp_path: Path):
    text = text_of(joined(computed, INT8, "float e"), 17)
    plan = predicted(model_of(text, tmp_path).graph, joined_placement(text, QUANTIZED, tmp_path))
    joins = [layer for layer in plan.of_kind("compute") if "join" in layer.nodes]
    assert len(joins) == kernels


def test_a_part_is_cut_out_for_each_type(tmp_path: Path):
    text = text_of(cut(f"{INT8} {FLOAT}", "float e, float f"), 17)
    plan = predicted(model_of(text, tmp_path).graph, joined_placement(text, QUANTIZED, tmp_path))
    cuts = [layer for layer in plan.of_kind("compute") if layer.nodes == ("split",)]
    assert [port.dtype for layer in cuts for port in layer.outputs] == ["float16", "int8"]
