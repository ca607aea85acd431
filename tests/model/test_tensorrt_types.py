"""Types of integers, scales and blocks that TensorRT takes in pairs."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from placer.engines.tensorrt.offline_builder import check_model
from placer.graph.text import parse_model
from placer.model.tensorrt_pairs import check_pairs
from tests.model.paired import CONV, ONES, PAIR, Save, findings_of, nvfp4, text_of


@pytest.mark.parametrize("zero_point", [", u", ""])
def test_uint8_is_built_as_int8(save: Save, builder: Any, zero_point: str):
    """No zero point means uint8. The builder takes it and makes int8 of it, which saturates."""
    body = (
        f"[q] q = QuantizeLinear(x, s{zero_point}) [dq] d = DequantizeLinear(q, s{zero_point})"
        "[v] v = DequantizeLinear<axis = 0>(wq, ws, wz) [conv] y = Conv(d, v)"
    )
    path = save(text_of(body))
    (finding,) = findings_of(path)
    assert (finding.verdict, finding.node) == ("altered", "q")
    report = check_model(builder, onnx.load(path), "sm89")
    quantize = next(layer for layer in report.plan.layers if "q" in layer.nodes)
    assert quantize.output_types == ("int8",)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "s0 = ReduceMax<keepdims = 0>(x) [q] q = QuantizeLinear(x, s0, z)"
            "[dq] d = DequantizeLinear(q, s0, z)" + CONV,
            "its scale is computed at run time",
        ),
        (
            "[q] q = QuantizeLinear<axis = 1>(x, ws, wz)"
            "[dq] d = DequantizeLinear<axis = 1>(q, ws, wz)" + CONV,
            "it has 4 scales",
        ),
        (
            "[v] v = DequantizeLinear<axis = 1>(wq, ws, wz) [conv] y = Conv(x, v)",
            "its scales lie along axis 1, the output channels of Conv 'conv' along axis 0, so that "
            "TensorRT-RTX computes it in float",
        ),
        (  # pytorch-quantization's.
            PAIR.format("z")
            + "i = QuantizeLinear<axis = 0>(w, ws, wz) v = DequantizeLinear<axis = 0>(i, ws, wz)"
            "[up] y = ConvTranspose(d, v)",
            "its scales lie along axis 0, the output channels of ConvTranspose 'up' along axis 1",
        ),
    ],
)
def test_what_the_documentation_rules_out_and_this_builder_takes(
    save: Save, builder: Any, body: str, reason: str
):
    path = save(text_of(body))
    found = findings_of(path)
    assert {finding.verdict for finding in found} == {"undocumented"}
    assert found[0].reason.startswith(reason)
    assert check_model(builder, onnx.load(path), "sm89").accepted


@pytest.mark.parametrize(
    ("weight_type", "reasons"),
    [
        (TensorProto.FLOAT8E4M3FN, ["it quantizes float to FP8 with a scale of float16"]),
        (TensorProto.INT8, []),
    ],
)
def test_fp8_of_float32_takes_no_scale_of_half_precision(
    builder: Any, weight_type: int, reasons: list[str]
):
    """Model-Optimizer issue 118: "Could not infer output types for operation: quantize"."""
    body = "[q] q = QuantizeLinear(w, s, z) v = DequantizeLinear(q, s, z) y = Conv(x, v)"
    proto = parse_model(text_of(body).replace('"": 17', '"": 19').replace(": 8,", ": 9,"))
    proto.graph.node.insert(2, onnx.helper.make_node("Cast", ["v"], ["wide"], to=TensorProto.FLOAT))
    proto.graph.node[-1].input[1] = "wide"
    retyped = {"s": (TensorProto.FLOAT16, 0.05), "z": (weight_type, 0.0)}
    for tensor in proto.graph.initializer:
        if tensor.name in retyped:
            dtype, value = retyped[tensor.name]
            tensor.CopyFrom(onnx.helper.make_tensor(tensor.name, dtype, [], [value]))
    assert check_model(builder, proto, "sm89").accepted == (not reasons)
    assert [f.reason for f in check_pairs(proto, Path(), Path("model.onnx"))] == reasons


@pytest.mark.parametrize(
    ("dtype", "is_taken"), [(TensorProto.FLOAT8E4M3FN, True), (TensorProto.FLOAT8E5M2, False)]
)
def test_fp8(save: Save, builder: Any, dtype: int, is_taken: bool):
    path = save(
        text_of(PAIR.format("z") + CONV).replace('"": 17', '"": 19').replace(": 8,", ": 9,")
    )
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:
        if tensor.name == "z":
            tensor.CopyFrom(onnx.helper.make_tensor("z", dtype, [], [0.0]))
    onnx.save(proto, path)
    assert check_model(builder, proto, "sm89").accepted == is_taken
    assert (findings_of(path) == ()) == is_taken
    proto.opset_import[0].version = 18  # ONNX Runtime refuses it then, the builder does not.
    onnx.save(proto, path)
    assert check_model(builder, proto, "sm89").accepted == is_taken
    finding = findings_of(path)[0]
    assert (finding.verdict == "undocumented", "opset 19" in finding.fix) == (is_taken, is_taken)


@pytest.mark.parametrize(
    ("dtype", "block", "gpu", "what"),
    [
        ("INT8", 16, "sm89", "scales of blocks, which ONNX has from opset 21"),
        ("INT4", 0, "sm89", "int4, which ONNX has from opset 21"),
        ("INT4", 16, "sm89", "int4, which ONNX has from opset 21"),
        ("FLOAT4E2M1", 16, "sm120", "float4_e2m1fn, which ONNX has from opset 23"),
        ("UINT4", 0, "sm89", None),  # The builder does not read it at any opset.
    ],
)
def test_weights_of_4_bits_and_in_blocks(
    builder: Any, dtype: str, block: int, gpu: str, what: str | None
):
    rows, per_row = 64, 64 // block if block else 1
    proto = onnx.parser.parse_model(f"""
        <ir_version: 11, opset_import: ["": 17]> g (float[8,{rows}] x) => (float[8,{rows}] y) {{
          [v] v = DequantizeLinear<axis = {int(block > 0)}, block_size = {block}>(wq, ws)
          t = Transpose<perm = [1, 0]>(v)
          y = MatMul(x, t)
        }}""")
    shape = [rows, per_row] if block else [rows]
    of_type = TensorProto.DataType.Value(dtype)
    proto.graph.initializer.extend(
        [
            onnx.helper.make_tensor("wq", of_type, [rows, 64], [1] * rows * 64),
            onnx.helper.make_tensor("ws", TensorProto.FLOAT, shape, [0.5] * rows * per_row),
        ]
    )
    assert check_model(builder, proto, gpu).accepted == (what is not None)
    (finding,) = check_pairs(proto, Path(), Path("model.onnx"))
    told = "TensorRT does not read uint4" if what is None else f"it has {what} on"
    verdict = "refused" if what is None else "undocumented"
    assert (finding.verdict, finding.reason) == (verdict, told)


@pytest.mark.parametrize(
    ("dtype", "told_of", "verdict"), [("int16", "q", "refused"), ("int32", "dq", "undocumented")]
)
def test_a_bias_of_more_than_8_bits_is_to_stay_float(
    builder: Any, dtype: str, told_of: str, verdict: str
):
    # Brevitas issue 515; PPQ 0.6.6 writes int32.
    proto = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]> g (float[1,2,8,8] x) => (float[1,2,8,8] y)
          <float[2,2,1,1] w = {{1, 2, 3, 4}}, float[2] b = {{1, 2}}, float s = {{0.01}},
           {dtype} z = {{0}}> {{
          [q] i = QuantizeLinear(b, s, z)
          [dq] d = DequantizeLinear(i, s, z)
          y = Conv(x, w, d)
        }}""")
    assert check_model(builder, proto, "sm89").accepted == (verdict == "undocumented")
    (found,) = check_pairs(proto, Path(), Path("model.onnx"))
    assert (found.node, found.verdict, found.fix) == (told_of, verdict, "keep the bias float")


