"""Kernels that are generated: expected layers, and the same from NVIDIA's builder."""

from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.graph.text import graph_of_text
from placer.prediction.select import make_predictor
from placer.prediction.times.gpus import load_gpu
from placer.prediction.times.layer_classes import load_layer_classes
from placer.prediction.times.roofline import Roofline
from placer.quantization import EMPTY
from placer.rules.packaging.load import load_pack
from tests.prediction.kernels.building import (
    TARGET,
    builder_test,
    check_built,
    model_of,
    placement_of,
    predicted,
)

CONVS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,3,32,32] image) => (float[1,16,32,32] out)
<float[16,3,3,3] w1 = {0.1}, float[16,16,3,3] w2 = {0.1}, float[16] b = {1}> {
  [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(image, w1, b)
  [relu1] r1 = Relu(c1)
  [conv2] c2 = Conv<pads = [1, 1, 1, 1]>(r1, w2, b)
  [add1] s = Add(c2, r1)
  [relu2] r2 = Relu(s)
  [conv3] c3 = Conv<pads = [1, 1, 1, 1]>(r2, w2, b)
  [gate] sig = Sigmoid(c3)
  [mul1] out = Mul(c3, sig)
}
"""
ALL = ("image->conv1", "w1->conv1", "r1->conv2", "w2->conv2", "r1->add1", "r2->conv3", "w2->conv3")
CASES = {
    "float": (
        (),
        (
            "pad conv1+relu1: float -> float16",
            "conv1+relu1: float16 -> float16",
            "add1+conv2+relu2: float16 -> float16",
            "conv3: float16 -> float16",
            "generated gate+mul1: float16 -> float",
        ),
    ),
    "INT8: sums are FP32, and the kernels between them do the rest": (
        ALL,
        (
            "pad conv1: float -> int8",
            "conv1: int8 -> float",
            "generated conv1+relu1: float -> int8",
            "conv2: int8 -> float",
            "generated add1+conv2+relu2: float, int8 -> int8",
            "conv3: int8 -> float",
            "generated conv3+gate+mul1: float -> float",
        ),
    ),
    "a product in float does not quantize: a kernel of its own does": (
        ("r2->conv3", "w2->conv3"),
        (
            "pad conv1+relu1: float -> float16",
            "conv1+relu1: float16 -> float16",
            "add1+conv2+relu2: float16 -> float16",
            "quantize r2: float16 -> int8",
            "conv3: int8 -> float",
            "generated conv3+gate+mul1: float -> float",
        ),
    ),
}


# Small graphs whose layers NVIDIA's builder makes exactly as predicted, by what they show.
GRAPHS = {
    "a cast of an input that two kernels read is made once": """
        (float[1,16,8,8] x) => (float[1,16,1,1] mean, float[1,16,8,8] out) {
          [pool1] mean = GlobalAveragePool(x)
          [relu1] out = Relu(x)
        }""",
    "sums over the same elements are one kernel": """
        (float[1,8,16] x) => (float[1,8,16] out) <float[16] g = {1}> {
          [norm1] n = LayerNormalization(x, g)
          [norm2] m = LayerNormalization(n, g)
          [softmax1] out = Softmax(m)
        }""",
    "sums over columns end their kernel": """
        (float[1,16,64] x) => (float[1,1,64] out) {
          [mean1] m = ReduceMean<axes = [1]>(x)
          [relu1] out = Relu(m)
        }""",
    "columns as long as a block end nothing": """
        (float[1,512,64] x) => (float[1,1,64] out) {
          [mean1] m = ReduceMean<axes = [1]>(x)
          [relu1] out = Relu(m)
        }""",
    "a product gives what it adds to the kernel that sums it": """
        (float[1,16,64] x) => (float[1,16,64] out)
        <float[64,64] w1 = {1}, float[64] b = {1}, float[64,64] w2 = {1}> {
          [product1] c = MatMul(x, w1)
          [add1] a = Add(c, b)
          [softmax1] s = Softmax(a)
          [product2] out = MatMul(s, w2)
        }""",
    "a Conv that is prepared for Tanh leaves the cast to another kernel": """
        (float[1,16,8,8] x) => (float[1,16,8,8] out) <float[16,16,1,1] w1 = {1}> {
          [conv1] c = Conv(x, w1)
          [tanh1] out = Tanh(c)
        }""",
    "a residual that is added after the activation only counts as prepared without a cast": """
        (float[1,16,8,8] x) => (float[1,16,8,8] out) <float[16,16,1,1] w1 = {1}> {
          [sin1] x0 = Sin(x)
          [conv1] c = Conv(x0, w1)
          [relu1] r = Relu(c)
          [add1] out = Add(r, x0)
        }""",
    "a Concat of what kernels write is no kernel": """
        (float[1,16,8,8] x, float[1,16,8,8] y) => (float[1,16,8,8] out)
        <float[16,16,1,1] w1 = {1}, float[16,32,1,1] w2 = {1}> {
          [conv1] c = Conv(x, w1)
          [relu1] r = Relu(y)
          [concat1] h = Concat<axis = 1>(c, r)
          [conv2] out = Conv(h, w2)
        }""",
    "pooling reads and writes whole tensors, so a Concat of them copies": """
        (float[1,16,8,8] x) => (float[1,16,8,8] out)
        <float[16,16,1,1] w1 = {1}, float[16,32,1,1] w2 = {1}> {
          [conv1] c = Conv(x, w1)
          [pool1] p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(c)
          [concat1] h = Concat<axis = 1>(c, p)
          [conv2] out = Conv(h, w2)
        }""",
    "an odd number of channels is made even": """
        (float[1,5,8,8] x) => (float[1,16,8,8] out) <float[16,5,1,1] w1 = {1}> {
          [conv1] out = Conv(x, w1)
        }""",
    "a matrix product with a constant on the left": """
        (float[1,16,64] x) => (float[1,64,64] out) <float[64,16] w1 = {1}> {
          [product1] out = MatMul(w1, x)
        }""",
}  # fmt: skip


# The same with the edges that carry a pair.
QUANTIZED = {
    "a mean whose source is written, too, is quantized by a kernel of its own": (
        "x->conv1 w1->conv1 s->pool1 s->mul1 m->conv2 w2->conv2",
        """
        (float[1,16,8,8] x) => (float[1,16,8,8] out)
        <float[16,16,3,3] w1 = {1}, float[16,16,1,1] w2 = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
          [sin1] s = Sin(c)
          [pool1] m = GlobalAveragePool(s)
          [conv2] g = Conv(m, w2)
          [mul1] out = Mul(s, g)
        }""",
    ),
    "integers of one scale that pooling reads and writes are copied into a Concat": (
        "x->conv1 w1->conv1 h->conv2 w2->conv2",
        """
        (float[1,16,8,8] x) => (float[1,16,8,8] out)
        <float[16,16,3,3] w1 = {1}, float[16] b = {1}, float[16,32,1,1] w2 = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b)
          [relu1] r = Relu(c)
          [pool1] p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(r)
          [concat1] h = Concat<axis = 1>(r, p)
          [conv2] out = Conv(h, w2)
        }""",
    ),
    "averages are taken of integers and written as such": (
        "x->conv1 w1->conv1 c->pool1 p->conv2 w2->conv2",
        """
        (float[1,16,8,8] x) => (float[1,16,8,8] out)
        <float[16,16,3,3] w1 = {1}, float[16] b = {1}, float[16,16,1,1] w2 = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b)
          [pool1] p = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(c)
          [conv2] out = Conv(p, w2)
        }""",
    ),
    "averages of another stride are taken in float, and quantized behind": (
        "x->conv1 w1->conv1 c->pool1 p->conv2 w2->conv2",
        """
        (float[1,16,8,8] x) => (float[1,16,4,4] out)
        <float[16,16,3,3] w1 = {1}, float[16] b = {1}, float[16,16,1,1] w2 = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b)
          [pool1] p = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(c)
          [conv2] out = Conv(p, w2)
        }""",
    ),
    "a MaxPool of integers for a float Conv is dequantized behind": (
        "c->pool1",
        """
        (float[1,16,8,8] x) => (float[1,16,4,4] out)
        <float[16,16,3,3] w1 = {1}, float[16] b = {1}, float[16,16,1,1] w2 = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b)
          [pool1] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
          [conv2] out = Conv(p, w2, b)
        }""",
    ),
    "a MaxPool read in INT8 and in float runs once for each": (
        "p->conv2 w2->conv2",
        """
        (float[1,16,8,8] x) => (float[1,16,4,4] out, float[1,16,4,4] other)
        <float[16,16,3,3] w1 = {1}, float[16] b = {1}, float[16,16,1,1] w2 = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b)
          [pool1] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
          [conv2] out = Conv(p, w2)
          [conv3] other = Conv<pads = [1, 1, 1, 1]>(p, w1, b)
        }""",
    ),
    "parts of a Concat of integers that float Convs write are quantized in place": (
        "d->conv3 w3->conv3",
        """
        (float[1,16,8,8] x) => (float[1,16,8,8] out)
        <float[16,16,3,3] w1 = {1}, float[16] b = {1}, float[16,16,1,1] w2 = {1},
         float[16,32,1,1] w3 = {1}> {
          [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(x, w1, b)
          [relu1] c = Relu(c1)
          [conv2] e = Conv(c, w2, b)
          [join] d = Concat<axis = 1>(c, e)
          [conv3] out = Conv(d, w3)
        }""",
    ),
    "a Concat of floats that an INT8 Conv and a float Conv read is made twice": (
        "d->conv3 w3->conv3",
        """
        (float[1,16,8,8] x) => (float[1,16,8,8] out, float[1,16,8,8] other)
        <float[16,16,3,3] w1 = {1}, float[16] b = {1}, float[16,16,1,1] w2 = {1},
         float[16,32,1,1] w3 = {1}> {
          [conv0] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b)
          [conv1] f = Conv<pads = [1, 1, 1, 1]>(c, w1, b)
          [conv2] e = Conv(c, w2, b)
          [join] d = Concat<axis = 1>(f, e)
          [conv3] out = Conv(d, w3)
          [conv4] other = Conv(d, w3, b)
        }""",
    ),
    "what multiplies a row in float quantizes it itself": (
        "c->mean1 f->head1",
        """
        (float[1,16,8,8] x) => (float[1,8] out)
        <float[16,16,3,3] w1 = {1}, float[16] b = {1}, float[16,8] w2 = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b)
          [mean1] m = GlobalAveragePool(c)
          [flat1] f = Flatten(m)
          [head1] out = Gemm(f, w2)
        }""",
    ),
    "a Conv adds what is resized from a later one": (
        "",
        """
        (float[1,16,8,8] x) => (float[1,16,8,8] out)
        <float[16,16,3,3] w1 = {1}, float[16] b = {1}, float[16,16,1,1] w2 = {1}> {
          s = Constant<value = float[4] {1, 1, 2, 2}>()
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b)
          [conv2] d = Conv<strides = [2, 2]>(x, w2, b)
          [up1] u = Resize<mode = "nearest">(d, , s)
          [add1] sum = Add(c, u)
          [conv3] out = Conv(sum, w2, b)
        }""",
    ),
    "joint queries and keys: a bias is added once for each": (
        "",
        """
        (float[1,16,32] x) => (float[1,2,16,16] q, float[1,2,16,16] k)
        <float[32,64] w1 = {1}, float[64] b = {1}> {
          shape = Constant<value = int64[4] {1, 16, 2, 16}>()
          [product1] p = MatMul(x, w1)
          [bias1] y = Add(p, b)
          [parts] a, c = Split<axis = 2>(y)
          [heads1] h = Reshape(a, shape)
          [turn1] q = Transpose<perm = [0, 2, 1, 3]>(h)
          [heads2] i = Reshape(c, shape)
          [turn2] k = Transpose<perm = [0, 2, 1, 3]>(i)
        }""",
    ),
    "a norm whose tokens are transposed takes two kernels": (
        "",
        """
        (float[1,16,32] x) => (float[1,16,16,2] out)
        <float[32,32] w1 = {1}, float[32] g = {1}, float[32] b = {1}> {
          shape = Constant<value = int64[4] {1, 2, 16, 16}>()
          [product1] p = MatMul(x, w1)
          [norm1] n = LayerNormalization(p, g, b)
          [turn1] t = Transpose<perm = [0, 2, 1]>(n)
          [heads1] h = Reshape(t, shape)
          [turn2] out = Transpose<perm = [0, 2, 3, 1]>(h)
        }""",
    ),
    "tokens of a map cost nothing beside a Conv": (
        "",
        """
        (float[1,16,8,8] x) => (float[1,64,16] out)
        <float[16,16,3,3] w1 = {1}, float[16] b = {1}, float[16,16] w2 = {1}> {
          shape = Constant<value = int64[3] {1, 16, 64}>()
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1, b)
          [flat1] f = Reshape(c, shape)
          [turn1] t = Transpose<perm = [0, 2, 1]>(f)
          [norm1] n = LayerNormalization(t, b, b)
          [product1] p = MatMul(n, w2)
          [bias1] out = Add(p, b)
        }""",
    ),
    "powers are computed in FP32, behind the product": (
        "",
        """
        (float[1,16,32] x) => (float[1,16,32] out) <float[32,32] w1 = {1}, float[32] b = {1}> {
          three = Constant<value = float {3}>()
          [product1] p = MatMul(x, w1)
          [bias1] y = Add(p, b)
          [cube] z = Pow(y, three)
          [add1] out = Add(y, z)
        }""",
    ),
    "heads of other widths are one product": (
        "",
        """
        (float[1,16,32] x) => (float[1,16,24] one, float[1,16,8] two)
        <float[32,24] w1 = {1}, float[24] b1 = {1}, float[32,8] w2 = {1}, float[8] b2 = {1}> {
          [product1] p = MatMul(x, w1)
          [bias1] one = Add(p, b1)
          [product2] q = MatMul(x, w2)
          [bias2] two = Add(q, b2)
        }""",
    ),
    "a shared weight of float Convs is dequantized once, when it runs": (
        "w1->conv1 w1->conv2",
        """
        (float[1,16,8,8] x) => (float[1,16,8,8] out) <float[16,16,3,3] w1 = {1}> {
          [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
          [conv2] out = Conv<pads = [1, 1, 1, 1]>(c, w1)
        }""",
    ),
    "an INT8 Conv of 6 channels gets two of zeros": (
        "r->conv1 w1->conv1",
        """
        (float[1,6,8,8] x) => (float[1,16,8,8] out) <float[16,6,1,1] w1 = {1}> {
          [relu1] r = Relu(x)
          [conv1] out = Conv(r, w1)
        }""",
    ),
    "the weight of a ConvTranspose is dequantized when it runs": (
        "x->up1 w1->up1",
        """
        (float[1,16,8,8] x) => (float[1,16,16,16] out) <float[16,16,2,2] w1 = {1}> {
          [up1] out = ConvTranspose<strides = [2, 2]>(x, w1)
        }""",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_layers_are_those_of_a_compiler_that_generates_kernels(case: str, tmp_path: Path):
    pairs, expected = CASES[case]
    model = model_of(CONVS, tmp_path)
    plan = predicted(model.graph, placement_of(model.graph, pairs))
    lines = [
        f"{layer.name}: {', '.join(layer.input_types)} -> {', '.join(layer.output_types)}"
        for layer in plan.layers
    ]
    assert lines == list(expected)


@pytest.mark.builder
@pytest.mark.parametrize("case", CASES)
def test_nvidias_builder_makes_the_same_layers(case: str, tmp_path: Path, builder: ModuleType):
    model = model_of(CONVS, tmp_path)
    check_built(model, placement_of(model.graph, CASES[case][0]), builder)


test_nvidias_builder_makes_the_layers_that_are_predicted = builder_test(GRAPHS, opset=17)
test_nvidias_builder_makes_the_layers_that_are_predicted_of_pairs = builder_test(
    QUANTIZED, opset=17
)


@settings(max_examples=30, deadline=None)
@given(chosen=st.sets(st.sampled_from(ALL)))
def test_every_node_is_in_a_layer_and_every_layer_has_a_time(chosen: set[str], tmp_path_factory):
    model = model_of(CONVS, tmp_path_factory.mktemp("kernels"))
    predictor = make_predictor(model.graph, load_pack("tensorrt-rtx"), TARGET, "float16")
    prediction = predictor.predict(placement_of(model.graph, tuple(chosen)))
    layers = prediction.plan.layers
    assert {node for layer in layers for node in layer.nodes} == set(model.graph.by_name)
    assert len({layer.name for layer in layers}) == len(layers)
    plan = Roofline(model.graph, load_gpu("rtx-4090"), load_layer_classes()).estimate(prediction)
    assert all(layer.time_us and layer.time_us > 0 for layer in plan.layers)


def test_an_input_that_only_the_body_of_an_if_reads_has_no_kernel(tmp_path: Path):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4] x, float[1,4] state, bool first) => (float[1,4] y) {
      [relu] a = Relu(x)
      [if] b = If(first) <
        then_branch = kept () => (float[1,4] p) { p = Tanh(state) },
        else_branch = new () => (float[1,4] q) { q = Sigmoid(state) }
      >
      [add] y = Add(a, b)
    }
    """
    model = model_of(text, tmp_path)
    predictor = make_predictor(model.graph, load_pack("tensorrt-rtx"), TARGET, "float16")
    plan = predictor.predict(EMPTY).plan
    assert {node for layer in plan.layers for node in layer.nodes} == set(model.graph.by_name)
    assert {port.tensor for layer in plan.layers for port in layer.inputs} >= {"x", "first"}


def test_nodes_without_inputs_are_predicted(tmp_path: Path):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] out) {
      [noise] n = RandomNormal<shape = [1, 16, 8, 8]>()
      [add] s = Add(x, n)
      [relu] out = Relu(s)
    }
    """
    layers = predicted(model_of(text, tmp_path).graph, EMPTY).layers
    assert {node for layer in layers for node in layer.nodes} == {"noise", "add", "relu"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("[conv1] c = Conv(x, w)\n[relu1] out = Relu(c)", [("conv1", "relu1")]),
        ("[mul1] a = Mul(h, x)\n[product1] out = MatMul(a, x)", [("mul1", "product1")]),
    ],
)
def test_an_input_of_the_engines_type_is_read_as_it_is(
    body: str, expected: list[tuple[str, ...]], tmp_path: Path
):
    text = f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,8,8] x) => (float[1,16,8,8] out) <float[16,16,1,1] w = {{1}}> {{
      h = Constant<value = float {{0.5}}>()
      {body}
    }}
    """
    model = model_of(text, tmp_path)
    predictor = make_predictor(model.graph, load_pack("tensorrt-rtx"), TARGET, "float")
    assert [layer.nodes for layer in predictor.predict(EMPTY).plan.layers] == expected


