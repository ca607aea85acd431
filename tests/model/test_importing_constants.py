"""Quantized weights and biases become float and keep their scales."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from placer.graph import Edge
from placer.model import load_model
from placer.qdq import Inserter
from placer.quantization import Placement, Range
from tests.model.imported import (
    HEAD,
    TENSORRT,
    Save,
    edges_of,
    model_of,
    nodes_of,
    notes_of,
)
from tests.reference_outputs import outputs

# Constants.


def test_quantized_weights_become_float_and_keep_their_scales(save: Save):
    body = "[dq] v = DequantizeLinear<axis = 0>(w_quantized, ws, wz) [conv] y = Conv(x, v)"
    constants = """
        int8[4,4,1,1] w_quantized = {1,2,3,4, 5,6,7,8, -128,0,0,0, 127,0,0,1},
        float[4] ws = {0.5, 0.25, 2, 1}, int8[4] wz = {0, 0, 0, 0}
    """
    model = load_model(
        save(f"{HEAD} g (float[1,4,8,8] x) => (float[1,4,8,8] y) <{constants}> {{ {body} }}")
    )
    assert nodes_of(model) == [("Conv", ("x", "w"), ("y",))]
    assert model.array("w")[:, :2, 0, 0].tolist() == [[0.5, 1], [1.25, 1.5], [-256, 0], [127, 0]]
    assert edges_of(model) == {"w -> conv[1]"}
    candidate = Inserter(model, TENSORRT).insert(
        Placement.of([Edge("x", "conv", 0), Edge("w", "conv", 1)]), {"x": Range(-1, 1)}
    )
    values = {t.name: numpy_helper.to_array(t) for t in candidate.graph.initializer}
    assert values["w/scale"].tolist() == [0.5, 0.25, 2, 1]
    assert values["w/quantized"].ravel().tolist() == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        -128,
        *[0] * 3,
        127,
        0,
        0,
        1,
    ]


@pytest.mark.parametrize(
    ("scale", "factors", "scales", "integers"),
    [
        (
            "float[2] s = {0.5, 0.5}, int8[2] z = {0, 0}",
            "[2,1,1] k = {2, -127}",
            [1, 64],
            [[-128, 127], [127, -99]],
        ),
        ("float s = {0.5}, int8 z = {0}", " k = {-2}", 128 / 127, [[127, -126], [127, -99]]),
        (
            "float s = {0.5}, int8 z = {0}",
            "[2,1,1] k = {-254, 1}",
            [128, 0.5],
            [[127, -126], [-128, 100]],
        ),
        (  # As NNCF writes compressed weights.
            "float[2] s = {-0.5, 0.5}, int8[2] z = {0, 0}",
            "[2,1,1] k = {2, 1}",
            [128 / 127, 0.5],
            [[127, -126], [-128, 100]],
        ),
    ],
    ids=[
        "a scale for each channel",
        "one for all",
        "one that becomes one for each",
        "negative scales",
    ],
)
def test_a_channel_with_minus_128_and_a_negative_factor_is_rounded_again(
    save: Save, scale: str, factors: str, scales: float | list[float], integers: list[list[int]]
):
    """int8 has no 128: clipped to 127, the value would be off by a whole step."""
    model = load_model(
        save(f"""{HEAD} g (float[1,2,8,8] x) => (float[1,2,8,8] y)
        <int8[2,2,1,1] w_quantized = {{-128, 127, -128, 100}}, {scale}, float{factors}> {{
          v = DequantizeLinear<axis = 0>(w_quantized, s, z) [conv] c = Conv(x, v) y = Mul(c, k)
        }}""")
    )
    candidate = Inserter(model, TENSORRT).insert(
        Placement.of([Edge("w", "conv", 1)]), model.imported.ranges(TENSORRT)
    )
    values = {t.name: numpy_helper.to_array(t) for t in candidate.graph.initializer}
    assert model.imported.weights["w"].scale == pytest.approx(scales)
    assert values["w/quantized"].squeeze().tolist() == integers


def test_float_weights_behind_q_keep_their_values(save: Save):
    """As pytorch-quantization and ModelOpt write them."""
    body = """
        q = QuantizeLinear<axis = 0>(w, ws, wz) v = DequantizeLinear<axis = 0>(q, ws, wz)
        [conv] y = Conv(x, v)
    """
    model = model_of(save, body, "float[4] ws = {0.5, 0.25, 2, 1}, int8[4] wz = {0, 0, 0, 0}")
    assert nodes_of(model) == [("Conv", ("x", "w"), ("y",))]
    assert model.imported.weights["w"].scale.tolist() == [0.5, 0.25, 2, 1]
    assert edges_of(model) == {"w -> conv[1]"}


def test_what_a_pair_with_a_negative_scale_cuts_off_leaves_the_scale(save: Save):
    """The first channel ends at 128 steps in the file, 1.28, and the second at 127, 2.54."""
    path = save(f"""{HEAD} g (float[1,2,8,8] x) => (float[1,2,8,8] y)
    <float[2,2,1,1] w = {{1.5, -1.2, 2.6, 1}}, float[2] s = {{-0.01, 0.02}},
     int8[2] z = {{0, 0}}> {{
      q = QuantizeLinear<axis = 0>(w, s, z) v = DequantizeLinear<axis = 0>(q, s, z)
      [conv] y = Conv(x, v)
    }}""")
    assert load_model(path).imported.weights["w"].scale == pytest.approx([1.28 / 127, 0.02])


def test_a_transpose_behind_dq_moves_the_scales_along(save: Save):
    """As PyTorch writes Linear."""
    body = """
        v = DequantizeLinear<axis = 0>(wq, ws, wz) t = Transpose<perm = [1, 0]>(v)
        [mm] y = MatMul(x, t)
    """
    constants = "int8[2,3] wq = {1,2,3,4,5,6}, float[2] ws = {0.5, 2}, int8[2] wz = {0, 0}"
    model = model_of(save, body, constants, "(float[1,3] x) => (float[1,2] y)")
    assert nodes_of(model) == [("MatMul", ("x", "t"), ("y",))]
    assert model.array("t").tolist() == [[0.5, 8], [1, 10], [1.5, 12]]
    scale = model.imported.weights["t"]
    assert (scale.scale.tolist(), scale.axis) == ([0.5, 2], 1)


def test_one_scale_serves_all_channels_but_not_the_other_way_round(save: Save):
    one = model_of(
        save,
        "q = QuantizeLinear(w, s, z) v = DequantizeLinear(q, s, z) [conv] y = Conv(x, v)",
        "float s = {0.5}, int8 z = {0}",
    ).imported
    per_channel = one.weight_scale("w", 0, (4, 4, 1, 1))
    assert per_channel.tolist() == [0.5] * 4
    several = model_of(
        save,
        "q = QuantizeLinear<axis = 0>(w, s, z) v = DequantizeLinear<axis = 0>(q, s, z)"
        "[conv] y = Conv(x, v)",
        "float[4] s = {0.5, 1, 1, 1}, int8[4] z = {0, 0, 0, 0}",
    ).imported
    assert several.weight_scale("w", None, (4, 4, 1, 1)) is None
    assert several.weight_scale("w", 1, (4, 4, 1, 1)) is None
    assert several.weight_scale("other", 0, (4,)) is None


def test_an_int32_bias_becomes_float_and_no_edge(save: Save):
    body = "b = DequantizeLinear(b_quantized, bs) [conv] y = Conv(x, w, b)"
    model = model_of(save, body, "int32[4] b_quantized = {1,2,3,4}, float bs = {0.25}")
    assert nodes_of(model) == [("Conv", ("x", "w", "b"), ("y",))]
    assert model.array("b").tolist() == [0.25, 0.5, 0.75, 1]
    assert edges_of(model) == set()


def test_a_bias_has_one_axis_whatever_its_pair_says(save: Save):
    """Intel's Neural Compressor gives it the axis of the weight, and ONNX Runtime fuses it."""
    body = "c = DequantizeLinear<axis = 1>(b, s, z) [conv] y = Conv(x, w, c)"
    constants = """
        int32[4] b = {1, 2, 3, 4}, float[4] s = {0.5, 1, 1, 2}, int32[4] z = {0, 0, 0, 0}
    """
    model = model_of(save, body, constants)
    (conv,) = model.graph.nodes
    assert model.array(conv.inputs[2]).tolist() == [0.5, 2, 3, 8]


