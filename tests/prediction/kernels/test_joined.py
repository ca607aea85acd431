"""Parts of joined tensors: NVIDIA's builder writes floats where they belong, in one tensor only."""

from pathlib import Path
from types import ModuleType

import pytest

from placer.model import Model
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from tests.prediction.kernels.building import (
    TARGET,
    builder_test,
    check_built,
    model_of,
    placement_of,
    predicted,
    text_of,
)

SILU = "[gate1] s1 = Sigmoid(c1) [mul1] a = Mul(c1, s1)"
NECK = f"""
    (float[1,32,8,8] x, float[1,16,16,16] y) => (float[1,16,8,8] out)
    <float[16,32,1,1] w1 = {{1}}, float[16,32,1,1] w2 = {{1}}, float[16,16,3,3] w3 = {{1}},
     float[16,32,3,3] w4 = {{1}}> {{
      twice = Constant<value = float[4] {{1.0, 1.0, 2.0, 2.0}}>()
      [conv1] c1 = Conv(x, w1)
      {SILU}
      [up1] u = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
                       nearest_mode = "floor">(a, , twice)
      [join1] j = Concat<axis = 1>(u, y)
      [conv2] b = Conv(j, w2)
      [conv3] d = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(b, w3)
      [join2] k = Concat<axis = 1>(d, a)
      [conv4] out = Conv<pads = [1, 1, 1, 1]>(k, w4)
    }}"""
WEIGHTS = """float[16,16,3,3] w1 = {1}, float[16,16,3,3] w2 = {1}, float[16,32,1,1] w3 = {1},
     float[16,48,1,1] w4 = {1}"""
ELAN = f"""
    (float[1,16,8,8] x) => (float[1,16,8,8] out) <{WEIGHTS}> {{
      [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(x, w1)
      {SILU}
      [conv2] c2 = Conv<pads = [1, 1, 1, 1]>(a, w2)
      ACTIVE
      [join1] j = Concat<axis = 1>(a, b)
      [conv3] out = Conv(j, w3)
    }}"""
DENSE = f"""
    (float[1,16,8,8] x) => (float[1,16,8,8] out) <{WEIGHTS}> {{
      [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(x, w1)
      [relu1] a = Relu(c1)
      [join1] j = Concat<axis = 1>(x, a)
      [conv2] b = Conv(j, w3)
      [join2] k = Concat<axis = 1>(x, a, b)
      [conv3] out = Conv(k, w4)
    }}"""
TREE = """
    (float[1,16,8,8] x) => (float[1,16,8,8] out)
    <float[16,16,3,3] w1 = {1}, float[16,16,3,3] w2 = {1}, float[16,32,1,1] w3 = {1}> {
      [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(x, w1) [relu1] a = Relu(c1)
      [conv2] c2 = Conv<pads = [1, 1, 1, 1]>(a, w2) [add1] s = Add(c2, a) [relu2] t = Relu(s)
      [join1] j = Concat<axis = 1>(t, a) [conv3] out = Conv(j, w3)
    }"""
GRAPHS = {
    "what scales an INT8 Conv adds one part, and another kernel writes the other one": (
        "a->conv2 w2->conv2",
        TREE,
    ),
    "what a Resize reads is computed by the Conv where it is joined later": ("", NECK),
    "and where an INT8 Conv wrote it, by a kernel of its own": ("x->conv1 w1->conv1", NECK),
    "the kernel that joins integers quantizes it": (
        "x->conv1 w1->conv1 j->conv2 w2->conv2",
        NECK,
    ),
    "sums of INT8 products are joined by the kernel that scales them": (
        "x->conv1 w1->conv1 x->conv2 w2->conv2",
        f"""
        (float[1,16,8,8] x) => (float[1,16,8,8] out) <{WEIGHTS}> {{
          [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(x, w1)
          [tanh1] a = Tanh(c1)
          [conv2] c2 = Conv<pads = [1, 1, 1, 1]>(x, w2)
          [tanh2] b = Tanh(c2)
          [join1] j = Concat<axis = 1>(a, b)
          [conv3] out = Conv(j, w3)
        }}""",
    ),
    "a generated activation is apart where its Conv reads another part": (
        "",
        ELAN.replace("ACTIVE", "[gate2] s2 = Sigmoid(c2) [mul2] b = Mul(c2, s2)"),
    ),
    "a prepared one is not": ("", ELAN.replace("ACTIVE", "[relu2] b = Relu(c2)")),
    "parts that another Concat reads are copied": ("", DENSE),
    "a pool of single elements is no layer": (
        "c->conv2 w2->conv2",
        f"""
        (float[1,16,8,8] x) => (float[1,16,8,8] out) <{WEIGHTS}> {{
          [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(x, w1)
          [pool1] c = AveragePool<kernel_shape = [1, 1]>(c1)
          [conv2] out = Conv<pads = [1, 1, 1, 1]>(c, w2)
        }}""",
    ),
    "an input that is cast and quantized is read by one kernel": (
        "x->conv2 w2->conv2",
        f"""
        (float[1,16,8,8] x) => (float[1,16,8,8] out, float[1,16,8,8] other) <{WEIGHTS}> {{
          [conv1] out = Conv<pads = [1, 1, 1, 1]>(x, w1)
          [conv2] other = Conv<pads = [1, 1, 1, 1]>(x, w2)
        }}""",
    ),
    "a view that is quantized is only quantized": (
        "f->product1 w->product1",
        """
        (float[2,16,8] x) => (float[2,32] out) <float[128,32] w = {1}> {
          shape = Constant<value = int64[2] {2, 128}>()
          [view1] f = Reshape(x, shape)
          [product1] out = MatMul(f, w)
        }""",
    ),
    "what leaves without the dimension that was summed is cast by that name": (
        "",
        """
        (float[1,16,32] x) => (float[1,32] out) <float[32,32] w = {1}> {
          rows = Constant<value = int64[1] {1}>()
          [product1] p = MatMul(x, w)
          [sin1] s = Sin(p)
          [mean1] out = ReduceMean<keepdims = 0>(s, rows)
        }""",
    ),
}