@pytest.mark.parametrize(("zero", "is_taken"), [("z", True), ("u", False)])
def test_what_a_q_writes_has_the_type_of_its_zero_point(builder: Any, zero: str, is_taken: bool):
    # ONNX Runtime issue 25526.
    proto = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]> g (float[1,4] x) => (float[1,4] y)
          <float s = {{0.05}}, int8 z = {{0}}, uint8 u = {{0}}> {{
          [q] q = QuantizeLinear <output_dtype = {TensorProto.INT8}> (x, s, {zero})
          y = DequantizeLinear(q, s, {zero})
        }}""")
    assert check_model(builder, proto, "sm89").accepted == is_taken
    refused = [f for f in check_pairs(proto, Path(), Path("model.onnx")) if f.verdict == "refused"]
    assert [one.reason for one in refused] == (
        [] if is_taken else ["it writes int8 by a zero point of uint8"]
    )


def test_blocks_along_another_axis_than_their_scales_say(builder: Any):
    # As NNCF wrote them (OpenVINO pull request 37900).
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]> g (float[8,64] x) => (float[8,32] y) {
          [v] v = DequantizeLinear<axis = 0, block_size = 16>(wq, ws)
          y = MatMul(x, v)
        }""")
    proto.graph.initializer.extend(
        [
            onnx.helper.make_tensor("wq", TensorProto.INT4, [64, 32], [1] * 64 * 32),
            onnx.helper.make_tensor("ws", TensorProto.FLOAT, [64, 2], [0.5] * 128),
        ]
    )
    assert not check_model(builder, proto, "sm89").accepted
    (finding,) = check_pairs(proto, Path(), Path("model.onnx"))
    assert (finding.verdict, finding.fix) == ("refused", "set its attribute axis to 1")
    assert finding.reason == (
        "its scales have shape (64, 2), but axis 0 of shape (64, 32) takes (4, 32) in blocks of 16"
    )