def test_a_bias_that_int32_could_not_hold_is_told(save: Save):
    """ONNX Runtime issue 11415: a filter of next to nothing gives its bias a scale like that."""
    body = "b = DequantizeLinear<axis = 0>(b_quantized, bs) [conv] y = Conv(x, w, b)"
    constants = (
        "int32[4] b_quantized = {{2147483647, 2, {}, 4}}, float[4] bs = {{1e-9, 0.25, 1e-9, 1}}"
    )
    cut, one = (model_of(save, body, constants.format(v)) for v in ("-2147483648", "2147483646"))
    told = "bias 'b' was cut off at the ends of int32 in channel"
    assert [note.split(",")[0] for note in notes_of(one)] == [f"{told} 0"]
    assert notes_of(cut)[0].startswith(f"{told}s 0, 2, where the scale of the weight is too small")


def test_weights_in_blocks_lose_their_scales_with_a_note(tmp_path: Path):
    text = """
        <ir_version: 10, opset_import: ["": 21]> g (float[1,4] x) => (float[1,2] y)
        <int8[4,2] wq = {1,2,3,4,5,6,7,8}, float[2,2] s = {1, 10, 2, 20}> {
          w = DequantizeLinear<axis = 0, block_size = 2>(wq, s) y = MatMul(x, w)
        }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "blocks.onnx")
    model = load_model(tmp_path / "blocks.onnx")
    (weight,) = model.graph.initializers
    assert model.array(weight).tolist() == [[1, 20], [3, 40], [10, 120], [14, 160]]
    expected = f"scale of constant '{weight}' dropped: it has one per block of 2 values"
    assert expected in notes_of(model)
    assert model.imported.source == "QDQ, int8 weights in blocks"


def test_a_constant_that_rounding_takes_beyond_all_numbers_is_the_largest(save: Save):
    body = "[dq] v = DequantizeLinear(m_quantized, s, z) [mul] y = Mul(x, v)"
    constants = "uint8 m_quantized = {0}, float s = {2.6793887e36}, uint8 z = {127}"
    model = load_model(save(f"{HEAD} g (float[4] x) => (float[4] y) <{constants}> {{ {body} }}"))
    assert model.array(model.graph.by_name["mul"].inputs[1]) == np.finfo(np.float32).min


def test_float32_weights_behind_a_pair_of_half_precision_are_float16(tmp_path: Path):
    """Model-Optimizer issue 118: FP16 activations, scales in FP16, weights that stayed float32."""
    text = """
      <ir_version: 9, opset_import: ["": 19]>
      g (float16[1,4,8,8] x) => (float16[1,4,8,8] y) <float[4,4,1,1] w = {0.5}, float s = {0.25}> {
        [q] q = QuantizeLinear(w, s, z) [dq] v = DequantizeLinear(q, s, z) [conv] y = Conv(x, v)
      }"""
    proto = onnx.parser.parse_model(text)
    weight = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4, 1, 1)
    arrays = {"w": weight, "s": np.float16(0.25), "z": np.int8(0)}
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in arrays.items())
    onnx.save(proto, tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx")
    (conv,) = model.graph.nodes
    assert model.array(conv.inputs[1]).dtype == np.float16
    np.testing.assert_array_equal(model.array(conv.inputs[1]), weight.astype(np.float16))
    assert [float(w.scale) for w in model.imported.weights.values()][-1] == 0.25


def test_rows_of_a_quantized_table_are_rows_of_a_float_one(save: Save):
    """Embeddings of ONNX Runtime's dynamic quantization: integers are taken, then dequantized."""
    path = save(
        """
        <ir_version: 8, opset_import: ["": 17]>
        g (int64[3] ids) => (float[3,2] y)
        <int8[4,2] table = {-128, 1, 2, 3, 4, 5, 6, 127}, float s = {0.5}, int8 z = {1}> {
          [pick] q = Gather(table, ids)
          [dq] d = DequantizeLinear(q, s, z)
          [act] y = Relu(d)
        }"""
    )
    model = load_model(path)
    assert [node.op for node in model.graph.nodes] == ["Gather", "Relu"]
    assert edges_of(model) == {"d -> act[0]"}
    ids = np.array([0, 3, 2])
    (expected,), (found,) = outputs(onnx.load(path), ids=ids), outputs(model.proto, ids=ids)
    assert np.array_equal(expected, found)