def model(graph: str, folder: Path) -> Model:
    return model_of(f'<ir_version: 9, opset_import: ["": 18]> g {graph}', folder)


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=18)


def test_the_neck_of_a_detector_keeps_its_activations_with_the_convs(tmp_path: Path):
    given = model(NECK, tmp_path)
    plan = predicted(given.graph, placement_of(given.graph, ()))
    assert [set(layer.nodes) for layer in plan.of_kind("compute")] == [
        {"conv1", "gate1", "mul1"},
        {"up1", "join1"},
        {"conv2"},
        {"conv3"},
        {"conv4"},
    ]


PARTS = """
    (float[1,16,8,8] x) => (float[1,32,8,8] out)
    <float[32,16,3,3] w1 = {1}, float[16,16,3,3] w2 = {1}, float[16,16,3,3] w3 = {1},
     float[32,32,3,3] w4 = {1}, float[32,32,3,3] w5 = {1}, float[32] b = {1}> {
      [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b)
      [split1] p, q = Split<axis = 1, num_outputs = 2>(c)
      [conv2] s = Conv<pads = [1, 1, 1, 1]>(p, w2)
      [conv3] t = Conv<pads = [1, 1, 1, 1]>(q, w3)
      [join1] j = Concat<axis = 1>(s, t)
      [conv4] k = Conv<pads = [1, 1, 1, 1]>(j, w4, b)
      [add1] a = Add(k, c)
      [conv5] out = Conv<pads = [1, 1, 1, 1]>(a, w5, b)
    }"""
QUANTIZED = "x->conv1 w1->conv1 c->split1 c->add1 p->conv2 w2->conv2 q->conv3 w3->conv3 j->conv4"


@pytest.mark.builder
def test_what_is_cut_apart_as_integers_is_added_as_integers(tmp_path: Path, builder: ModuleType):
    model = model_of(f'<ir_version: 9, opset_import: ["": 18]> g {PARTS}', tmp_path)
    pairs = (*QUANTIZED.split(), "w4->conv4", "a->conv5", "w5->conv5")
    check_built(model, placement_of(model.graph, pairs), builder)


BEHIND_A_MEAN = """
    (float[1,16,8,8] x) => (float[1,16,8,8] out, float[1,16,1,1] gate, float[1,16,1,1] mean)
    <float[16,16,1,1] w1 = {1}, float[16,32,1,1] w2 = {1}, float[16] b = {1}> {
      [sigmoid1] s = Sigmoid(x)
      [pool1] m = GlobalAveragePool(s)
      [conv1] gate = Conv(m, w1, b)
      [pool2] mean = GlobalAveragePool(s)
      [conv2] c = Conv(s, w1, b)
      [join1] j = Concat<axis = 1>(s, c)
      [conv3] out = Conv(j, w2, b)
    }"""

QUANTIZED_MEAN = ("m->conv1", "w1->conv1", "s->conv2", "w1->conv2", "j->conv3", "w2->conv3")


def test_what_scales_a_product_joins_it_beside_a_mean_that_is_quantized_apart(tmp_path: Path):
    given = model(BEHIND_A_MEAN, tmp_path)
    plan = predicted(given.graph, placement_of(given.graph, QUANTIZED_MEAN))
    assert [layer.name for layer in plan.of_kind("quantize")] == ["quantize m"]
    assert [layer.name for layer in plan.of_kind("compute") if "join1" in layer.nodes] == [
        "generated conv2+join1"
    ]


@pytest.mark.builder
def test_so_does_nvidias_builder(tmp_path: Path, builder: ModuleType):
    given = model(BEHIND_A_MEAN, tmp_path)
    check_built(given, placement_of(given.graph, QUANTIZED_MEAN), builder)


U_NET = """
    (float[1,16,16,16] x) => (float[1,16,16,16] out)
    <float[16,16,3,3] w = {1}, float[16,16,2,2] u = {1}, float[16,32,3,3] v = {1}> {
      [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w)
      [relu1] s = Relu(a)
      [pool1] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(s)
      [conv2] b = Conv<pads = [1, 1, 1, 1]>(p, w)
      [relu2] r = Relu(b)
      [up1] t = ConvTranspose<kernel_shape = [2, 2], strides = [2, 2]>(r, u)
      [join1] j = Concat<axis = 1>(t, s)
      [conv3] out = Conv<pads = [1, 1, 1, 1]>(j, v)
    }"""


@pytest.mark.builder
def test_what_a_transposed_conv_writes_is_quantized_where_it_is_joined(
    tmp_path: Path, builder: ModuleType
):
    model = model_of(text_of(U_NET, 17), tmp_path)
    placement = place(find_sites(model.graph, load_pack("tensorrt").rules, TARGET), {})
    check_built(model, placement, builder)
    layers = predicted(model.graph, placement).of_kind("compute")
    assert [layer.nodes for layer in layers if "join1" in layer.nodes] == [("join1",)]
