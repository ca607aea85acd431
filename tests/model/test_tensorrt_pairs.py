"""The static check of Q/DQ pairs: what TensorRT refuses and why, held against NVIDIA's builder."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import placer
from placer.engines.tensorrt.offline_builder import check_model
from placer.errors import InputError
from placer.graph.text import parse_model
from placer.model import load_quantized
from placer.model.tensorrt_pairs import Finding, check_pairs
from placer.qdq.origin import name_origin
from tests.conftest import DIGITS, Finished

Save = Callable[..., Path]
ARTEFACTS = Path(__file__).parent.parent / "artefacts"

DOMAINS = (
    '"com.microsoft": 1, "com.microsoft.nchwc": 1, '
    '"qonnx.custom_op.general": 1, "aimet.customop.cpu": 1, "com.amd.quark": 1'
)
BOTH = "placer import, and placer optimize,"
ONES = ", ".join(["1"] * 16)
# Constants that every model below may use.
CONSTANTS = f"""
    float[4,4,1,1] w = {{0.5}}, float s = {{0.05}}, float s4 = {{0.5}}, int8 z = {{0}},
    uint8 u = {{0}}, int8[4,4,1,1] wq = {{{ONES}}}, float[4] ws = {{1, 2, 3, 4}},
    int8[4] wz = {{0, 0, 0, 0}}, int8 low = {{-7}}, int8 high = {{7}},
    float[4,1,1,1] single = {{1, 2, 3, 4}}
"""
PAIR = "[q] q = QuantizeLinear(x, s, {0}) [dq] d = DequantizeLinear(q, s, {0}) "
CONV = "[conv] y = Conv(d, w)"

# Either branch gives ``y``; pairs of the first are PAIR's.
BRANCHES = """
    n = ReduceSum<keepdims = 0>(x) [test] t = Greater(n, s)
    [choose] y = If(t) <
      then_branch = yes () => (float[1,4,8,8] a) {{ {0} {1} }},
      else_branch = no () => (float[1,4,8,8] b) {{ b = Identity(x) }}
    >
