"""MatMulNBits, which holds weights of 2, 4 or 8 bits in blocks, several values to a byte."""

from pathlib import Path

import numpy as np
import onnx
import pytest
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
