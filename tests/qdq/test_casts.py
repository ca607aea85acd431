"""Casts between float types around pairs: FP16 models whose scales stayed FP32.

Such files come from converters to FP16 that leave Q/DQ out, and from PyTorch's export under AMP;
Model-Optimizer pull request 1289 folds these Casts so that TensorRT fuses the DQ.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

from placer.engines.tensorrt.offline_builder import check_model
from placer.graph.text import parse_model
from placer.model import load_model
from placer.qdq.extract import extract_placement

Save = Callable[..., Path]

MIXED = """
    <ir_version: 9, opset_import: ["": 19]>
    g (float16[64,64] x) => (float16[64,64] out)
    <float[64,64] w1 = {0.1}, float[64,64] w2 = {0.1}, float s = {0.1}, float s2 = {0.2},
     int8 z = {0}> {
      [x_cast] x32 = Cast<to = 1>(x)
      [x_q] xq = QuantizeLinear(x32, s, z)
      [x_dq] xd = DequantizeLinear(xq, s, z)
      [xd_cast] xd16 = Cast<to = 10>(xd)
      [w1_q] w1q = QuantizeLinear(w1, s, z)
      [w1_dq] w1d = DequantizeLinear(w1q, s, z)
      [w1_cast] w116 = Cast<to = 10>(w1d)
      [mm1] a = MatMul(xd16, w116)
      [relu] r = Relu(a)
      [r_cast] r32 = Cast<to = 1>(r)
      [r_q] rq = QuantizeLinear(r32, s2, z)
      [r_dq] rd = DequantizeLinear(rq, s2, z)
      [rd_cast] rd16 = Cast<to = 10>(rd)
      [w2_q] w2q = QuantizeLinear(w2, s, z)
      [w2_dq] w2d = DequantizeLinear(w2q, s, z)
      [w2_cast] w216 = Cast<to = 10>(w2d)
      [mm2] out = MatMul(rd16, w216)
    }"""
READ = [("mm1", 0), ("mm1", 1), ("mm2", 0), ("mm2", 1)]


def test_pairs_belong_to_what_reads_the_casts_behind_them():
    found = extract_placement(parse_model(MIXED))
    assert [node.name for node in found.nodes] == ["mm1", "relu", "mm2"]
    assert sorted((e.node, e.input_index) for e in found.placement.edges) == READ
    assert {e.tensor for e in found.placement.edges} == {"x", "w1", "r", "w2"}


def test_so_do_those_of_the_imported_model(save: Save):
    model = load_model(save(MIXED))
    assert [node.name for node in model.graph.nodes] == ["mm1", "relu", "mm2"]
    imported = model.source_quantization()
    assert sorted((e.node, e.input_index) for e in imported.placement.edges) == READ
    assert {name: scale.scale for name, scale in imported.activations.items()} == {
        "x": onnx.numpy_helper.to_array(parse_model(MIXED).graph.initializer[2]).item(),
        "r": onnx.numpy_helper.to_array(parse_model(MIXED).graph.initializer[3]).item(),
    }
    assert imported.notes == ()


def test_nvidias_builder_takes_both_products_in_int8(builder: Any):
    report = check_model(builder, parse_model(MIXED), "sm89")
    products = [layer for layer in report.plan.layers if layer.name.startswith("mm")]
    assert [(layer.nodes[0], layer.input_types[0]) for layer in products] == [
        ("mm1", "int8"),
        ("mm2", "int8"),
    ]


def test_a_cast_from_integers_is_no_part_of_a_pair():
    text = """
        <ir_version: 9, opset_import: ["": 19]>
        g (uint8[4,4] image, float16[4,4] w) => (float16[4,4] out)
        <float s = {0.1}, int8 z = {0}> {
          [cast] x = Cast<to = 1>(image)
          [q] q = QuantizeLinear(x, s, z)
          [d] d = DequantizeLinear(q, s, z)
          [back] d16 = Cast<to = 10>(d)
          [mm] out = MatMul(d16, w)
        }"""
    found = extract_placement(parse_model(text))
    assert [node.name for node in found.nodes] == ["cast", "mm"]
    assert {tuple(e) for e in found.placement.edges} == {("x", "mm", 0)}


def test_a_cast_to_another_type_than_before_stays(save: Save):
    text = MIXED.replace("float16[64,64] x)", "float[64,64] x)").replace("(x32, s", "(x, s")
    model = load_model(save("\n".join(t for t in text.split("\n") if "x_cast" not in t)))
    assert [node.name for node in model.graph.nodes] == ["xd_cast", "mm1", "relu", "mm2"]
    edges = model.source_quantization().placement.edges
    assert sorted((e.node, e.input_index) for e in edges) == READ
