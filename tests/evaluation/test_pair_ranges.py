"""Pairs whose scales do not suit the data, told by the node's name."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import placer as package
from placer.graph.text import parse_model
from tests.conftest import Finished

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g'
FLOAT = f"{HEAD} (float[1,4] x) => (float[1,4] y) {{ a = Abs(x) [neg] y = Neg(a) }}"
# Values of x reach about 3.
PAIR = f"""{HEAD} (float[1,4] x) => (float[1,4] y) <float s = {{SCALE}}, uint8 z = {{ZERO}}> {{
    a = Abs(x) [q] i = QuantizeLinear(a, s, z) d = DequantizeLinear(i, s, z) [neg] y = Neg(d)
}}"""
# Boxes of up to 640 pixels beside scores of up to 1, as detectors join them.
JOINED = f"""{HEAD} (float[1,4] x) => (float[1,8] y)
  <float many = {{600}}, float s = {{4.7}}, uint8 z = {{0}}> {{
    p = Sigmoid(x) b = Mul(p, many) [join] y = Concat<axis = 1>(b, p)
}}"""
JOIN = "y = Concat<axis = 1>(b, p)"
PAIR_BEHIND = "[q] i = QuantizeLinear(o, s, z) y = DequantizeLinear(i, s, z)"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    values = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=values)
    return tmp_path / "data.npz"


def notes_of(
    data: Path, floats: str, quantized: str, *, layers: bool = True, is_external: bool = False
) -> tuple[str, ...]:
    outside = {"save_as_external_data": is_external, "size_threshold": 0}
    for name, text in (("float", floats), ("quantized", quantized)):
        model = parse_model(text)
        for tensor in model.graph.initializer if is_external else ():  # Only raw ones can be.
            values = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        onnx.save(model, data.with_name(f"{name}.onnx"), location=f"{name}.data", **outside)
    paths = (data.with_name("float.onnx"), data.with_name("quantized.onnx"))
    return package.evaluate(*paths, data=data, layers=layers).models[0].notes


@pytest.mark.parametrize(
    ("scale", "zero", "told"),
    [
        ("0.0005", "128", "'q' cuts 'a' off at -0.064 to 0.0635, and its values reach"),
        ("5", "0", "'q' rounds 'a' in steps of 5, and its values are"),
        ("0.02", "0", ""),
    ],
)
def test_ranges_that_do_not_suit_the_data(data: Path, scale: str, zero: str, told: str):
    notes = notes_of(data, FLOAT, PAIR.replace("SCALE", scale).replace("ZERO", zero))
    assert [note.startswith(told) for note in notes] == [True] * bool(told)


def test_pairs_on_inputs_alone(data: Path):
    floats, quantized = (text.replace("Abs(x)", "Neg(x)") for text in (FLOAT, PAIR))
    quantized = quantized.replace("(a, s", "(x, s").replace("SCALE", "0.0005").replace("ZERO", "9")
    (note,) = notes_of(data, floats, quantized)
    assert note.startswith("'q' cuts 'x' off at")


def test_nodes_without_names_are_told_by_what_they_write(data: Path):
    quantized = PAIR.replace("[q] ", "").replace("SCALE", "5").replace("ZERO", "0")
    (note,) = notes_of(data, FLOAT, quantized)
    assert note.startswith("the QuantizeLinear before 'i' rounds 'a' in steps of 5")


def test_what_a_relu_would_cut_off_is_no_fault(data: Path):
    """ONNX Runtime's quantizer leaves it to a Q whose zero point is the lowest value."""
    relu = FLOAT.replace("Abs(x)", "Neg(x)").replace("y = Neg(a)", "y = Relu(a)")
    absorbed = PAIR.replace("Abs(x)", "Neg(x)").replace("[neg] y = Neg(d)", "y = Identity(d)")
    assert not notes_of(data, relu, absorbed.replace("SCALE", "0.02").replace("ZERO", "0"))


def test_masked_scores_that_a_softmax_makes_0_are_no_fault(data: Path):
    """Masks add -10000, which a pair that keeps steps for the others cuts off at -12.8."""
    masked = FLOAT.replace("Abs(x)", "Add(x, m)").replace("y = Neg(a)", "y = Softmax(a)")
    masked = masked.replace("y) {", "y) <float[4] m = {0, 0, -10000, -10000}> {", 1)
    quantized = PAIR.replace("Abs(x)", "Add(x, m)").replace("[neg] y = Neg(d)", "y = Softmax(d)")
    quantized = quantized.replace("<float s", "<float[4] m = {0, 0, -10000, -10000}, float s", 1)
    assert not notes_of(data, masked, quantized.replace("SCALE", "0.1").replace("ZERO", "128"))