"""

# Node and reason of what is refused.
REFUSED = {
    "what ONNX Runtime's optimizer made for one processor": (
        PAIR.format("z") + "[reorder] y = com.microsoft.nchwc.ReorderInput(d)",
        "",
        ("reorder", "TensorRT has no such operator, which is ONNX Runtime's for one processor"),
    ),
    "weights of one bit": (
        PAIR.format("z") + "[signs] b = qonnx.custom_op.general.BipolarQuant(w, s) y = Conv(d, b)",
        "",
        ("signs", "TensorRT has no operator of domain 'qonnx.custom_op.general'"),
    ),
    "what ONNX Runtime's optimizer made": (
        PAIR.format("z") + '[fused] y = com.microsoft.FusedConv<activation = "Relu">(d, w)',
        "",
        ("fused", "TensorRT has no such operator, which is ONNX Runtime's"),
    ),
    "int8 with a zero point": (
        PAIR.format("z3") + CONV,
        "int8 z3 = {3}",
        ("q", "its zero point is 3, but TensorRT takes symmetric quantization only"),
    ),
    "uint8 with a zero point": (
        PAIR.format("u128") + CONV,
        "uint8 u128 = {128}",
        ("q", "its zero point is 128, but TensorRT takes symmetric quantization only"),
    ),
    "a negative scale": (
        "[q] q = QuantizeLinear(x, n, z) [dq] d = DequantizeLinear(q, n, z) " + CONV,
        "float n = {-0.5}",
        ("q", "its scale is -0.5, but TensorRT takes positive ones only"),
    ),
    "halves of a pair along several axes": (  # ONNX Runtime issue 17718.
        PAIR.format("z") + "[i] i = QuantizeLinear<axis = 0>(w2, ws, wz)"
        "[v] v = DequantizeLinear(i, ws, wz) [conv] y = Conv<group = 2>(d, v)",
        f"float[4,2,1,1] w2 = {{{ONES[: 3 * 8 - 2]}}}",
        ("v", "it has 4 scales for 2 channels of axis 1"),
    ),
    "a scale of zero": (
        "[q] q = QuantizeLinear(x, n, z) [dq] d = DequantizeLinear(q, n, z) " + CONV,
        "float n = {0}",
        ("q", "its scale is 0, but TensorRT takes positive ones only"),
    ),
    "a scale that is not finite": (
        "[q] q = QuantizeLinear(x, n, z) [dq] d = DequantizeLinear(q, n, z) " + CONV,
        "float n = {nan}",
        ("q", "its scale is nan, but TensorRT takes positive ones only"),
    ),
    "a scale of zero of a dead channel": (  # TensorRT issue 2267, onnx-tensorrt issue 764.
        "[v] v = DequantizeLinear<axis = 0>(wq, ws0, wz) [conv] y = Conv(x, v)",
        "float[4] ws0 = {1, 0, 3, 4}",
        ("v", "its scale is 0, but TensorRT takes positive ones only"),
    ),
    "scales along another axis": (  # TensorRT issue 994.
        "[v] v = DequantizeLinear<axis = 3>(wq, ws, wz) [conv] y = Conv(x, v)",
        "",
        ("v", "it has 4 scales for 1 channels of axis 3"),
    ),
    "scales along an axis that is none": (
        "[v] v = DequantizeLinear<axis = 4>(wq, ws, wz) [conv] y = Conv(x, v)",
        "",
        ("v", "its scales lie along axis 4 of a tensor of 4 dimensions"),
    ),
    "scales in the shape of the weight": (  # PyTorch issue 154323.
        "[v] v = DequantizeLinear<axis = 0>(wq, ws4, wz4) [conv] y = Conv(x, v)",
        "float[4,1,1,1] ws4 = {1, 2, 3, 4}, int8[4,1,1,1] wz4 = {0, 0, 0, 0}",
        ("v", "its scales have shape (4, 1, 1, 1), where one for each channel makes a list"),
    ),
    "scales of an activation along an axis that is none": (
        "[q] q = QuantizeLinear<axis = 5>(x, ws, wz) [dq] d = DequantizeLinear<axis = 5>(q, ws, wz)"
        + CONV,
        "",
        ("q", "its scales lie along axis 5 of a tensor of 4 dimensions"),
    ),
    "scales of an activation for other channels": (
        "[q] q = QuantizeLinear<axis = 2>(x, ws, wz) [dq] d = DequantizeLinear<axis = 2>(q, ws, wz)"
        + CONV,
        "",
        ("q", "it has 4 scales for 8 channels of axis 2"),
    ),
    "a zero point that is computed": (  # TensorRT issue 981.
        "m = ReduceMin<keepdims = 0>(x) o = Cast<to = 3>(m) " + PAIR.format("o") + CONV,
        "",
        ("q", "its zero point is computed at run time, but TensorRT takes constant zeros only"),
    ),
    "Cast to uint8 between Q and DQ": (
        "[q] q = QuantizeLinear(x, s, z) [cast] c = Cast<to = 2>(q)"
        "[dq] d = DequantizeLinear(c, s, u) " + CONV,
        "",
        ("cast", "it makes uint8, which TensorRT does not take between Q and DQ"),
    ),
    "int32 bias": (
        "[b] b = DequantizeLinear(bq, s) [conv] y = Conv(x, w, b)",
        "int32[4] bq = {1, 2, 3, 4}",
        ("b", "it reads int32, which TensorRT does not dequantize"),
    ),
    "uint8 weights": (
        "[v] v = DequantizeLinear(wu, s, u) [conv] y = Conv(x, v)",
        f"uint8[4,4,1,1] wu = {{{ONES}}}",
        ("v", "it reads uint8, which TensorRT does not take"),
    ),
    "a quantized scalar": (
        "[k] k = DequantizeLinear(kq, s, z) [conv] c = Conv(x, w) [add] y = Add(c, k)",
        "int8 kq = {5}",
        ("k", "it reads a quantized scalar, but TensorRT dequantizes tensors only"),
    ),
    "a quantized constant before another node than DQ": (
        "[pick] p = Gather<axis = 0>(wq, i) [dq] v = DequantizeLinear(p, s, z)"
        "[conv] y = Conv(x, v)",
        "int64[4] i = {0, 1, 2, 3}",
        ("pick", "it reads the quantized constant 'wq', which only a DQ may"),
    ),
    "a quantized constant before Clip": (
        "[clip] p = Clip(wq, low, high) [dq] v = DequantizeLinear(p, s, z) [conv] y = Conv(x, v)",
        "",
        ("clip", "it reads the quantized constant 'wq', which only a DQ may"),
    ),
    "a quantized constant that Cast and Mul dequantize": (  # PyTorch issue 127167.
        "[cast] f = Cast<to = 1>(wq) v = Mul(f, s4) [conv] y = Conv(x, v)",
        "",
        ("cast", "it reads the quantized constant 'wq', which only a DQ may"),
    ),
    "a table of int8 that is read at run time": (
        "r = Cast<to = 7>(x) [pick] p = Gather(wz, r) f = Cast<to = 1>(p) y = Add(x, f)",
        "",
        ("pick", "it reads the quantized constant 'wz', which only a DQ may"),
    ),
    "a choice of int8 constants": (
        "m = Greater(x, s) [pick] p = Where(m, low, high) f = Cast<to = 1>(p) y = Add(x, f)",
        "",
        ("pick", "it reads the quantized constant 'low', which only a DQ may"),
    ),
    "a sum of int8 constants": (
        "[sum] p = Add(wz, z) f = Cast<to = 1>(p) g = ReduceSum(f) y = Add(x, g)",
        "",
        ("sum", "it reads the quantized constant 'wz', which only a DQ may"),
    ),
    "QLinearMatMul": (
        "[q] q = QuantizeLinear(x, s, z) [mm] m = QLinearMatMul(q, s, z, q, s, z, s, z)"
        "[dq] y = DequantizeLinear(m, s, z)",
        "",
        ("mm", "TensorRT has no such operator"),
    ),
    "QLinearAdd": (
        "[q] q = QuantizeLinear(x, s, z) [a] m = com.microsoft.QLinearAdd(q, s, z, q, s, z, s, z)"
        "[dq] y = DequantizeLinear(m, s, z)",
        "",
        ("a", "TensorRT has no such operator"),
    ),
    "dynamic quantization": (
        "[dyn] q, s0, z0 = DynamicQuantizeLinear(x) [dq] d = DequantizeLinear(q, s0, z0) " + CONV,
        "",
        ("dyn", "TensorRT has no such operator"),
    ),
    "a quantizer of a training tool": (  # AIMET issue 4006.
        "[sim] d = aimet.customop.cpu.QcQuantizeOp(x) " + CONV,
        "",
        ("sim", "TensorRT has no operator of domain 'aimet.customop.cpu'"),
    ),
    "a quantizer of blocks of a training tool": (  # RyzenAI-SW issue 339.
        "[sim] d = com.amd.quark.BFPQuantizeDequantize(x) " + CONV,
        "",
        ("sim", "TensorRT has no operator of domain 'com.amd.quark'"),
    ),
    "weights that an operator of ONNX Runtime holds in 4 bits": (
        "[nbits] m = com.microsoft.MatMulNBits<K = 8, N = 8, bits = 4, block_size = 16>(x, packed,"
        " s8) y = Conv(m, w)",
        "uint8[8,1,8] packed = {ONES8}, float[8] s8 = {1, 1, 1, 1, 1, 1, 1, 1}".replace(
            "ONES8", ", ".join(["1"] * 64)
        ),
        ("nbits", "TensorRT has no such operator, which is ONNX Runtime's"),
    ),
    "int8 with a zero point in a branch": (
        BRANCHES.format(PAIR.format("z3"), "a = Conv(d, w)"),
        "int8 z3 = {3}",
        ("q", "its zero point is 3, but TensorRT takes symmetric quantization only"),
    ),
    "int32 that the network itself rounds": (  # TensorRT issue 4542.
        "r = Div(x, s) i = Cast<to = 6>(r) [dq] d = DequantizeLinear(i, s) " + CONV,
        "",
        ("dq", "it reads int32, which TensorRT does not dequantize"),
    ),
    "stored weights that are cast and scaled": (  # As torchao exports them (issue 986).
        "[cast] c = Cast<to = 1>(wq) v = Mul(c, single) y = Conv(x, v)",
        "",
        ("cast", "it reads the quantized constant 'wq', which only a DQ may"),
    ),
    "fake quantization of another domain": (
        '[f] d = qonnx.custom_op.general.Quant<signed = 1, narrow = 0, rounding_mode = "ROUND">'
        "(x, s, zf, bits) " + CONV,
        "float zf = {0}, float bits = {8}",
        ("f", "TensorRT has no operator of domain 'qonnx.custom_op.general'"),
    ),
}
TAKEN = {
    "Clip with bounds of int8 between Q and DQ": (  # Brevitas's QCDQ.
        "q = QuantizeLinear(x, s, z) c = Clip(q, low, high) d = DequantizeLinear(c, s, z)"
        "i = QuantizeLinear<axis = 0>(w, ws, wz) j = Clip(i, low, high)"
        "v = DequantizeLinear<axis = 0>(j, ws, wz) y = Conv(d, v)"
    ),
    "int8": PAIR.format("z") + CONV,
    "Cast to int8 between Q and DQ": "q = QuantizeLinear(x, s, z) c = Cast<to = 3>(q)"
    "d = DequantizeLinear(c, s, z) " + CONV,
    "Transpose between Q and DQ": "q = QuantizeLinear(x, s, z)"
    "c = Transpose<perm = [0, 1, 3, 2]>(q) d = DequantizeLinear(c, s, z) " + CONV,
    "weights per channel": PAIR.format("z")
    + "v = DequantizeLinear<axis = 0>(wq, ws, wz) y = Conv(d, v)",
    "float weights behind Q": PAIR.format("z")
    + "i = QuantizeLinear<axis = 0>(w, ws, wz) v = DequantizeLinear<axis = 0>(i, ws, wz)"
    "y = Conv(d, v)",
    "two pairs in a row on a weight": PAIR.format("z")  # ONNX Runtime QNN issue 815.
    + "o = DequantizeLinear<axis = 0>(wq, ws, wz) i = QuantizeLinear<axis = 0>(o, ws, wz)"
    "v = DequantizeLinear<axis = 0>(i, ws, wz) y = Conv(d, v)",
    "weights of a depthwise ConvTranspose per channel": PAIR.format("z")
    + "i = QuantizeLinear<axis = 0>(single, ws, wz)"
    "v = DequantizeLinear<axis = 0>(i, ws, wz) y = ConvTranspose<group = 4>(d, v)",
    "pairs in a branch": BRANCHES.format(
        PAIR.format("z"), "v = DequantizeLinear<axis = 0>(wq, ws, wz) a = Conv(d, v)"
    ),
    "a zero point of a branch's own": BRANCHES.format(
        "o = Constant<value = int8 {0}>()",
        "q = QuantizeLinear(x, s, o) d = DequantizeLinear(q, s, o) a = Conv(d, w)",
    ),
    "a shared Q": PAIR.format("z") + "e = DequantizeLinear(q, s, z) c = Conv(d, w) y = Add(c, e)",
}


def text_of(body: str, constants: str = "") -> str:
    given = f"{CONSTANTS}, {constants}" if constants else CONSTANTS
    head = f'<ir_version: 8, opset_import: ["": 17, {DOMAINS}]>'
    return f"{head} g (float[1,4,8,8] x) => (float[1,4,8,8] y) <{given}> {{ {body} }}"


def findings_of(path: Path) -> tuple[Finding, ...]:
    return check_pairs(load_quantized(path), path.parent, path)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_and_why(save: Save, name: str):
    body, constants, expected = REFUSED[name]
    refused = [f for f in findings_of(save(text_of(body, constants))) if f.verdict == "refused"]
    assert (refused[0].node, refused[0].reason) == expected
    assert refused[0].fix


@pytest.mark.parametrize("name", REFUSED)
def test_the_builder_refuses_it_too(builder: Any, name: str):
    body, constants, _ = REFUSED[name]
    assert not check_model(builder, parse_model(text_of(body, constants)), "sm89").accepted


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("int32 that the network itself rounds", "quantize to int8"),
        (
            "stored weights that are cast and scaled",
            "put a DequantizeLinear in the place of this node and of the Mul",
        ),
    ],
)
def test_the_fix_is_that_of_what_reads_the_values(save: Save, name: str, fix: str):
    body, constants, _ = REFUSED[name]
    refused = [f for f in findings_of(save(text_of(body, constants))) if f.verdict == "refused"]
    assert refused[0].fix == fix


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken(save: Save, name: str):
    assert findings_of(save(text_of(TAKEN[name]))) == ()


@pytest.mark.parametrize("name", TAKEN)
def test_the_builder_takes_it_too(builder: Any, name: str):
    assert check_model(builder, parse_model(text_of(TAKEN[name])), "sm89").refusals == ()


def test_pairs_in_functions_are_found_at_each_call(save: Save):
    body = "[c1] a = loc.pair(x) [c2] d = loc.pair(a) " + CONV
    text = text_of(body).replace('"": 17', '"": 17, "loc": 1')
    called = f"""{text} <domain: "loc", opset_import: ["": 17]> pair (x) => (d) {{
      s = Constant<value = float {{0.05}}>() u3 = Constant<value = uint8 {{3}}>()
      {PAIR.format("u3")}
    }}"""
    found = findings_of(save(called))
    assert [finding.reason.split(",")[0] for finding in found] == ["its zero point is 3"] * 2
    assert len({finding.node for finding in found}) == 2


def test_a_fault_of_a_pair_is_said_once(save: Save):
    found = findings_of(save(text_of(PAIR.format("z3") + CONV, "int8 z3 = {3}")))
    assert [str(finding) for finding in found] == [
        "node 'q' (QuantizeLinear) on 'x': its zero point is 3, but TensorRT takes symmetric "
        "quantization only; quantize symmetrically"
    ]


@pytest.mark.parametrize("name", ["[quantize]", ""])
def test_names_that_pairs_repeat(save: Save, builder: Any, name: str):
    """As in a function that an exporter calls for each pair."""
    head, _, body = text_of("a = loc.pair(x) d = loc.pair(a) " + CONV).partition("g (")
    function = f"""
      <domain: "loc", opset_import: ["": 17]> pair (x) => (d) {{
        s = Constant<value = float {{0.05}}>() z = Constant<value = int8 {{0}}>()
        {name} q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
      }}"""
    text = head.replace('"": 17', '"": 17, "loc": 1') + "g (" + body + function
    first, *_ = placer.check(save(text), static=True).findings
    assert (first.node, first.verdict) == (name.strip("[]") or "node_of_q", "refused")
    assert first.imported
    assert first.reason == "2 nodes of pairs have its name, of which TensorRT takes one"
    assert not check_model(builder, parse_model(text), "sm89").accepted
    once = parse_model(text.replace("d = loc.pair(a)", "d = Identity(a)"))
    assert check_model(builder, once, "sm89").accepted


def test_overloads_of_a_function_have_pairs_of_their_own(save: Save):
    text = text_of("a = loc.pair:first(x) d = loc.pair:second(a) " + CONV)
    text = text.replace('"": 17', '"": 17, "loc": 1').replace("ir_version: 8", "ir_version: 10")
    for one in ("first", "second"):
        text += f"""
          <domain: "loc", overload: "{one}", opset_import: ["": 17]> pair (x) => (d) {{
            s = Constant<value = float {{0.05}}>() z = Constant<value = int8 {{0}}>()
            [{one}_q] q = QuantizeLinear(x, s, z) [{one}_dq] d = DequantizeLinear(q, s, z)
          }}"""
    assert placer.check(save(text), static=True).findings == ()


def test_halves_of_unequal_scales_are_named(save: Save):
    """NVIDIA's builder takes them, and what is read is twice what was written."""
    body = PAIR.format("z").replace("DequantizeLinear(q, s,", "DequantizeLinear(q, s2,") + CONV
    (finding,) = findings_of(save(text_of(body, "float s2 = {0.1}")))
    assert (finding.node, finding.verdict) == ("dq", "undocumented")
    assert finding.reason.endswith("of its QuantizeLinear 'q' 0.05, which multiplies by 2")


