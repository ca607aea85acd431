"""Operators of ONNX Runtime that hold weights of few bits in blocks, several values to a byte."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)

from placer.errors import InputError
from placer.graph.text import parse_model
from placer.model import load_model
from tests.model.imported import Save
from tests.reference_outputs import outputs, sqnr

PRODUCT = """
<ir_version: 10, opset_import: ["": 21]>
g (float[2,{k}] x) => (float[2,24] y) <float[{k},24] w = {{0}}> {{ [product] y = MatMul(x, w) }}"""


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("bits", "k"), [(2, 64), (4, 64), (4, 72), (8, 40)])
def test_packed_weights_become_the_floats_that_they_stand_for(
    tmp_path: Path, bits: int, k: int, symmetric: bool
):
    """Also where the last block is not full, and where a row of zero points ends within a byte."""
    rng = np.random.default_rng(0)
    proto = parse_model(PRODUCT.format(k=k))
    weight = rng.standard_normal((k, 24)).astype(np.float32)
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
    config = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=symmetric, bits=bits)
    quantizer = MatMulNBitsQuantizer(proto, algo_config=config)
    quantizer.process()
    onnx.save(quantizer.model.model, tmp_path / "packed.onnx")
    model = load_model(tmp_path / "packed.onnx")
    (node,) = model.graph.nodes
    assert (node.name, node.op, node.outputs) == ("product", "MatMul", ("y",))
    assert model.array(node.inputs[1]).shape == (k, 24)
    assert model.imported.source == f"weights of {bits} bits in blocks"
    assert model.imported.notes == (
        "the weight of 'product' is float; the scales of its blocks are not kept",
    )
    x = rng.standard_normal((2, k)).astype(np.float32)
    (expected,) = outputs(onnx.load(tmp_path / "packed.onnx"), x=x)
    (found,) = outputs(model.proto, x=x)
    assert sqnr(expected, found) > 100


def packed(save: Save, inputs: str, fields: str) -> Path:
    zeros = ", ".join("0" * 32)
    return save(f"""
        <ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        g (float[1,32] x, uint8[2,2,8] given) => (float[1,2] y)
        <uint8[2,2,8] w = {{{zeros}}}, float[2,2] s = {{1}}, int32[32] order = {{{zeros}}},
         int32[32] plain = {{{", ".join("0" * 16 + "1" * 16)}}}, uint8[3] z = {{1, 2, 3}},
         float[2] b = {{1}}> {{ [product] y = com.microsoft.MatMulNBits<{fields}>({inputs}) }}""")


FIELDS = "K = 32, N = 2, bits = 4, block_size = 16"


def test_a_bias_is_added_behind(save: Save):
    path = packed(save, 'x, w, s, "", "", b', FIELDS)
    model = load_model(path)
    assert [node.op for node in model.graph.nodes] == ["MatMul", "Add"]
    inputs = {"x": np.ones((1, 32), np.float32), "given": np.zeros((2, 2, 8), np.uint8)}
    (expected,), (found,) = outputs(onnx.load(path), **inputs), outputs(model.proto, **inputs)
    assert sqnr(expected, found) > 100


def test_groups_in_the_order_of_the_rows_change_nothing(save: Save):
    (node,) = load_model(packed(save, 'x, w, s, "", plain', FIELDS)).graph.nodes
    assert node.op == "MatMul"


def test_nodes_that_share_a_packed_weight_share_the_float_one(save: Save):
    path = packed(save, "x, w, s", FIELDS)
    proto = onnx.load(path)
    proto.graph.node.add().CopyFrom(proto.graph.node[0])
    proto.graph.node[1].name, proto.graph.node[1].output[0] = "second", "again"
    proto.graph.output.append(onnx.helper.make_tensor_value_info("again", 1, [1, 2]))
    onnx.save(proto, path)
    first, second = load_model(path).graph.nodes
    assert first.inputs == second.inputs


@pytest.mark.parametrize(
    ("inputs", "fields", "why"),
    [
        ("x, given, s", FIELDS, r"computes 'given', its packed weight or a scale of it"),
        ("x, w", FIELDS, r"has no packed weight, or no scale of it"),
        ('x, w, s, "", order', FIELDS, r"reorders its rows by g_idx"),
        (
            "x, w, s",
            "K = 48, N = 2, bits = 4, block_size = 16",
            r"has a weight of shape \(2, 2, 8\) and uint8 for 4 bits",
        ),
        ("x, w, b", FIELDS, r"has scales of shape \(2,\) for 2 blocks"),
        ("x, w, s, z", FIELDS, r"has zero points of shape \(3,\) and uint8, where 2 .* have 2"),
        ("x, w, s, b", FIELDS, r"has zero points of shape \(2,\) and float32, where 2 .* have 4"),
        ("x, w, s", "K = 32, bits = 4, block_size = 16", r"has N = 0 where a number above 0"),
        ("x, w, s", "K = 32, N = 2, block_size = -1", r"has block_size = -1 where a number above"),
        ("x, w, s", "K = 32, N = 2, block_size = 16, bits = 3", r"has weights of 3 bits, where"),
        ("x, w, s", f"{FIELDS}, weight_prepacked = 1", r"has a weight laid out for kernels of a"),
    ],
)
def test_what_cannot_be_unpacked_is_refused(save: Save, inputs: str, fields: str, why: str):
    with pytest.raises(InputError, match=rf"node 'product' \(MatMulNBits\) {why}"):
        load_model(packed(save, inputs, fields))


@pytest.mark.parametrize("kind", [MatMulBnb4Quantizer.FP4, MatMulBnb4Quantizer.NF4])
@pytest.mark.parametrize("k", [64, 23])
def test_weights_in_floats_of_4_bits_become_the_floats_that_they_stand_for(
    tmp_path: Path, k: int, kind: int
):
    """Also where the last block is not full."""
    rng = np.random.default_rng(0)
    proto = parse_model(PRODUCT.format(k=k))
    weight = rng.standard_normal((k, 24)).astype(np.float32)
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
    quantizer = MatMulBnb4Quantizer(proto, quant_type=kind, block_size=32)
    quantizer.process()
    onnx.save(quantizer.model.model, tmp_path / "packed.onnx")
    model = load_model(tmp_path / "packed.onnx")
    (node,) = model.graph.nodes
    assert (node.name, node.op, node.outputs) == ("product", "MatMul", ("y",))
    assert model.imported.source == "weights of 4 bits in blocks"
    x = rng.standard_normal((2, k)).astype(np.float32)
    (expected,) = outputs(onnx.load(tmp_path / "packed.onnx"), x=x)
    (found,) = outputs(model.proto, x=x)
    assert sqnr(expected, found) > 100


BNB4 = """
<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
g (float[1,4] x, uint8[4] given) => (float[1,2] y)
<uint8[4] w = {{0, 1, 2, 3}}, float[1] m = {{1}}, float[2] two = {{1, 1}}> {{
  [product] y = com.microsoft.MatMulBnb4<K = 4, N = 2, block_size = 16, {fields}>({inputs})
}}"""


@pytest.mark.parametrize(
    ("inputs", "fields", "why"),
    [
        ("x, given, m", "quant_type = 1", "computes 'given', its packed weight or a scale of it"),
        ("x, w", "quant_type = 1", "has no packed weight, or no scale of it"),
        ('x, "", m', "quant_type = 1", "has no packed weight, or no scale of it"),
        ("x, w, two", "quant_type = 1", "with 2 scales, where 8 values in blocks of 16 belong"),
        ("x, w, m", "quant_type = 2", "has quant_type = 2, where placer unpacks FP4"),
        ("x, w, m", "quant_type = 1, transB = 0", "has transB = 0, as in training"),
    ],
)
def test_floats_of_4_bits_that_cannot_be_unpacked_are_refused(
    save: Save, inputs: str, fields: str, why: str
):
    with pytest.raises(InputError, match=rf"node 'product' \(MatMulBnb4\) .*{why}"):
        load_model(save(BNB4.format(inputs=inputs, fields=fields)))


TABLE = """
<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
g (int64[2] x) => (float[2,40] y) <uint8[3,40] t = {{ZEROS}},
float[3,{blocks}] s = {{0}}, uint8[3,3] z = {{0, 0, 0, 0, 0, 0, 0, 0, 0}},
float one = {{1}}, uint8[2] two = {{0, 0}}, uint8[0,40] none = {{}}> {{
  [take] y = com.microsoft.GatherBlockQuantized<gather_axis = 0, quantize_axis = 1,
      block_size = 16{fields}>({read})
}}""".replace("ZEROS", ", ".join("0" * 120))


LIMITS = {"int4": (-8, 7), "uint4": (0, 15), "uint8": (0, 255)}


@pytest.mark.parametrize("has_zero_points", [False, True])
@pytest.mark.parametrize(("kind", "bits"), [("int4", 0), ("uint4", 0), ("uint8", 4), ("uint8", 8)])
def test_a_table_in_blocks_becomes_the_floats_that_it_stands_for(
    save: Save, kind: str, bits: int, has_zero_points: bool
):
    """The last of three blocks of 16 is not full, and the zero points of a row end in a byte."""
    rng, each = np.random.default_rng(0), 2 if bits == 4 else 1
    fields = f", bits = {bits}" if bits else ""
    read = "t, x, s, z" if has_zero_points else "t, x, s"
    path = save(TABLE.format(blocks=3, fields=fields, read=read))
    proto = onnx.load(path)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind.upper()))
    lowest, highest = LIMITS[kind]
    for tensor in proto.graph.initializer[:3]:
        shape = (*tensor.dims[:-1], -(-tensor.dims[-1] // each))
        values = rng.integers(lowest, highest + 1, shape).astype(dtype)
        if tensor.name == "s":
            values = rng.random(tensor.dims, np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(proto, path)
    model = load_model(path)
    (node,) = model.graph.nodes
    assert (node.name, node.op, node.inputs[1]) == ("take", "Gather", "x")
    assert model.imported.source == "tables in blocks"
    assert model.imported.notes == (
        "the table of 'take' is float; the scales of its blocks are not kept",
    )
    rows = np.array([2, 0])
    (expected,), (found,) = outputs(proto, x=rows), outputs(model.proto, x=rows)
    assert sqnr(expected, found) > 100


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"fields": ", bits = 3"}, "has values of 3 bits, where placer unpacks 2, 4 and 8"),
        ({"read": "t, x"}, "has no table, or no scale of it"),
        ({"read": "t, x, x"}, "computes 'x', its table or a scale of it"),
        ({"read": "none, x, s"}, r"has a table of shape \(0, 40\), which holds no values"),
        ({"read": "t, x, one"}, r"has scales of shape \(\) and .* for a table of shape \(3, 40\)"),
        ({"read": "t, x, s, two"}, r"has .* zero points of shape \(2,\) for a table of shape"),
        ({"blocks": 2}, r"has scales .* of shape \(3, 2\) along axis 1 .* in blocks of 16"),
    ],
)
def test_a_table_that_cannot_be_unpacked_is_refused(
    save: Save, changed: dict[str, object], why: str
):
    fields = {"blocks": 3, "fields": ", bits = 8", "read": "t, x, s", **changed}
    with pytest.raises(InputError, match=rf"node 'take' \(GatherBlockQuantized\) {why}"):
        load_model(save(TABLE.format(**fields)))
