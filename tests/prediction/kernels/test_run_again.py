"""MaxPools and Concats that run in integers for some readers and in float for others."""

from pathlib import Path
from types import ModuleType

import pytest

from placer.quantization import Placement
from tests.prediction.kernels.building import (
    check_built,
    joined_placement,
    model_of,
    predicted,
    text_of,
)

WINDOW = "kernel_shape = [3, 3], pads = [1, 1, 1, 1]"


def pyramid(channels: int) -> str:
    """The pooling pyramid of a YOLO: pools in turn, all of which are joined."""
    return f"""
    (float[1,16,8,8] x) => (float out)
    <float[{channels},16,1,1] w0 = {{1}}, float[16,{3 * channels},1,1] w1 = {{1}}> {{
      [conv0] c = Conv(x, w0) [relu0] a = Relu(c)
      [pool1] b = MaxPool<{WINDOW}>(a) [pool2] d = MaxPool<{WINDOW}>(b)
      [join] j = Concat<axis = 1>(a, b, d) [conv1] out = Conv(j, w1)
    }}"""


def pooled(readers: str, outputs: str) -> str:
    return f"""
    (float[1,16,8,8] x) => ({outputs})
    <float[16,16,1,1] w0 = {{1}}, float[16,16,1,1] w1 = {{1}}, float[16,16,1,1] w2 = {{1}}> {{
      [conv0] c = Conv(x, w0) [relu0] a = Relu(c) [pool1] b = MaxPool<{WINDOW}>(a)
      [conv1] d = Conv(b, w1) {readers}
    }}"""


def joined(readers: str, outputs: str) -> str:
    return f"""
    (float[1,16,8,8] x, float[1,16,8,8] y) => ({outputs})
    <float[16,16,1,1] w0 = {{1}}, float[16,16,1,1] w1 = {{1}}, float[16,32,1,1] w2 = {{1}},
     float[16,32,1,1] w3 = {{1}}> {{
      [conv0] c = Conv(x, w0) [relu0] a = Relu(c) [conv1] d = Conv(y, w1) [relu1] b = Relu(d)
      [join] j = Concat<axis = 1>(a, b) {readers}
    }}"""


VIEWED = """
    (float[1,16,16] x) => (float out)
    <float[16,16] w0 = {1}, float[16,16] w1 = {1}, float[16] one = {1}, float[16] none = {1}> {
      size = Constant<value = int64[4] {1, 4, 4, 16}>()
      [product0] a = MatMul(x, w0) [add0] b = Add(a, x) [view] v = Reshape(b, size)
      [norm] n = LayerNormalization<axis = -1>(v, one, none) [product1] d = MatMul(n, w1)
      [add1] s = Add(v, d) [relu] out = Relu(s)
    }"""
TURNED = """
    (float[1,16,16] x) => (float out)
    <float[16,16] w0 = {1}, float[16] one = {1}, float[16] none = {1}> {
      [product0] a = MatMul(x, w0) [turn] t = Transpose<perm = [0, 2, 1]>(a)
      [norm] n = LayerNormalization<axis = -1>(t, one, none) [add1] s = Add(t, n)
      [product1] out = MatMul(s, w0)
    }"""
FLAT = """
    (float[1,16,1,1] x) => (float out) <float[32,16] w = {1}, float[32] b = {1}> {
      [flat] f = Flatten(x) [product] out = Gemm<transB = 1>(f, w, b)
    }"""
DENSE = f"""
    (float[1,16,8,8] x) => (float out)
    <float[16,16,1,1] w0 = {{1}}, float[16,16,3,3] w1 = {{1}}, float[16,32,1,1] w2 = {{1}}> {{
      [pool] a = MaxPool<{WINDOW}>(x) [relu0] b = Sigmoid(a) [conv0] c = Conv(b, w0)
      [join0] d = Concat<axis = 1>(a, c) [gate] e = Sigmoid(d) [conv2] f = Conv(e, w2)
      [join1] g = Concat<axis = 1>(d, f) [last] out = Sigmoid(g)
    }}"""
FIRST = "x->conv0 w0->conv0"
INT8, FLOAT, TANH = "[conv2] e = Conv(j, w2)", "[conv3] f = Conv(j, w3)", "[tanh] g = Tanh(j)"
GRAPHS = {
    "a view is one more where a kernel rounds what others read as it is": ("v->add1", VIEWED),
    "so is a Transpose of what a product writes": ("t->norm", TURNED),
    "what casts an input rounds it for the product of a row": ("x->flat", FLAT),
    "what only generated kernels read, through Concats, is joined by them": ("", DENSE),
    "a pool of 128 channels runs once for each Q that moved before it": (
        f"{FIRST} j->conv1 w1->conv1",
        pyramid(128),
    ),
    "a pool of fewer channels runs once": (f"{FIRST} j->conv1 w1->conv1", pyramid(64)),
    "DQ stays before a pool that is read in integers and in float": (
        f"{FIRST} a->pool1 b->conv1 w1->conv1",
        pooled("[conv2] e = Conv(b, w2)", "float d, float e"),
    ),
    "which computes in float if two read floats": (
        f"{FIRST} a->pool1 b->conv1 w1->conv1",
        pooled("[conv2] e = Conv(b, w2) [tanh] f = Tanh(b)", "float d, float e, float f"),
    ),
    "one kernel makes floats of a pool's integers": (
        f"{FIRST} a->pool1",
        pooled("[tanh] f = Tanh(b)", "float d, float f"),
    ),
    "a Concat that a Conv reads is in place, whatever else reads it": (
        FIRST,
        joined(f"{FLOAT} {TANH}", "float f, float g"),
    ),
    "integers are joined for one reader, and floats for another": (
        f"{FIRST} j->conv2 w2->conv2",
        joined(f"{INT8} {TANH}", "float e, float g"),
    ),
    "so they are where a Conv reads the floats": (
        f"{FIRST} j->conv2 w2->conv2",
        joined(f"{INT8} {FLOAT}", "float e, float f"),
    ),
    "one kernel makes floats of joined integers": (
        f"{FIRST} j->conv2 w2->conv2 j->conv3 j->tanh",
        joined(f"{INT8} {FLOAT} {TANH}", "float e, float f, float g"),
    ),
}


@pytest.mark.builder
@pytest.mark.parametrize("shown", GRAPHS)
def test_what_runs_again(shown: str, tmp_path: Path, builder: ModuleType):
    pairs, text = GRAPHS[shown]
    text = text_of(text, 17)
    check_built(model_of(text, tmp_path), joined_placement(text, pairs, tmp_path), builder)


@pytest.mark.parametrize(("channels", "pools"), [(64, ["pool1"]), (128, ["pool1", "pool1"])])
def test_wide_pools_run_once_for_each_reader(channels: int, pools: list[str], tmp_path: Path):
    text = text_of(pyramid(channels), 17)
    chosen = joined_placement(text, f"{FIRST} j->conv1 w1->conv1", tmp_path)
    plan = predicted(model_of(text, tmp_path).graph, chosen)
    ran = [layer.nodes[0] for layer in plan.of_kind("compute") if layer.op == "MaxPool"]
    assert ran == [*pools, "pool2"]


def test_a_joined_map_that_a_conv_reads_is_no_kernel(tmp_path: Path):
    text = text_of(joined(f"{FLOAT} {TANH}", "float f, float g"), 17)
    plan = predicted(model_of(text, tmp_path).graph, Placement.of([]))
    assert not any("join" in layer.nodes for layer in plan.of_kind("compute"))