def test_a_half_without_a_valid_scale_is_named_for_that_alone(save: Save):
    body = PAIR.format("z").replace("DequantizeLinear(q, s,", "DequantizeLinear(q, s2,") + CONV
    (finding,) = findings_of(save(text_of(body, "float s2 = {nan}")))
    assert finding.reason == "its scale is nan, but TensorRT takes positive ones only"


def test_a_dead_channels_scale_is_named(save: Save):
    body, constants, _ = REFUSED["a scale of zero of a dead channel"]
    (finding,) = findings_of(save(text_of(body, constants)))
    assert finding.fix == "give channel 1 of the constant any positive scale"


def without_data(path: Path) -> Path:
    """The model at ``path`` with its data in another file, which is not there."""
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:  # Raw data alone are written to another file.
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    onnx.save(proto, path, save_as_external_data=True, location="data.bin", size_threshold=0)
    path.with_name("data.bin").unlink()
    return path


def test_a_scale_whose_file_is_missing_is_told_of_the_model(save: Save):
    path = without_data(save(text_of(PAIR.format("z") + CONV)))
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: external data file data.bin"):
        findings_of(path)


def test_a_weight_whose_file_is_missing_is_told_before_anything_is_built(save: Save):
    """The builder says of it that it "failed to import initializer" of "node -1"."""
    path = without_data(save(text_of("[conv] y = Conv(x, w)")))
    assert placer.check(path, static=True).is_float
    with pytest.raises(InputError, match=r"data\.bin of initializer 'w' is missing"):
        placer.check(path)


