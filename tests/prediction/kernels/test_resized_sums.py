"""Sums of resized maps: a kernel resizes one map at most, and NVIDIA's builder has an order."""

from pathlib import Path
from types import ModuleType

import pytest

from placer.prediction.kernels.order import branches_last_first
from placer.quantization import Placement
from tests.prediction.kernels.building import builder_test, check_built, model_of, text_of

CONSTANTS = """
<float[32,32,1,1] wa = {1}, float[32,32,3,3] wd = {1}, float[32,32,1,1] wb = {1},
 float[32,32,3,3] we = {1}, float[32,32,1,1] wc = {1}, float[32,32,3,3] wo = {1},
 float[32,64,1,1] wj = {1}>"""
DOWN = "pads = [1, 1, 1, 1], strides = [2, 2]"
NEAREST = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
LINEAR = 'mode = "linear", coordinate_transformation_mode = "half_pixel"'


def maps(mode: str, sums: str, inputs: str = "float[1,32,16,16] x") -> str:
    """A map x, and two of half and a quarter of its size that are resized to its size."""
    return f"""
    ({inputs}) => (float out) {CONSTANTS} {{
      twice = Constant<value = float[4] {{1.0, 1.0, 2.0, 2.0}}>()
      four = Constant<value = float[4] {{1.0, 1.0, 4.0, 4.0}}>()
      [conv1] a = Conv(x, wa)
      [conv2] d = Conv<{DOWN}>(x, wd) [conv3] b = Conv(d, wb)
      [conv4] e = Conv<{DOWN}>(d, we) [conv5] c = Conv(e, wc)
      [up1] u = Resize<{mode}>(b, , twice)
      [up2] v = Resize<{mode}>(c, , four)
      {sums}
    }}"""


BRANCHES = "x->conv1 wa->conv1 x->conv2 wd->conv2 d->conv3 wb->conv3 d->conv4 we->conv4"
BRANCHES = f"{BRANCHES} e->conv5 wc->conv5"
LAST = "s->conv6 wo->conv6"
TWO = "[add1] r = Add(a, u) [relu1] q = Relu(r) [add2] s = Add(q, v)"
LAST_CONV = "[conv6] out = Conv<pads = [1, 1, 1, 1]>(s, wo)"
PYRAMID = """
    (float[1,32,16,16] x) => (float out) {constants} {{
      twice = Constant<value = float[4] {{1.0, 1.0, 2.0, 2.0}}>()
      [conv1] a = Conv(x, wa)
      [conv2] d = Conv<{down}>(x, wd) [conv3] b = Conv(d, wb)
      [conv4] e = Conv<{down}>(d, we) [conv5] c = Conv(e, wc)
      [up1] t = Resize<{mode}>(c, , twice) [add1] r = Add(b, t)
      [up2] u = Resize<{mode}>(r, , twice) [add2] s = Add(a, u)
      {last}
    }}"""
JOINED = "[join] j = Concat<axis = 1>(u, v) [conv6] out = Conv(j, wj)"

SUMS = "[add1] r = Add(a, u) [add2] s = Add(a, v)"
JOINED_SUMS = "[join] j = Concat<axis = 1>(r, s) [relu1] q = Relu(j) [conv6] out = Conv(q, wj)"
SUM_AND_MAP = "[join] j = Concat<axis = 1>(r, v) [relu1] q = Relu(j) [conv6] out = Conv(q, wj)"
TOKENS = """
    (float[1,1024,32] x, float[1,256,32] y) => (float out)
    <float[32,32] w1 = {1}, float[32] b1 = {1}, float[32,32] w2 = {1}, float[32] b2 = {1},
     float[32,64,1,1] wj = {1}> {
      twice = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()
      large = Constant<value = int64[4] {1, 32, 32, 32}>()
      small = Constant<value = int64[4] {1, 32, 16, 16}>()
      [product1] p = MatMul(x, w1) [bias1] a = Add(p, b1)
      [turn1] t = Transpose<perm = [0, 2, 1]>(a) [map1] m = Reshape(t, large)
      [product2] q = MatMul(y, w2) [bias2] b = Add(q, b2)
      [turn2] u = Transpose<perm = [0, 2, 1]>(b) [map2] n = Reshape(u, small)
      [up] v = Resize<mode = "linear">(n, , twice)
      [join] j = Concat<axis = 1>(v, m) [conv] c = Conv(j, wj) [relu1] out = Relu(c)
    }"""
NECK = """
    (float[1,32,16,16] x) => (float out) {constants} {{
      twice = Constant<value = float[4] {{1.0, 1.0, 2.0, 2.0}}>()
      [conv1] a = Conv(x, wa)
      [conv2] d = Conv<{down}>(x, wd) [conv3] b = Conv(d, wb) [relu1] t = Relu(b)
      [up1] u = Resize<{mode}>(t, , twice) [add1] s = Add(a, u)
      [conv4] c = Conv(s, wc)
      [up2] v = Resize<{mode}>(t, , twice)
      [join] j = Concat<axis = 1>(c, v) [conv6] out = Conv(j, wj)
    }}"""
NECK_PAIRS = """x->conv1 wa->conv1 x->conv2 wd->conv2 d->conv3 wb->conv3 u->add1 s->conv4 wc->conv4
    c->join v->join j->conv6 wj->conv6"""


def neck(mode: str) -> str:
    """A map that is added to a larger one and joined with what is made of the sum."""
    return NECK.format(constants=CONSTANTS, down=DOWN, mode=mode)