@pytest.mark.parametrize(
    ("dtype", "how", "gpu"),
    [
        ("FLOAT8E4M3FN", "Reshape(w, shape)", "sm89"),
        ("FLOAT8E4M3FN", "Gather<axis = 0>(w, rows)", "sm89"),
        ("INT4", "Transpose<perm = [1, 0]>(w)", "sm89"),
        ("FLOAT4E2M1", "Transpose<perm = [1, 0]>(w)", "sm120"),
    ],
)
def test_stored_weights_that_are_moved_before_they_are_dequantized(
    builder: Any, dtype: str, how: str, gpu: str
):
    """TensorRT-Edge-LLM issue 217."""
    proto = onnx.parser.parse_model(f"""
        <ir_version: 11, opset_import: ["": 23]> g (float[8,32] x) => (float[8,32] y)
        <int64[2] shape = {{32, 32}}, int64[32] rows = {{{", ".join(["1"] * 32)}}}> {{
          [move] m = {how}
          [v] v = DequantizeLinear<axis = 0, block_size = 16>(m, s)
          y = MatMul(x, v)
        }}""")
    of_type = TensorProto.DataType.Value(dtype)
    proto.graph.initializer.extend(
        [
            onnx.helper.make_tensor("w", of_type, [32, 32], [1] * 32 * 32),
            onnx.helper.make_tensor("s", TensorProto.FLOAT, [2, 32], [0.5] * 64),
        ]
    )
    assert not check_model(builder, proto, gpu).accepted
    (finding,) = check_pairs(proto, Path(), Path("model.onnx"))
    assert (finding.node, finding.verdict) == ("move", "refused")
    assert finding.fix == "put the DequantizeLinear before this node"


def test_zero_points_have_the_type_of_what_is_dequantized(save: Save, builder: Any):
    """ONNX Runtime issue 21576. The builder passes over it, ONNX Runtime refuses the file."""
    path = save(text_of("d = DequantizeLinear(wq, s, z) [conv] y = Conv(x, d)"))
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:
        if tensor.name == "z":
            tensor.CopyFrom(numpy_helper.from_array(np.uint8(0), "z"))
    onnx.save(proto, path)
    assert check_model(builder, onnx.load(path), "sm89").accepted
    (found,) = findings_of(path)
    assert (found.verdict, found.fix) == ("undocumented", "give both one type")
    assert found.reason.startswith("it reads int8 with a zero point of uint8")