def test_a_pair_that_covers_a_mask_rounds_the_scores_away(data: Path):
    """The range of a mask of -3.4e38 ends at 0, which cuts off less than half a step."""
    mask = "<float[4] m = {0, 0, 0, -3.4e38}"
    masked = FLOAT.replace("Abs(x)", "Add(x, m)").replace("y = Neg(a)", "y = Softmax(a)")
    masked = masked.replace("y) {", f"y) {mask}> {{", 1)
    quantized = PAIR.replace("Abs(x)", "Add(x, m)").replace("[neg] y = Neg(d)", "y = Softmax(d)")
    quantized = quantized.replace("<float s", f"{mask}, float s", 1)
    (note,) = notes_of(data, masked, quantized.replace("SCALE", "1.4e36").replace("ZERO", "255"))
    assert note.startswith("'q' rounds 'a' in steps of 1.4e+36, and ")
    assert note.endswith("or leave the pair out")


@pytest.mark.parametrize(
    ("reader", "scale", "told"),
    [
        ("Relu", "0.0005", "'q' cuts 'a' off at -0.064 to 0.0635"),
        ("Clip", "0.0005", "'q' cuts 'a' off at"),
        ("Softmax", "0.0005", "'q' cuts 'a' off at"),
        ("Softmax", "5", "'q' rounds 'a' in steps of 5, and 'act' (Softmax) makes something else"),
        ("Softmax", "0.05", ""),
    ],
)
def test_what_an_activation_alone_reads_is_judged_by_what_it_makes(
    data: Path, reader: str, scale: str, told: str
):
    floats = FLOAT.replace("Abs(x)", "Neg(x)").replace("[neg] y = Neg(a)", f"[act] y = {reader}(a)")
    quantized = PAIR.replace("Abs(x)", "Neg(x)").replace("[neg] y = Neg(d)", f"y = {reader}(d)")
    notes = notes_of(data, floats, quantized.replace("SCALE", scale).replace("ZERO", "128"))
    assert [note.startswith(told) for note in notes] == [True] * bool(told)


@pytest.mark.parametrize(
    ("opset", "axis", "is_told"), [(11, "", False), (11, "<axis = 2>", True), (13, "", True)]
)
def test_a_softmax_of_opset_11_is_one_of_its_axis_and_those_behind(
    tmp_path: Path, opset: int, axis: str, is_told: bool
):
    """Beside a 9 the other row counts for nothing then."""
    row = np.array([[[9, 0, 0], [0, 0, 2]]], np.float32)
    np.savez(tmp_path / "data.npz", x=np.concatenate([row, row - 0.01]))
    floats = f"""<ir_version: 6, opset_import: ["" : {opset}]> g
    (float[1,2,3] x) => (float[1,2,3] y) {{ a = Abs(x) [act] y = Softmax {axis} (a) }}"""
    pair = "[q] i = QuantizeLinear(a, s, z) d = DequantizeLinear(i, s, z) [act] y ="
    quantized = floats.replace("y) {", "y) <float s = {4.5}, uint8 z = {0}> {")
    quantized = quantized.replace("[act] y =", pair).replace("(a) }", "(d) }")
    notes = notes_of(tmp_path / "data.npz", floats, quantized)
    assert bool(notes) == is_told


def test_what_every_reader_would_cut_off_is_no_fault(data: Path):
    floats = f"""{HEAD} (float[1,4] x) => (float[1,4] y, float[1,4] z) <float l = {{0}}> {{
        a = Neg(x) y = Relu(a) z = Clip(a, l)
    }}"""
    pair = "i = QuantizeLinear(a, s, u) d = DequantizeLinear(i, s, u)"
    quantized = floats.replace("l = {0}", "l = {0}, float s = {0.02}, uint8 u = {0}")
    quantized = quantized.replace(
        "y = Relu(a) z = Clip(a, l)", f"{pair} y = Relu(d) z = Clip(d, l)"
    )
    assert not notes_of(data, floats, quantized)


