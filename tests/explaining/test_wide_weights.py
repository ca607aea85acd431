"""What an explanation says of weights whose products saturate on CPUs without VNNI."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

from placer.explaining.api import explain

Save = Callable[..., Path]

# Of the same weights, the Conv's are integers whose neighbours' sums exceed 128 and the depthwise
# Conv's are added in 32 bits; the last Conv reads floats.
QUANTIZED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,8,8] x) => (float[1,8,6,6] y, float[1,8,8,8] z)
<float s = {0.02}, uint8 a = {128}, int8 n = {0}, int8[8,8,1,1] w = {W}, int8[8,1,3,3] v = {V}> {
  [qx] xq = QuantizeLinear(x, s, a) [dx] xd = DequantizeLinear(xq, s, a)
  [dw] wd = DequantizeLinear(w, s, n) [conv] c = Conv(xd, wd)
  [qc] cq = QuantizeLinear(c, s, a) [dc] cd = DequantizeLinear(cq, s, a)
  [dv] vd = DequantizeLinear(v, s, n) [depthwise] y = Conv<group = 8>(cd, vd)
  [float] z = Conv(x, wd)
}
"""


@pytest.fixture
def quantized(save: Save) -> Callable[[int], Path]:
    def written(largest: int) -> Path:
        text = QUANTIZED.replace("{W}", f"{{{', '.join([str(largest)] * 64)}}}")
        return save(text.replace("{V}", f"{{{', '.join([str(largest)] * 72)}}}"))

    return written


@pytest.mark.parametrize(
    ("largest", "pack", "processor", "is_said"),
    [
        (65, "onnxruntime", "avx2", True),
        (65, "openvino", "avx512", True),
        (64, "onnxruntime", "avx2", False),
        (127, "onnxruntime", "avx2-vnni", False),
    ],
)
def test_the_convs_whose_sums_may_saturate_are_named(
    quantized: Callable[[int], Path], largest: int, pack: str, processor: str, is_said: bool
):
    notes = explain(quantized(largest), pack=pack, processor=processor).notes
    said = [note for note in notes if "no VNNI" in note]
    assert len(said) == is_said
    assert all(note.startswith("weights of 'conv' are too large") for note in said)


def test_pairs_of_int8_saturate_too(quantized: Callable[[int], Path]):
    """ONNX Runtime 1.32 makes them uint8 on x86, and only int8 times int8 is exact there."""
    path = quantized(127)
    model = onnx.load(path)
    (zero_point,) = (t for t in model.graph.initializer if t.name == "a")
    zero_point.CopyFrom(onnx.numpy_helper.from_array(np.array(0, np.int8), "a"))
    onnx.save(model, path)
    notes = explain(path, pack="onnxruntime", processor="avx2").notes
    assert any(note.startswith("weights of 'conv' are too large") for note in notes)


