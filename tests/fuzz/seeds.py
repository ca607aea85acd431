"""Small valid inputs that the mutators start from."""

from __future__ import annotations

import onnx.parser
from onnx import ModelProto

_HEAD = '<ir_version: 9, opset_import: ["": 17, "f": 1]>'

_GRAPHS = {
    "residual": """
net (float[1,4,6,6] x) => (float[1,4,6,6] y, float[1,4,1,1] side)
<float[4,4,3,3] w = {0.1}, float[4] b = {0.5}, float[4,4,1,1] v = {0.2}> {
  [c1] a = Conv<pads = [1, 1, 1, 1]>(x, w, b)
  [r1] r = Relu(a)
  [c2] d = Conv(r, v)
  [add] s = Add(d, x)
  [r2] y = Relu(s)
  [gap] side = GlobalAveragePool(y)
}""",
    "dense": """
net (float[N,8] x) => (float[N,4] y)
<float[8,4] w = {0.3}, float[4] b = {0.1}, float[4,4] v = {0.25}, int64[2] shape = {-1, 4}> {
  [mm] a = MatMul(x, w)
  [add] c = Add(a, b)
  [relu] d = Relu(c)
  [gemm] e = Gemm<transB = 1>(d, v, b)
  [shape] f = Reshape(e, shape)
  [soft] y = Softmax<axis = -1>(f)
}""",
    "pairs": """
net (float[1,4] x) => (float[1,4] y)
<float s = {0.1}, int8 z = {0}, int8[4,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8},
 float[4] ws = {0.1, 0.2, 0.3, 0.4}, int8[4] wz = {0, 0, 0, 0}> {
  [q] xq = QuantizeLinear(x, s, z)
  [dq] xd = DequantizeLinear(xq, s, z)
  [dqw] wd = DequantizeLinear<axis = 1>(w, ws, wz)
  [mm] m = MatMul(xd, wd)
  [relu] r = Relu(m)
  [q2] rq = QuantizeLinear(r, s, z)
  [dq2] y = DequantizeLinear(rq, s, z)
}""",
    "qoperator": """
net (float[1,2,4,4] x) => (float[1,2,4,4] y)
<float s = {0.1}, uint8 z = {3}, int8[2,2,1,1] w = {1, 2, 3, 4}, float ws = {0.1}, int8 wz = {0}> {
  [q] xq = QuantizeLinear(x, s, z)
  [conv] a = QLinearConv(xq, s, z, w, ws, wz, s, z)
  [dq] y = DequantizeLinear(a, s, z)
}""",
    "dynamic": """
net (float[1,4] x) => (float[1,2] y)
<int8[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}, int8 wz = {0}, float ws = {0.1}> {
  [dql] xq, xs, xz = DynamicQuantizeLinear(x)
  [mmi] a = MatMulInteger(xq, w, xz, wz)
  [cast] b = Cast<to = 1>(a)
  [mul] c = Mul(xs, ws)
  [out] y = Mul(b, c)
}""",
    "branches": """
net (float[2,3] x, bool c) => (float[2,3] y) <float[3,3] w = {0.4}, int64 n = {3}, bool t = {1}> {
  [abs] a = Abs(x)
  [if] b = If (c) <
    then_branch = yes () => (float[2,3] p) { p = MatMul(a, w) },
    else_branch = no () => (float[2,3] q) { q = Neg(x) }
  >
  [loop] y = Loop (n, t, b) <body = next (int64 i, bool go, float[2,3] k) =>
    (bool on, float[2,3] l) {
    on = Identity(go)
    l = Add(k, a)
  }>
}""",
    "attention": """
net (float[1,4,8] x) => (float[1,4,8] y)
<float[8,8] w = {0.1}, float[8] g = {1}, float[8] b = {0.1}> {
  [ln] n = LayerNormalization(x, g, b)
  [q] q = MatMul(n, w)
  [k] k = MatMul(n, w)
  [t] kt = Transpose<perm = [0, 2, 1]>(k)
  [qk] s = MatMul(q, kt)
  [soft] p = Softmax(s)
  [pv] o = MatMul(p, n)
  [res] y = Add(o, x)
}""",
    "vision": """
net (float[1,2,8,8] x) => (float[1,5,8,8] y)
<float[2,1,3,3] w = {0.1}, float[2,2,2,2] u = {0.2}, float[4] scales = {1, 1, 2, 2},
 float[2] o = {1}, int64[2] parts = {1, 1}> {
  [dw] a = Conv<group = 2, pads = [1, 1, 1, 1]>(x, w)
  [bn] b = BatchNormalization(a, o, o, o, o)
  [pool] c = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(b)
  [up] d = Resize<mode = "nearest">(c, , scales)
  [ct] e = ConvTranspose<strides = [2, 2]>(c, u)
  [split] f, h = Split<axis = 1>(e, parts)
  [cat] y = Concat<axis = 1>(d, f, x)
}""",
}