@pytest.mark.parametrize("order", [("d", "e"), ("e", "d")])
def test_rows_that_are_dequantized_before_and_behind_a_transpose(
    save: Save, order: tuple[str, str]
):
    """As ONNX Runtime's quantizer writes an embedding whose shape is read besides its values."""
    written = {
        "d": "[dq] d = DequantizeLinear(q, s, z)",
        "e": "[turn] t = Transpose<perm = [1, 0]>(q) [dq2] e = DequantizeLinear(t, s, z)",
    }
    path = save(
        f"""
        <ir_version: 8, opset_import: ["": 17]>
        g (int64[3] ids) => (float[2,3] y, int64[2] n)
        <int8[4,2] table = {{-128, 1, 2, 3, 4, 5, 6, 127}}, float s = {{0.5}}, int8 z = {{1}}> {{
          [pick] q = Gather(table, ids)
          {written[order[0]]} {written[order[1]]}
          [shape] n = Shape(d)
          [act] y = Relu(e)
        }}"""
    )
    model = load_model(path)
    assert sorted(node.op for node in model.graph.nodes) == ["Gather", "Relu", "Shape", "Transpose"]
    ids = np.array([0, 3, 2])
    pairs = zip(outputs(onnx.load(path), ids=ids), outputs(model.proto, ids=ids), strict=True)
    assert all(np.array_equal(expected, found) for expected, found in pairs)


