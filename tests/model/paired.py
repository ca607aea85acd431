"""Small models with pairs that TensorRT refuses or takes, and what is found in them."""

from collections.abc import Callable
from pathlib import Path

import onnx.helper
import onnx.parser
from onnx import TensorProto

from placer.model import load_quantized
from placer.model.tensorrt_pairs import Finding, check_pairs

Save = Callable[..., Path]

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
    "negative scales of channels": (
        "[v] v = DequantizeLinear<axis = 0>(wq, ws0, wz) [conv] y = Conv(x, v)",
        "float[4] ws0 = {-1, 2, -3, 4}",
        ("v", "its scale is -3, but TensorRT takes positive ones only"),
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