def test_the_axis_that_fits_is_named(save: Save):
    """ONNX Runtime issue 17718: DequantizeLinear's default axis is 1, a Conv's channels are 0."""
    body = "[v] v = DequantizeLinear(wq, s8, z8) [conv] y = Conv(x, v)"
    weight = f"int8[8,4,1,1] wq = {{{', '.join(['1'] * 32)}}}"
    eight = ", ".join(["1"] * 8)
    constants = f"float[8] s8 = {{{eight}}}, int8[8] z8 = {{{eight.replace('1', '0')}}}"
    text = text_of(body, constants).replace(f"int8[4,4,1,1] wq = {{{ONES}}}", weight)
    (finding,) = findings_of(save(text.replace("=> (float[1,4,8,8] y)", "=> (float[1,8,8,8] y)")))
    assert (finding.reason, finding.fix) == (
        "it has 8 scales for 4 channels of axis 1",
        "set its attribute axis to 0",
    )


@pytest.mark.parametrize(("axis", "is_said"), [(1, True), (-3, True), (0, False)])
def test_tensorrt_8_wants_scales_of_a_transposed_conv_elsewhere(
    save: Save, axis: int, is_said: bool
):
    """TensorRT issue 2380; later versions take them along the output channels."""
    body = (
        f"[i] i = QuantizeLinear<axis = {axis}>(w, ws, wz)"
        f"[v] v = DequantizeLinear<axis = {axis}>(i, ws, wz)"
        "[up] y = ConvTranspose(x, v)"
    )
    said = placer.check(save(text_of(body)), static=True).older
    assert ("TensorRT 8" in said and "'up'" in said) == is_said