def test_what_is_dequantized_has_the_type_of_its_scale(builder: Any):
    """TensorRT issue 4832: built for Thor, not for Orin; TensorRT-RTX takes it."""
    proto = onnx.parser.parse_model(
        """
        <ir_version: 11, opset_import: ["": 23]>
        g (float16[1,4,8,8] x) => (float[1,4,8,8] y)
        <float16 s = {14336}, int8 z = {0}, float[4,4,1,1] w = {WEIGHTS}> {
          q = QuantizeLinear(x, s, z) [dq] d = DequantizeLinear<output_dtype = 1>(q, s, z)
          y = Conv(d, w)
        }""".replace("WEIGHTS", ONES)
    )
    assert check_model(builder, proto, "sm89").accepted
    (found,) = check_pairs(proto, Path(), Path("model.onnx"))
    assert (found.node, found.verdict) == ("dq", "undocumented")
    assert found.reason == "it writes float32 by a scale of float16"


def test_nvfp4_whose_activations_are_quantized_at_run_time(builder: Any):
    proto = nvfp4()
    assert check_model(builder, proto, "sm120").accepted
    assert not check_model(builder, proto, "sm89").accepted  # Which explain says of a GPU.
    assert check_pairs(proto, Path(), Path("model.onnx")) == ()


def test_nvfp4_of_convs_is_refused(builder: Any):
    """Model-Optimizer issue 614."""
    proto = onnx.parser.parse_model("""
        <ir_version: 11, opset_import: ["": 23, "trt": 1]>
        g (float[1,16,8,8] x) => (float[1,16,8,8] y)
        <float s = {0.01}> {
          [dq] q, f = trt.TRT_FP4DynamicQuantize<axis = 1, block_size = 16, scale_type = 17>(x, s)
          t = DequantizeLinear(f, s)
          d = DequantizeLinear<axis = 1, block_size = 16>(q, t)
          [conv] y = Conv(d, w)
        }""")
    weight = onnx.helper.make_tensor("w", TensorProto.FLOAT, [16, 16, 1, 1], [0.1] * 256)
    proto.graph.initializer.append(weight)
    assert not check_model(builder, proto, "sm120").accepted
    (found,) = check_pairs(proto, Path(), Path("model.onnx"))
    assert str(found).startswith("node 'dq' (TRT_FP4DynamicQuantize) on 'x': Conv 'conv' reads it")


def test_the_scale_of_nvfp4_is_float32(builder: Any):
    """Torch-TensorRT issue 4196."""
    proto = nvfp4()
    for scale in proto.graph.initializer[:1]:
        scale.CopyFrom(numpy_helper.from_array(np.array(0.01, np.float16), scale.name))
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    assert check_model(builder, proto, "sm120").accepted
    (found,) = check_pairs(proto, Path(), Path("model.onnx"))
    assert (found.verdict, found.fix) == ("undocumented", "give it a scale of float32")


@pytest.mark.parametrize(
    ("dtype", "scale", "gpu", "refused"),
    [
        ("FLOAT4E2M1", "FLOAT8E4M3FN", "sm120", ""),  # NVFP4, as Model-Optimizer exports it.
        (
            "FLOAT8E4M3FN",
            "FLOAT8E8M0",
            "sm120",
            "its scale is of type float8_e8m0fnu, which TensorRT does not read",
        ),
    ],
    ids=["NVFP4", "MXFP8"],
)
def test_scales_of_blocks_in_fp8(builder: Any, dtype: str, scale: str, gpu: str, refused: str):
    scaled = scale == "FLOAT8E4M3FN"
    block = "axis = 0, block_size = 32, output_dtype = 1"
    proto = onnx.parser.parse_model(f"""
        <ir_version: 12, opset_import: ["": 24]> g (float[8,128] x) => (float[8,64] y)
        <float one = {{0.01}}> {{
          {"b = DequantizeLinear(s, one)" if scaled else ""}
          [v] v = DequantizeLinear<{block}>(q, {"bs"[not scaled]})
          y = MatMul(x, v)
        }}""")
    for name, kind, shape in (("q", dtype, [128, 64]), ("s", scale, [4, 64])):
        of_type = TensorProto.DataType.Value(kind)
        values = [0.5] * shape[0] * shape[1]
        proto.graph.initializer.append(onnx.helper.make_tensor(name, of_type, shape, values))
    assert check_model(builder, proto, gpu).accepted == (not refused)
    found = check_pairs(proto, Path(), Path("model.onnx"))
    assert [finding.reason for finding in found] == [refused] * bool(refused)