def test_a_placement_is_predicted_alike_from_another_one_and_from_nothing(tmp_path: Path):
    model = model_of(CONVS, tmp_path)
    predictor = make_predictor(model.graph, load_pack("tensorrt-rtx"), TARGET, "float16")
    full = placement_of(model.graph, ALL)
    near = predictor.predict(full, predictor.predict(EMPTY))
    assert near.plan == predictor.predict(full).plan
    assert near.changed  # All of it is given anew.


@settings(deadline=None, max_examples=30)
@given(st.sets(st.sampled_from(ALL)), st.sets(st.sampled_from(ALL)))
def test_a_change_varies_a_prediction_to_what_is_predicted_anew(
    before: set[str], after: set[str]
) -> None:
    graph = graph_of_text(CONVS)
    predictor = make_predictor(graph, load_pack("tensorrt-rtx"), TARGET, "float16")
    near = predictor.predict(placement_of(graph, tuple(before)))
    wanted = placement_of(graph, tuple(after))
    steps = {**near.steps, **predictor.vary(near, near.placement.change_to(wanted))}
    layers = [layer for i in sorted(steps) if (s := steps[i]) is not None for layer in s.layers]
    anew = predictor.predict(wanted).layers
    assert [found.layer for found in layers] == [found.layer for found in anew]
