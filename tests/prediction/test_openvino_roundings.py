"""Where OpenVINO rounds to a pair without writing integers, and which operands it reads as such."""

import pytest

from placer.graph import Edge
from tests.prediction.test_openvino_plans import conversions, layers, plans

HEAD = """
g (float[1,16,16,16] x, float[1,16,16,16] z) => (float[1,16,16,16] y)
<float[16,16,1,1] w = {1}, float[16,16,1,1] w2 = {1}, float[16] b = {1}, float[16,16] v = {1}> {
"""
X, W = Edge("x", "conv1", 0), Edge("w", "conv1", 1)
CONV = "[conv1] a = Conv(x, w, b)"


def check(body, pairs, folder):
    """The actual layers and conversions, which must be the predicted ones."""
    predicted, actual = plans(f"{HEAD}{body}}}", pairs, folder)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    return layers(actual), conversions(actual)


@pytest.mark.parametrize("reader", ["Softmax(s)", "LRN<size = 3>(s)"])
def test_an_element_wise_kernel_rounds_for_readers_in_float(reader, tmp_path):
    body = f"[add1] s = Add(x, z) [last] y = {reader}"
    found, converted = check(body, [(Edge("s", "last", 0),)], tmp_path)
    assert found[frozenset({"add1"}), ("float",)] == 1
    assert not converted


def test_an_element_wise_kernel_writes_integers_and_rounded_floats(tmp_path):
    body = "[add1] s = Add(x, z) [conv2] c = Conv(s, w2) [soft] d = Softmax(s) [max1] y = Max(c, d)"
    pairs = [(Edge("s", "conv2", 0), Edge("s", "soft", 0)), (Edge("w2", "conv2", 1),)]
    found, converted = check(body, pairs, tmp_path)
    assert found[frozenset({"add1"}), ("float", "uint8")] == 1
    assert not converted


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize(("act", "rounds"), [("Relu", True), ("Tanh", False)])
def test_a_conv_rounds_to_a_pair_without_zero_point(act, rounds, int8, tmp_path):
    body = f"{CONV} [act1] s = {act}(a) [last] y = Softmax(s)"
    pairs = [(Edge("s", "last", 0),), *([(X,), (W,)] if int8 else [])]
    found, converted = check(body, pairs, tmp_path)
    assert (converted["dequantize", "uint8", "float"] == 0) is rounds
    assert (found[frozenset({"conv1", "act1"}), ("float",)] == 1) or (int8 and not rounds)


def test_a_tensor_that_is_quantized_twice_goes_through_one_kernel(tmp_path):
    text = """
    g (float[1,16,16,16] x, float[1,16,16,16] z) => (float[1,32,16,16] y) {
      [concat1] s = Concat<axis = 1>(x, z)
      [last] y = Softmax(s)
    }
    """
    pairs = [(Edge("x", "concat1", 0),), (Edge("z", "concat1", 1),), (Edge("s", "last", 0),)]
    predicted, actual = plans(text, pairs, tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    converted = conversions(actual)
    assert converted["quantize", "float", "uint8"] == 2
    assert not converted["requantize", "uint8", "uint8"]


OPERANDS = {
    "input": "[in1] a = Identity(x)",
    "conv": CONV,
    "linear": "[fc1] a = MatMul(x, v)",
}


@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize("writer", OPERANDS)
def test_operands_of_which_both_carry_pairs_are_read_as_openvino_does(op, writer, tmp_path):
    body = f"{OPERANDS[writer]} [op1] t = {op}(z, a) [last] y = Softmax(t)"
    tensor = "x" if writer == "input" else "a"
    pairs = [(Edge("z", "op1", 0),), (Edge(tensor, "op1", 1),)]
    _, converted = check(body, pairs, tmp_path)
    kept = op == "Add" and writer == "conv"  # The other operand is read as integers.
    assert converted["quantize", "float", "uint8"] == kept


def test_a_linear_layer_without_bias_is_quantized_apart_for_a_sum(tmp_path):
    body = "[fc1] a = MatMul(x, v) [add1] t = Add(a, z) [last] y = Softmax(t)"
    pairs = [(Edge("x", "fc1", 0),), (Edge("v", "fc1", 1),), (Edge("a", "add1", 0),)]
    _, converted = check(body, pairs, tmp_path)
    assert converted["quantize", "float", "uint8"] == 2


@pytest.mark.parametrize(("outputs", "parts"), [("float[1,16,16,16] y", 1), ("BOTH", 2)])
def test_an_element_wise_kernel_writes_one_graph_output(outputs, parts, tmp_path):
    outputs = outputs.replace("BOTH", "float[1,16,16,16] a, float[1,16,16,16] y")
    text = f"g (float[1,16,16,16] x) => ({outputs}) {{ [act1] a = Sigmoid(x) [act2] y = Relu(a) }}"
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)
    assert layers(actual).total() == parts


