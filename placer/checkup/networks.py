"""The networks of the suite: small, with random weights that a seed fixes, made when needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from placer.graph.text import parse_model

# Branches, a residual, pooling and a head: what most rules of the packs are about. The number of
# channels is a multiple of 32, which engines' integer kernels want.
_CONVOLUTIONS = """
<ir_version: 9, opset_import: ["": 17]>
convolutions (float[{batch},3,64,64] image) => (float[{batch},10] scores)
<float[32,3,3,3] w1 = {{1}}, float[32,32,3,3] w2 = {{1}}, float[32,32,3,3] w3 = {{1}},
 float[64,32,1,1] w4 = {{1}}, float[10,64] w5 = {{1}}> {{
  [stem] c1 = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(image, w1)
  [stem_relu] r1 = Relu(c1)
  [body1] c2 = Conv<pads = [1, 1, 1, 1]>(r1, w2)
  [body_relu] r2 = Relu(c2)
  [body2] c3 = Conv<pads = [1, 1, 1, 1]>(r2, w3)
  [add] a = Add(c3, r1)
  [add_relu] r3 = Relu(a)
  [pool] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r3)
  [widen] c4 = Conv(p, w4)
  [widen_relu] r4 = Relu(c4)
  [average] g = GlobalAveragePool(r4)
  [flat] f = Flatten(g)
  [head] scores = Gemm<transB = 1>(f, w5)
}}
"""
_ATTENTION = """
<ir_version: 9, opset_import: ["": 17]>
attention (float[1,64,64] tokens) => (float[1,64,64] mixed)
<float[64] gain = {1}, float[64,64] wq = {1}, float[64,64] wk = {1}, float[64,64] wv = {1},
 float[64,256] wu = {1}, float[256,64] wd = {1}> {
  [norm] n = LayerNormalization(tokens, gain)
  [query] q = MatMul(n, wq)
  [key] k = MatMul(n, wk)
  [value] v = MatMul(n, wv)
  [turn] t = Transpose<perm = [0, 2, 1]>(k)
  [score] s = MatMul(q, t)
  [weight] w = Softmax<axis = -1>(s)
  [mix] m = MatMul(w, v)
  [residual] r = Add(m, tokens)
  [up] u = MatMul(r, wu)
  [act] e = Relu(u)
  [down] d = MatMul(e, wd)
  [out] mixed = Add(d, r)
}
"""


def convolutions(folder: Path, batch: str = "1") -> Path:
    """Write a small residual network to ``folder``; ``batch`` may be the name of a dimension."""
    return _write(folder / f"convolutions-{batch}.onnx", _CONVOLUTIONS.format(batch=batch))


def attention(folder: Path) -> Path:
    """Write a transformer block with one head to ``folder``."""
    return _write(folder / "attention.onnx", _ATTENTION)


def _write(path: Path, text: str) -> Path:
    proto = parse_model(text)
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        if len(tensor.dims) > 1 and tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(_random(tensor, rng))
    onnx.save(proto, path)
    return path


def _random(tensor: onnx.TensorProto, rng: np.random.Generator) -> onnx.TensorProto:
    """He et al., 2015: activations neither grow nor vanish from layer to layer."""
    inputs = int(np.prod(tensor.dims[1:])) if len(tensor.dims) == 4 else max(tensor.dims)
    values = rng.normal(0, np.sqrt(2 / inputs), tuple(tensor.dims)).astype(np.float32)
    return numpy_helper.from_array(values, tensor.name)