def pyramid(mode: str) -> str:
    return PYRAMID.format(constants=CONSTANTS, down=DOWN, mode=mode, last=LAST_CONV)


GRAPHS = {
    "in FP16 all is computed with the first map that is resized": maps(NEAREST, TWO + LAST_CONV),
    "what adds a resized map is a kernel, and what is computed of it in that of the next": (
        f"{BRANCHES} {LAST}",
        maps(NEAREST, TWO + LAST_CONV),
    ),
    "so it is of linear ones": (f"{BRANCHES} {LAST}", maps(LINEAR, TWO + LAST_CONV)),
    "a map that a pair rounds behind its Resize is written by that": (
        f"{BRANCHES} u->add1 {LAST}",
        maps(LINEAR, TWO + LAST_CONV),
    ),
    "nearest neighbours are rounded before": (
        f"{BRANCHES} u->add1 {LAST}",
        maps(NEAREST, TWO + LAST_CONV),
    ),
    "what a prepared kernel writes begins with the first sum": (
        f"x->conv2 wd->conv2 d->conv3 wb->conv3 d->conv4 we->conv4 e->conv5 wc->conv5 {LAST}",
        maps(NEAREST, TWO + LAST_CONV),
    ),
    "a pyramid's sum is rounded for the next Resize": (
        f"{BRANCHES} t->add1 u->add2 {LAST}",
        pyramid(NEAREST),
    ),
    "and resized where it is summed if its first map is rounded": (
        f"{BRANCHES} t->add1 u->add2 {LAST}",
        pyramid(LINEAR),
    ),
    "a map that two Resizes read is resized for the last one where it is written": (
        NECK_PAIRS,
        neck(LINEAR),
    ),
    "of two rounded maps the one that is computed first is resized where they are joined": (
        f"{BRANCHES} u->join v->join j->conv6 wj->conv6",
        maps(LINEAR, JOINED),
    ),
}
FLOATS = {
    "of two sums that are joined that of the last reader is resized there": maps(
        LINEAR, f"{SUMS} {JOINED_SUMS}"
    ),
    "and a map that is joined as it is resized before a sum": maps(
        LINEAR, f"[add1] r = Add(a, u) {SUM_AND_MAP}"
    ),
    "a large map of tokens is turned by a kernel of its own": TOKENS,
    "what a gate multiplies is added to another map where that is resized": maps(
        LINEAR,
        '[mul] r = Mul(a, u) [add] s = Add(r, v) [up3] t = Resize<mode = "linear">(s, , twice)'
        " [conv6] out = Conv(t, wo)",
    ),
    "what is computed of a sum, to be resized, is computed there": maps(
        LINEAR,
        "[add] r = Add(x, u) [sigmoid] g = Sigmoid(r) [silu] s = Mul(r, g)"
        ' [up3] t = Resize<mode = "linear">(s, , twice) [conv6] out = Conv(t, wo)',
    ),
    "a HardSwish of it, too": maps(
        LINEAR,
        "[add] r = Add(x, u) [active] s = HardSwish(r)"
        ' [up3] t = Resize<mode = "linear">(s, , twice) [conv6] out = Conv(t, wo)',
    ),
    "a Softplus of it stays where the sum is": maps(
        LINEAR,
        "[add] r = Add(x, u) [active] s = Softplus(r)"
        ' [up3] t = Resize<mode = "linear">(s, , twice) [conv6] out = Conv(t, wo)',
    ),
    "and so does its square": maps(
        LINEAR,
        "[add] r = Add(x, u) [square] s = Mul(r, r)"
        ' [up3] t = Resize<mode = "linear">(s, , twice) [conv6] out = Conv(t, wo)',
    ),
}
test_layers_are_those_that_the_builder_makes = builder_test(GRAPHS, opset=17)
test_float_layers_are_those_that_the_builder_makes = builder_test(FLOATS, opset=17)


def test_the_last_reader_of_a_tensor_is_visited_first(tmp_path):
    model = model_of(text_of(maps(NEAREST, JOINED), 17), tmp_path)
    order = branches_last_first(model.graph)
    convs = sorted((name for name in order if name.startswith("conv")), key=order.__getitem__)
    assert convs == ["conv2", "conv4", "conv5", "conv3", "conv6"]


@pytest.mark.builder
def test_rounded_maps_are_joined_where_they_are_written(tmp_path: Path, builder: ModuleType):
    joined = "[join] j = Concat<axis = 1>(a, u) [conv6] out = Conv(j, wj)"
    model = model_of(text_of(maps(LINEAR, joined), 17), tmp_path)
    pairs = "x->conv2 wd->conv2 d->conv3 wb->conv3 a->join u->join j->conv6 wj->conv6".split()
    edges = [edge for edges in model.graph.consumers.values() for edge in edges]
    placed = [edge for edge in edges if f"{edge.tensor}->{edge.node}" in pairs]
    check_built(model, Placement.of(placed, shared=[{"a", "u", "j"}]), builder)


@pytest.mark.builder
def test_integers_of_a_map_that_is_resized_twice(tmp_path: Path, builder: ModuleType):
    """They are resized where they are joined, and where they are added."""
    model = model_of(text_of(neck(NEAREST), 17), tmp_path)
    edges = [edge for edges in model.graph.consumers.values() for edge in edges]
    placed = [edge for edge in edges if f"{edge.tensor}->{edge.node}" in NECK_PAIRS.split()]
    check_built(model, Placement.of(placed, shared=[{"c", "v", "j"}]), builder)