@pytest.mark.parametrize("high", ["Constant<value_float = 1.0>()", "ReduceMax<keepdims = 0>(x)"])
def test_what_a_clip_with_bounds_of_other_nodes_would_cut_off_is_no_fault(data: Path, high: str):
    """PyTorch exports the bounds of a ReLU6 as Constants."""
    bounds = f"l = Constant<value = float {{0}}>() h = {high}"
    floats = f"{HEAD} (float[1,4] x) => (float[1,4] y) {{ {bounds} a = Neg(x) y = Clip(a, l, h) }}"
    pair = "i = QuantizeLinear(a, s, u) d = DequantizeLinear(i, s, u)"
    quantized = floats.replace("y) {", "y) <float s = {0.004}, uint8 u = {0}> {", 1)
    assert not notes_of(data, floats, quantized.replace("y = Clip(a", f"{pair} y = Clip(d"))


def test_infinite_values_do_not_hide_what_a_pair_does_to_others(data: Path):
    """A Reciprocal of 0."""
    values = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    np.savez(data, x=np.where(np.arange(4) == 0, 0, values))
    floats = FLOAT.replace("Abs(x)", "Reciprocal(x)").replace(
        "[neg] y = Neg(a)", "[act] y = Relu(a)"
    )
    quantized = PAIR.replace("Abs(x)", "Reciprocal(x)").replace("[neg] y = Neg(d)", "y = Relu(d)")
    (note,) = notes_of(data, floats, quantized.replace("SCALE", "0.0005").replace("ZERO", "0"))
    assert note.startswith("'q' cuts 'a' off at 0 to 0.128")


def test_parts_of_an_output_that_its_one_pair_rounds_away(
    data: Path, placer: Callable[..., Finished]
):
    """ONNX Runtime issue 14233: no confidence above 0 after quantization."""
    quantized = JOINED.replace(JOIN, f"{JOIN.replace('y', 'o')} {PAIR_BEHIND}")
    (note,) = notes_of(data, JOINED, quantized, layers=False)
    assert note.startswith("'q' rounds all of 'y' in steps of 4.7, and y[4:8, axis 1] has values")
    numbered = quantized.replace("float[1,8] y", "float[1,8] r").replace("y = Deq", "r = Deq")
    assert note in notes_of(data, JOINED, numbered, layers=False)  # An output by another name.
    paths = (data.with_name("float.onnx"), data.with_name("quantized.onnx"))
    assert "leave this pair out" in placer("eval", *paths, "--data", data).out


def test_the_command_says_where_to_look_for_what_is_lost(
    data: Path, placer: Callable[..., Finished]
):
    notes_of(data, FLOAT, PAIR.replace("SCALE", "0.0005").replace("ZERO", "128"))
    paths = (data.with_name("float.onnx"), data.with_name("quantized.onnx"))
    said = placer("eval", *paths, "--data", data).out
    assert "dB only; --layers tells where it is lost" in said


DEPTHWISE = """<ir_version: 9, opset_import: ["" : 17]> g (float[1,4,2,2] x) => (float[1,4,2,2] y)
  <int8[4,1,1,1] w = {WEIGHTS}, float SCALES, int8 ZEROS> {
    v = DequantizeLinear<axis = 0>(w, s, z) [depthwise] y = Conv<group = 4>(x, v)
}"""


@pytest.mark.parametrize(
    ("weights", "scales", "zeros", "is_told"),
    [
        ("127, 60, 3, 2", "s = {0.01}", "z = {0}", True),
        ("127, 60, 3, 2", "[4] s = {1, 2, 40, 60}", "[4] z = {0, 0, 0, 0}", False),
        ("1, -1, 1, 0", "s = {0.01}", "z = {0}", False),  # Ternary weights have no other values.
    ],
)
@pytest.mark.parametrize("is_external", [False, True])
def test_weights_of_which_one_scale_leaves_little(
    weights: str, scales: str, zeros: str, is_told: bool, is_external: bool, tmp_path: Path
):
    data = tmp_path / "data.npz"
    np.savez(data, x=np.random.default_rng(0).normal(size=(4, 4, 2, 2)).astype(np.float32))
    text = DEPTHWISE.replace("WEIGHTS", weights)
    text = text.replace("float SCALES", f"float{scales if scales[0] == '[' else ' ' + scales}")
    text = text.replace("int8 ZEROS", f"int8{zeros if zeros[0] == '[' else ' ' + zeros}")
    notes = notes_of(data, text, text, layers=False, is_external=is_external)
    assert notes == is_told * (
        "one scale for all channels of the weights of 'depthwise' leaves at most 3 steps to 2 of 4 "
        "channels: quantize these weights per channel",
    )