# A Conv that ONNX Runtime computes in float, for no pair is behind it, and OpenVINO in integers.
UNPAIRED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,2,8,8] x) => (float[1,2,8,8] y)
<float s = {0.02}, uint8 a = {128}, float[2,2,1,1] w = {0, 0, 1, 1}, float[2] t = {0, 0.01},
 int8[2] n = {0, 0}> {
  [qx] xq = QuantizeLinear(x, s, a) [dx] xd = DequantizeLinear(xq, s, a)
  [qw] wq = QuantizeLinear<axis = 0>(w, t, n) [dw] wd = DequantizeLinear<axis = 0>(wq, t, n)
  [conv] y = Conv(xd, wd)
}
"""


@pytest.mark.parametrize(("pack", "is_said"), [("onnxruntime", False), ("openvino", True)])
@pytest.mark.filterwarnings("error")
def test_what_is_computed_in_float_does_not_saturate(save: Save, pack: str, is_said: bool):
    """The first channel holds zeros and has the scale 0, as quantizers write those of dead ones."""
    notes = explain(save(UNPAIRED), pack=pack, processor="avx2").notes
    assert any("no VNNI" in note for note in notes) is is_said


@pytest.mark.parametrize("axis", [1, 3, 4, -5])
def test_scales_that_do_not_fit_their_weight_are_left_out(save: Save, axis: int):
    """Whatever is wrong with such files, explain does not fall over it."""
    text = UNPAIRED.replace("float[2,2,1,1] w = {0, 0, 1, 1}", "float[2,3,1,1] w = {1}")
    text = text.replace("axis = 0", f"axis = {axis}").replace(
        "float[1,2,8,8] x", "float[1,3,8,8] x"
    )
    notes = explain(save(text), pack="openvino", processor="avx2").notes
    assert not any("no VNNI" in note for note in notes)


def test_weights_in_external_data_are_looked_at(quantized: Callable[[int], Path], tmp_path: Path):
    proto, path = onnx.load(quantized(127)), tmp_path / "external.onnx"
    for tensor in proto.graph.initializer:  # ONNX moves raw data alone.
        tensor.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name)
        )
    onnx.save(proto, path, save_as_external_data=True, size_threshold=0, location="weights")
    notes = explain(path, pack="onnxruntime", processor="avx2").notes
    assert any("weights of 'conv' are too large" in note for note in notes)
    (tmp_path / "weights").unlink()  # Explained without, as nothing else needs them.
    notes = explain(path, pack="onnxruntime", processor="avx2").notes
    assert not any("VNNI" in note for note in notes)


def test_engines_with_exact_sums_are_told_nothing(quantized: Callable[[int], Path]):
    notes = explain(quantized(127), pack="tensorrt").notes
    assert not any("VNNI" in note for note in notes)


def test_integers_that_the_file_computes_count_too(save: Save):
    """As of quantizers that leave the weights of Constant nodes in float."""
    path = save("""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,8,8,8] x) => (float[1,8,8,8] y)
    <float s = {0.02}, uint8 a = {128}, float[8,8,1,1] w = {1},
     float[8] t = {0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01},
     int8[8] n = {0, 0, 0, 0, 0, 0, 0, 0}> {
      [qx] xq = QuantizeLinear(x, s, a) [dx] xd = DequantizeLinear(xq, s, a)
      [qw] wq = QuantizeLinear<axis = 0>(w, t, n) [dw] wd = DequantizeLinear<axis = 0>(wq, t, n)
      [conv] y = Conv(xd, wd)
    }
    """)
    assert any("'conv'" in note for note in explain(path, pack="openvino", processor="avx2").notes)


def test_floats_that_are_turned_behind_their_pair_count_too(save: Save):
    """ONNX Runtime 1.32 computes the product on integers: MatMulIntegerToFloat."""
    path = save("""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4] x) => (float[1,2] y)
    <float s = {0.02}, uint8 a = {128}, float[2,4] w = {1}, float[2] t = {0.01, 0.01},
     int8[2] n = {0, 0}> {
      [qx] xq = QuantizeLinear(x, s, a) [dx] xd = DequantizeLinear(xq, s, a)
      [qw] wq = QuantizeLinear<axis = 0>(w, t, n) [dw] wd = DequantizeLinear<axis = 0>(wq, t, n)
      [turn] wt = Transpose<perm = [1, 0]>(wd)
      [fc] y = MatMul(xd, wt)
    }
    """)
    notes = explain(path, pack="onnxruntime", processor="avx2").notes
    assert any("'fc'" in note and "VNNI" in note for note in notes)


@pytest.mark.parametrize(("largest", "is_said"), [(65, True), (64, False)])
def test_products_that_are_quantized_at_run_time_count_too(save: Save, largest: int, is_said: bool):
    """ONNX Runtime issue 6004: a dynamically quantized BERT is wrong on AVX2 alone."""
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4] x) => (float[1,2] y)
    <int8[4,2] w = {{{", ".join([str(largest)] * 8)}}}, float s = {{0.01}}> {{
      xq, xs, xz = DynamicQuantizeLinear(x)
      [fc] i = MatMulInteger(xq, w, xz) f = Cast<to = 1>(i)
      t = Mul(xs, s) y = Mul(f, t)
    }}""")
    notes = explain(path, pack="onnxruntime", processor="avx2").notes
    assert any("'fc'" in note and "no VNNI" in note for note in notes) == is_said
    notes = explain(path, pack="openvino", processor="avx2").notes  # Multiplies them in float.
    assert not any("VNNI" in note for note in notes)


def test_convs_that_are_quantized_at_run_time_do_not_saturate(save: Save):
    """ONNX Runtime 1.32 adds their products in 32 bits on AVX2, too."""
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4,8,8] x) => (float[1,2,8,8] y)
    <int8[2,4,1,1] w = {{{", ".join(["127"] * 8)}}}, float s = {{0.01}}> {{
      xq, xs, xz = DynamicQuantizeLinear(x)
      [conv] i = ConvInteger(xq, w, xz) f = Cast<to = 1>(i)
      t = Mul(xs, s) y = Mul(f, t)
    }}""")
    notes = explain(path, pack="onnxruntime", processor="avx2").notes
    assert not any("VNNI" in note for note in notes)


@pytest.mark.parametrize(("of_data", "is_said"), [("uint8", True), ("int8", False)])
def test_operators_that_read_integers_count_too(save: Save, of_data: str, is_said: bool):
    """ONNX Runtime 1.32 on AVX2 adds twice 255 * 127 to 32767, and int8 times int8 exactly."""
    path = save(f"""
    <ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
    g (float[1,4] x) => (float[1,2] y)
    <int8[2,4] w = {{{", ".join(["127"] * 8)}}}, float s = {{0.01}}, {of_data} z = {{0}},
     int8 n = {{0}}, int32[2] b = {{0, 0}}> {{
      [q] xq = QuantizeLinear(x, s, z)
      [fc] y = com.microsoft.QGemm<transB = 1>(xq, s, z, w, s, n, b)
    }}""")
    notes = explain(path, pack="onnxruntime", processor="avx2").notes
    assert any("'fc'" in note and "no VNNI" in note for note in notes) == is_said


def test_a_product_without_outputs_saturates_nowhere(save: Save):
    path = save("""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4,8,8] x) => (float[1,0,8,8] y)
    <int8[0,4,1,1] w = {}, float s = {0.01}, uint8 z = {0}, int8 n = {0}> {
      xq = QuantizeLinear(x, s, z)
      c = QLinearConv(xq, s, z, w, s, n, s, z) y = DequantizeLinear(c, s, z)
    }""")
    notes = explain(path, pack="onnxruntime", processor="avx2").notes
    assert not any("VNNI" in note for note in notes)