_FUNCTION = """
<opset_import: ["": 17], domain: "f">
scaled (p) => (r) { q = Relu(p) r = Sigmoid(q) }
"""


def models() -> dict[str, ModelProto]:
    """Valid models by name: float ones and quantized ones of all kinds that are imported."""
    found = {name: onnx.parser.parse_model(_HEAD + text) for name, text in _GRAPHS.items()}
    for proto in found.values():
        for tensor in proto.graph.initializer:
            if len(tensor.float_data) == 1:
                size = 1
                for dim in tensor.dims:
                    size *= dim
                values = [tensor.float_data[0] * (1 + 0.1 * (i % 7)) for i in range(size)]
                del tensor.float_data[:]
                tensor.float_data.extend(values)
    function = onnx.parser.parse_function(_FUNCTION)
    calling = ModelProto.FromString(found["dense"].SerializeToString())
    calling.functions.append(function)
    calling.graph.node[2].op_type, calling.graph.node[2].domain = "scaled", "f"
    return {**found, "function": calling}


PACK = {
    "pack.yaml": """\
name: mine
version: 1.0.0
engine: tensorrt
engine_versions: ">=1"
scheme: {activation: int8, symmetric: true, weight: int8, per_channel: true, bias: float}
licence: MIT
maintainers: [me]
""",
    "matmul.yaml": """\
id: matmul
why: matrices are multiplied in integers when both of their inputs are
source: https://example.org/facts
pattern:
  mm: {op: MatMul, inputs: [x, w], output: y}
where: [{is_initializer: w}]
layouts:
  int8: {quantize: [mm.x, mm.w], default: true}
  float: {}
tests:
  - model: |
      <ir_version: 9, opset_import: ["": 17]>
      g (float[1,4] x) => (float[1,4] y) <float[4,4] w = {1}> { [m] y = MatMul(x, w) }
    matches: [{mm: m}]
    quantized:
      int8: ["x->m[0]", "w->m[1]"]
""",
    "conv.yaml": """\
id: conv
why: a convolution runs on integers when its input and its weight are quantized
source: https://example.org/facts
priority: 5
pattern:
  conv: {op: Conv, inputs: [x, w], output: y}
layouts:
  int8: {quantize: [conv.x, conv.w], default: true}
  float: {}
tests:
  - model: |
      <ir_version: 9, opset_import: ["": 17]>
      g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float[2,2,1,1] w = {1}> { [c] y = Conv(x, w) }
    matches: [{conv: c}]
    quantized:
      int8: ["x->c[0]", "w->c[1]"]
""",
}

MANIFEST = """\
defaults: {engine: fusion-model, gpu: a100, budget: 2, preset: quick, gates: ["sqnr>=10"]}
output: out
models:
  - {model: net.onnx, name: one, shapes: {x: [1, 8]}, priority: 2}
  - {model: net.onnx, name: two, data: data.npz}
"""

PLAN = """\
{"Layers": [
  {"Name": "conv", "LayerType": "CaskConvolution",
   "Inputs": [{"Name": "x", "Dimensions": [1, 4, 6, 6], "Format/Datatype": "Int8 NC/4HW4"}],
   "Outputs": [{"Name": "y", "Dimensions": [1, 4, 6, 6],
    "Format/Datatype": "Half linear row-major"}],
   "TacticName": "sm80_xmma", "Metadata": "[ONNX Layer: c1]\\u001e[ONNX Layer: r1]"},
  {"Name": "reformat", "LayerType": "Reformat", "Inputs": [{"Name": "y"}],
   "Outputs": [{"Name": "z"}]}
], "Bindings": ["x", "z"]}
"""

PLACEMENT = """\
format: placer-placement/1
id: 0123456789ab
model: sha256:00
pack: mine 1.0.0
calibrated: true
scheme: {activation: int8, symmetric: true, weight: int8, per_channel: true, bias: float}
groups:
- edges:
  - {tensor: x, node: mm, input: 0}
  range: [-1.5, 1.5]
- edges:
  - {tensor: w, node: mm, input: 1}
- edges:
  - {tensor: d, node: gemm, input: 0}
  range: [-2.0, 2.0]
structure: |
  ["x", "graph input", "", "87fff86d6d", [], ["x"]]
  ["mm", "MatMul", "4f53cda18c", "d0cfece6ee", ["x", "w"], ["a"]]
  ["relu", "Relu", "4f53cda18c", "efbcc8640c", ["c"], ["d"]]
  ["y", "graph output", "", "ccca7d3b98", ["y"], []]
"""