def test_integers_of_a_table_stay_for_readers_other_than_dq(save: Save):
    path = save(
        """
        <ir_version: 8, opset_import: ["": 17]>
        g (int64[3] ids) => (float[3,2] y, float[3,2] y2, float[3,2] clipped, bool[3,2] pads,
                             int8[3,2] q)
        <int8[4,2] table = {-128, 1, 2, 3, 4, 5, 6, 127}, float s = {0.5}, int8 z = {1},
         int8 low = {-4}, int8 high = {4}> {
          [pick] q = Gather(table, ids)
          [dq] y = DequantizeLinear(q, s, z)
          [pick2] r = Gather(table, ids)
          [dq2] y2 = DequantizeLinear(r, s, z)
          [clip] c = Clip(q, low, high)
          [dq3] clipped = DequantizeLinear(c, s, z)
          [equal] pads = Equal(q, low)
        }"""
    )
    model = load_model(path)
    ids = np.array([0, 3, 2])
    pairs = zip(outputs(onnx.load(path), ids=ids), outputs(model.proto, ids=ids), strict=True)
    assert all(np.array_equal(expected, found) for expected, found in pairs)
    # Both Gathers take rows of one float table.
    tables = [t for t in model.proto.graph.initializer if list(t.dims) == [4, 2]]
    assert [t.data_type for t in tables] == [onnx.TensorProto.INT8, onnx.TensorProto.FLOAT]


def test_an_output_is_declared_as_what_it_is(save: Save):
    """Scales of half precision make DequantizeLinear write it (Model-Optimizer issue 118)."""
    path = save(
        """
        <ir_version: 9, opset_import: ["": 19]>
        g (float16[1,4] x) => (float16[1,4] y)
        <float16 s = {1}, int8 z = {0}> {
          q = QuantizeLinear(x, s, z)
          d = DequantizeLinear(q, s, z)
          [act] y = Relu(d)
        }"""
    )
    proto = onnx.load(path)
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.save(proto, path)
    model = load_model(path)
    assert notes_of(model) == ("output 'y' is float16, not float32 as the file declares",)
    (found,) = outputs(model.proto, x=np.full((1, 4), 2, np.float16))
    assert found.dtype == np.float16