@pytest.mark.parametrize(
    ("channels", "groups", "said"),
    [
        (6, 6, "TensorRT before 8.5 may have no INT8 kernel for 'grouped': a depthwise Conv"),
        (12, 6, "TensorRT 8 may have no INT8 kernel for 'grouped': a Conv with groups"),
        (8, 8, ""),
        (8, 2, ""),
    ],
)
def test_tensorrt_8_may_lack_kernels_for_small_groups(
    save: Save, channels: int, groups: int, said: str
):
    """TensorRT issues 1556 (8.5 builds depthwise ones of any number) and 1934 (groups of two)."""
    ones = ", ".join(["1"] * (channels * channels // groups))
    text = f"""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,{channels},8,8] x) => (float[1,{channels},8,8] y)
    <int8[{channels},{channels // groups},1,1] w = {{{ones}}}, float s = {{0.5}}, int8 z = {{0}}> {{
      {PAIR.format("z")} v = DequantizeLinear(w, s, z) [grouped] y = Conv<group = {groups}>(d, v)
    }}"""
    older = placer.check(save(text), static=True).older
    assert older.startswith(said)
    assert bool(older) == bool(said)


@pytest.mark.parametrize("stored", ["", "c = Constant<value = int8 {0}>() "])
def test_tensorrt_8_refuses_identities_of_integers(save: Save, stored: str):
    """TensorRT issue 2163: pytorch-quantization's export shares zero points in this way."""
    body = f"{stored}[shared] i = Identity({'c' if stored else 'z'}) {PAIR.format('i')}{CONV}"
    report = placer.check(save(text_of(body)), static=True)
    assert report.findings == ()
    assert "TensorRT 8.4 refuses 'shared': Identities of 8-bit constants" in report.older


@pytest.mark.parametrize("shown", [True, False])
def test_a_quantized_weight_that_is_an_output_is_named(save: Save, builder: Any, shown: bool):
    """TensorRT issue 1864; the builder has a layer without inputs that makes the weight."""
    other = "float[4,4,1,1] v" if shown else "float[1,4,8,8] d"
    path = save(f"""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y, {other})
    <float[4,4,1,1] w = {{0.5}}, float s = {{0.05}}, int8 z = {{0}}> {{
      {PAIR.format("z")}
      i = QuantizeLinear(w, s, z) v = DequantizeLinear(i, s, z) [conv] y = Conv(d, v)
    }}""")
    said = placer.check(path, static=True).older
    assert said.startswith("The quantized weights of 'conv' are graph outputs") == shown
    built = check_model(builder, onnx.load(path), "sm89").plan
    assert any(not layer.inputs for layer in built.of_kind("compute", "quantize")) == shown


def test_weights_that_a_plugin_makes_of_nothing_have_scales_along_an_axis_too(save: Save):
    body = "i = aimet.customop.cpu.Stored() v = DequantizeLinear(i, ws, wz)"
    said = placer.check(save(text_of(f"{body} [up] y = ConvTranspose(x, v)")), static=True).older
    assert "TensorRT 8" in said and "'up'" in said


def test_scales_of_half_precision_are_of_opset_19(save: Save):
    body = "d = QuantizeLinear(x, h, z) y = DequantizeLinear(d, h, z)"
    text = text_of(body, "float16 h = {14336}").replace("float[1,4,8,8]", "float16[1,4,8,8]")
    path = save(text.replace('"": 17', '"": 19'))
    assert findings_of(path) == ()
    proto = onnx.load(path)
    proto.opset_import[0].version = 17
    onnx.save(proto, path)
    (finding,) = findings_of(path)
    assert finding.verdict == "undocumented"
    assert finding.reason == "it has a scale of float16, which ONNX has from opset 19 on"


@pytest.mark.parametrize(
    ("op", "dims"), [("Conv", "8,8,1,1"), ("MatMul", "8,8")], ids=["Conv", "MatMul"]
)
def test_a_weight_of_another_type_than_the_input_is_refused(
    save: Save, builder: Any, op: str, dims: str
):
    """Model-Optimizer pull request 2314: scales of weights stayed float16 in a bfloat16 network."""
    ones = ", ".join(["1"] * 64)
    path = save(f"""
    <ir_version: 8, opset_import: ["": 21]>
    g (float[1,8,8,8] x) => (float[1,8,8,8] y)
    <int8[{dims}] w = {{{ones}}}, float s = {{0.5}}, float h = {{0.5}}, int8 z = {{0}}> {{
      {PAIR.format("z")} [v] v = DequantizeLinear(w, h, z) [product] y = {op}(d, v)
    }}""")
    assert findings_of(path) == ()
    proto = onnx.load(path)
    (scale,) = (t for t in proto.graph.initializer if t.name == "h")
    scale.CopyFrom(numpy_helper.from_array(np.array(0.5, np.float16), "h"))
    onnx.save(proto, path)
    (finding,) = findings_of(path)
    assert (finding.node, finding.verdict) == ("v", "refused")
    assert finding.reason == (
        f"it writes float16, as its scale is, and {op} 'product' multiplies that by float32"
    )
    assert finding.fix == "give its scale the type float32"
    assert not check_model(builder, proto, "sm89").accepted


def test_a_bias_of_another_type_than_the_input_is_refused(save: Save, builder: Any):
    body = f"{PAIR.format('z')} v = DequantizeLinear(w, s, z) [product] y = Conv(d, v, b)"
    ones = ", ".join(["1"] * 64)
    path = save(f"""
    <ir_version: 8, opset_import: ["": 21]>
    g (float[1,8,8,8] x) => (float[1,8,8,8] y)
    <int8[8,8,1,1] w = {{{ones}}}, float[8] b = {{1}}, float s = {{0.5}}, int8 z = {{0}}> {{
      {body}
    }}""")
    proto = onnx.load(path)
    (bias,) = (t for t in proto.graph.initializer if t.name == "b")
    bias.CopyFrom(numpy_helper.from_array(np.ones(8, np.float16), "b"))
    onnx.save(proto, path)
    (finding,) = findings_of(path)
    assert finding.reason == (
        "it writes float32, as its scale is, and Conv 'product' adds that to float16"
    )
    assert finding.fix == "give the bias 'b' the type float32"
    assert not check_model(builder, proto, "sm89").accepted


@pytest.mark.parametrize("size", [-1, 0])
def test_exporters_write_open_dimensions_as_numbers_too(save: Save, size: int):
    body = "q = QuantizeLinear<axis = 1>(x, ws, wz) d = DequantizeLinear<axis = 1>(q, ws, wz)"
    path = save(text_of(body + CONV))
    proto = onnx.load(path)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = size
    onnx.save(proto, path)
    assert {finding.verdict for finding in findings_of(path)} == {"undocumented"}


def test_a_scale_without_end_makes_no_numbers(save: Save):
    path = save(text_of(PAIR.format("z") + CONV))
    proto = onnx.load(path)
    (scale,) = (t for t in proto.graph.initializer if t.name == "s")
    scale.CopyFrom(numpy_helper.from_array(np.array(np.inf, np.float32), "s"))
    onnx.save(proto, path)
    (finding,) = findings_of(path)
    assert (finding.verdict, finding.node) == ("altered", "q")
    assert finding.reason == "its scale is infinite, which makes NaN of every value"


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


def test_a_bias_of_16_bits_is_to_stay_float(builder: Any):
    # Brevitas issue 515.
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]> g (float[1,2,8,8] x) => (float[1,2,8,8] y)
          <float[2,2,1,1] w = {1, 2, 3, 4}, float[2] b = {1, 2}, float s = {0.01},
           int16 z = {0}> {
          [q] i = QuantizeLinear(b, s, z)
          d = DequantizeLinear(i, s, z)
          y = Conv(x, w, d)
        }""")
    assert not check_model(builder, proto, "sm89").accepted
    (finding,) = check_pairs(proto, Path(), Path("model.onnx"))
    assert (finding.node, finding.fix) == ("q", "keep the bias float")


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


def nvfp4() -> onnx.ModelProto:
    """A product as Model-Optimizer exports it (its issue 160): the operator is TensorRT's own."""
    proto = onnx.parser.parse_model("""
        <ir_version: 11, opset_import: ["": 23, "trt": 1]>
        g (float[16,64] x) => (float[16,32] y) <float s = {0.01}> {
          q, f = trt.TRT_FP4DynamicQuantize<axis = -1, block_size = 16, scale_type = 17>(x, s)
          t = DequantizeLinear(f, s)
          d = DequantizeLinear<axis = 1, block_size = 16>(q, t)
          u = DequantizeLinear(e, s)
          v = DequantizeLinear<axis = 0, block_size = 16>(w, u)
          y = MatMul(d, v)
        }""")
    proto.graph.initializer.extend(
        [
            onnx.helper.make_tensor("w", TensorProto.FLOAT4E2M1, [64, 32], [1] * 64 * 32),
            onnx.helper.make_tensor("e", TensorProto.FLOAT8E4M3FN, [4, 32], [1.0] * 4 * 32),
        ]
    )
    return proto


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


def test_plugins_may_read_quantized_constants(save: Save):
    """TensorRT issue 3919; whether there is such a plugin is for the builder to say."""
    path = save(text_of("[plugin] y = qonnx.custom_op.general.VectorQuantizer(x, wq)"))
    assert findings_of(path) == ()


# The command.


@pytest.mark.parametrize("names", ["[q] [dq] [v] [conv]", "", "[node_of_d] [a] [b] [node_of_y]"])
def test_a_built_plan_names_no_pairs_and_all_else_as_the_file_does(
    save: Save, builder: Any, names: str
):
    """The builder calls nodes without a name after what they write."""
    del builder
    body = (
        "{} q = QuantizeLinear(x, s, z) {} d = DequantizeLinear(q, s, z)"
        "{} v = DequantizeLinear<axis = 0>(wq, ws, wz) {} y = Conv(d, v)"
    )
    path = save(text_of(body.format(*(names.split() or [""] * 4))))
    conv = {"": "Conv_3"}.get(names, names.rpartition("[")[2].rstrip("]"))
    plan = placer.check(path).plan
    assert plan.layers[0].kind == "quantize"
    assert {node for layer in plan.layers for node in layer.nodes} == {conv}
    assert conv in {n for x in placer.explain(path).explanation.plan.layers for n in x.nodes}


def test_check_names_the_pairs_before_it_builds(
    save: Save, builder: Any, placer: Callable[..., Finished]
):
    del builder
    body, constants, _ = REFUSED["int32 bias"]
    path = save(text_of(body, constants))
    finished = placer("check", path)
    assert finished.code == 1
    assert "refused: node 'b' (DequantizeLinear) on 'bq': it reads int32" in finished.out
    assert "refuses" in finished.err
    document = json.loads(placer("check", path, "--json").out)
    assert [pair["verdict"] for pair in document["pairs"]] == ["refused"]


@pytest.mark.parametrize(
    ("name", "told", "code"),
    [
        ("int32 bias", f"{BOTH} take all of these out of the file", 0),
        # Its range is lost, and optimize calibrates it.
        ("a negative scale", f"{BOTH} take all of these out of the file", 0),
        # Integers along an axis that does not fit stand for nothing.
        ("scales along another axis", f"{BOTH} refuse the file: ", 2),
        # So does a scale that is NaN after calibration (TensorRT issue 2628).
        ("a scale that is not finite", f"{BOTH} refuse the file: ", 2),
        (
            "a table of int8 that is read at run time",
            "placer import refuses the file, which has no pairs; placer optimize takes it as it is",
            2,
        ),
    ],
)
def test_check_promises_what_import_does(
    save: Save, placer: Callable[..., Finished], name: str, told: str, code: int
):
    body, constants, _ = REFUSED[name]
    path = save(text_of(body, constants))
    assert told in placer("check", path, "--static").out
    assert placer("import", path, "-o", path.with_suffix(".float.onnx")).code == code


def test_check_static_needs_no_builder(save: Save, placer: Callable[..., Finished]):
    body, constants, _ = REFUSED["int32 bias"]
    path = save(text_of(body, constants))
    refused = placer("check", path, "--static")
    assert refused.code == 1
    assert f"TensorRT refuses {path}: node 'b' (DequantizeLinear)" in refused.err
    taken = placer("check", save(text_of(TAKEN["int8"])), "--static")
    assert (taken.code, "TensorRT takes every Q/DQ pair" in taken.out) == (0, True)
    bare = placer("check", DIGITS / "digits.onnx", "--static")
    assert (bare.code, "digits.onnx has no Q/DQ pair" in bare.out) == (0, True)
    float_model = placer("check", DIGITS / "digits.onnx", "--static", "--json")
    assert (float_model.code, json.loads(float_model.out)) == (
        0,
        {"placed_for": None, "not_imported": None, "pairs": [], "older": None},
    )


def test_check_says_first_which_engine_placer_placed_the_pairs_for(
    save: Save, placer: Callable[..., Finished]
):
    path = save(text_of(TAKEN["int8"]))
    for pack, told in [
        ("openvino 0.23.0", f"{path} was placed for OpenVINO, not for TensorRT; "),
        ("tensorrt-rtx 0.9.0", f"TensorRT takes every Q/DQ pair of {path}"),
        ("of-a-colleague 1.0.0", f"TensorRT takes every Q/DQ pair of {path}"),
    ]:
        proto = onnx.load(path)
        name_origin(proto, "p", pack, calibrated=True)
        onnx.save(proto, path)
        assert placer("check", path, "--static").out.startswith(told)
    spaced = path.with_name("of openvino.onnx")
    name_origin(proto, "p", "openvino 0.23.0", calibrated=True)
    onnx.save(proto, spaced)
    told = placer("check", spaced, "--static").out.splitlines()[0]
    assert told.endswith(f"anew: placer optimize '{spaced}' --engine tensorrt")
    # The metadata of a float model that optimize kept name a pack, too.
    proto = onnx.load(DIGITS / "digits.onnx")
    name_origin(proto, "p", "openvino 0.23.0", calibrated=True)
    onnx.save(proto, path)
    assert json.loads(placer("check", path, "--static", "--json").out)["placed_for"] is None


def test_check_prints_a_line_for_each_fix_and_what_most_nodes_need_first(
    placer: Callable[..., Finished],
):
    path = ARTEFACTS / "torch_eager.onnx"
    lines = placer("check", path, "--static").out.splitlines()
    assert [line.partition(":")[0] for line in lines[:4]] == ["refused"] * 3 + ["altered"]
    assert [line.partition("; ")[2] for line in lines[:3]] == [
        "remove the Cast and retype the zero points (and 7 more nodes)",
        "quantize symmetrically (and 5 more nodes)",
        "keep the bias float (and 2 more nodes)",
    ]
    assert lines[4] == "--json lists every node"
    pairs = json.loads(placer("check", path, "--static", "--json").out)["pairs"]
    assert len([pair for pair in pairs if pair["op"] == "Cast"]) == 8


def test_several_scales_before_opset_13_lie_along_axis_0(save: Save, builder: Any):
    """TensorRT issue 1406: a Conv of pytorch-quantization, exported with opset 10."""
    body = (
        "[q] q = QuantizeLinear(x, s, z) [dq] d = DequantizeLinear(q, s, z)"
        "[i] i = QuantizeLinear(w8, s8, z8) [v] v = DequantizeLinear(i, s8, z8)"
        "[conv] y = Conv(d, v)"
    )
    eight = ", ".join(["1"] * 8)
    constants = (
        f"float[8,4,1,1] w8 = {{{', '.join(['0.5'] * 32)}}}, float[8] s8 = {{{eight}}}, "
        f"int8[8] z8 = {{{eight.replace('1', '0')}}}"
    )
    text = text_of(body, constants).replace('"": 17', '"": 10')
    path = save(text.replace("=> (float[1,4,8,8] y)", "=> (float[1,8,8,8] y)"))
    (finding,) = findings_of(path)
    assert (finding.verdict, finding.node, finding.fix) == (
        "undocumented",
        "i",
        "export the model with opset 13 or later",
    )
    assert check_model(builder, onnx.load(path), "sm89").accepted
    assert load_quantized(path).graph.node[2].attribute[0].i == 0