def test_a_kernel_that_quantizes_and_writes_floats_besides_is_a_quantization(tmp_path):
    text = """
    g (float[1,49,64] x) => (float[1,49,64] y, float[1,49,64] z)
    <float[64,64] w = {1}, float[64,64] v = {1}, float[64] gain = {1}, float[64] shift = {1}> {
      [norm1] p = LayerNormalization(x, gain, shift)
      [fc1] y = MatMul(p, w)
      [fc2] z = MatMul(p, v)
    }
    """
    predicted, actual = plans(text, [(Edge("p", "fc1", 0),), (Edge("w", "fc1", 1),)], tmp_path)
    assert layers(predicted) == layers(actual)
    assert len(predicted.of_kind("quantize")) == len(actual.of_kind("quantize")) == 1


@pytest.mark.parametrize("op", ["Concat<axis = 1>(a, a)", "MaxPool<kernel_shape = [1, 1]>(a)"])
def test_strides_of_a_small_conv_keep_it_in_float_behind_any_node(op, tmp_path):
    channels = 32 if "Concat" in op else 16
    text = f"""
    g (float[1,16,8,8] x) => (float[1,16,4,4] y)
    <float[16,16,3,3] w = {{1}}, float[16,{channels},1,1] w2 = {{1}}> {{
      [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w)
      [op1] c = {op}
      [conv2] y = Conv<strides = [2, 2]>(c, w2)
    }}
    """
    predicted, actual = plans(text, [(Edge("c", "conv2", 0),), (Edge("w2", "conv2", 1),)], tmp_path)
    assert layers(predicted) == layers(actual)
    assert layers(actual)[frozenset({"conv2"}), ("float",)] == 1


@pytest.mark.parametrize("scores", ["x", "Where"])
def test_a_choice_by_a_mask_is_part_of_an_element_wise_kernel(scores, tmp_path):
    choice = "[where1] m = Where(mask, none, low) [add1] t = Add(x, m)"
    if scores == "Where":
        choice = "[act1] a = Sigmoid(x) [where1] t = Where(mask, a, low)"
    text = f"""
    g (bool[1,1,24,24] mask, float[1,4,24,24] x) => (float[1,4,24,24] y)
    <float none = {{0}}, float low = {{-10000}}> {{ {choice} [last] y = Softmax(t) }}
    """
    predicted, actual = plans(text, [], tmp_path)
    assert layers(predicted) == layers(actual)
    assert layers(actual).total() == 2


def test_of_norms_of_one_tensor_all_but_the_first_quantize_by_themselves(tmp_path):
    text = """
    g (float[1,24,16] x) => (float[1,24,16] y, float[1,24,16] z)
    <float[16] gain = {1}, float[16] other = {2}, float[16,16] w = {1}, float[16,16] v = {1}> {
      [norm1] n = LayerNormalization(x, gain) [norm2] m = LayerNormalization(x, other)
      [fc1] y = MatMul(n, w) [fc2] z = MatMul(m, v)
    }
    """
    edges = [Edge("n", "fc1", 0), Edge("w", "fc1", 1), Edge("m", "fc2", 0), Edge("v", "fc2", 1)]
    predicted, actual = plans(text, [(edge,) for edge in edges], tmp_path)
    assert layers(predicted) == layers(actual)
    assert conversions(predicted) == conversions(actual)
    # Engines run the last output's nodes first.
    assert layers(actual)[frozenset({"norm1"}), ("uint8",)] == 1
    assert layers(actual)[frozenset({"norm2"}), ("float",)] == 1
