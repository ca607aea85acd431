"""Schemes and small models that pairs are put into, and what is read from the result."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnxruntime as ort
from onnx import ModelProto, numpy_helper

from placer.model import Model, load_model
from placer.quantization import Range, Scheme

Save = Callable[..., Path]

TENSORRT = Scheme(activation="int8", symmetric=True, bias="float")
ORT = Scheme(activation="uint8", symmetric=False, bias="int32")


def values(proto: ModelProto, name: str) -> np.ndarray:
    return numpy_helper.to_array(next(t for t in proto.graph.initializer if t.name == name))


def check(proto: ModelProto) -> None:
    onnx.checker.check_model(proto, full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    ort.InferenceSession(proto.SerializeToString(), options)


WEIGHTED = {
    "conv": ("float[1,4,6,6] x", "float[8,4,3,3] w", "Conv(x, w)", 0, 8),
    "depthwise": ("float[1,4,6,6] x", "float[4,1,3,3] w", "Conv<group = 4>(x, w)", 0, 4),
    "conv 1d": ("float[1,4,6] x", "float[8,4,3] w", "Conv(x, w)", 0, 8),
    "transpose": ("float[1,4,6,6] x", "float[4,3,2,2] w", "ConvTranspose(x, w)", 1, 3),
    "transpose in groups": (
        "float[1,4,6,6] x",
        "float[4,3,2,2] w",
        "ConvTranspose<group = 2>(x, w)",
        1,
        3,
    ),
    "gemm": ("float[2,5] x", "float[5,3] w", "Gemm(x, w)", 1, 3),
    "gemm transposed": ("float[2,5] x", "float[3,5] w", "Gemm<transB = 1>(x, w)", 0, 3),
    "matmul": ("float[2,5] x", "float[5,3] w", "MatMul(x, w)", 1, 3),
    "matmul in batches": ("float[2,4,5] x", "float[2,5,3] w", "MatMul(x, w)", 2, 3),
}


def weighted(save: Save, name: str) -> Model:
    x, w, call, _, _ = WEIGHTED[name]
    shape = {"conv": "1,8,4,4", "depthwise": "1,4,4,4", "conv 1d": "1,8,4", "transpose": "1,3,7,7"}
    shape |= {"transpose in groups": "1,6,7,7", "matmul in batches": "2,4,3"}
    y = f"float[{shape.get(name, '2,3')}] y"
    return load_model(
        save(
            f"""
            <ir_version: 9, opset_import: ["": 17]>
            g ({x}) => ({y}) <{w} = {{1}}> {{ [node] y = {call} }}
            """
        )
    )


BRANCHES = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4,6,6] x) => (float[1,8,6,6] y, float[1,4,6,6] r)
<float[4,4,1,1] w1 = {1}, float[4] b1 = {1, 2, 3, 4}, float[4,4,1,1] w2 = {1}> {
  [conv1] c = Conv(x, w1, b1)
  [relu] r = Relu(c)
  [conv2] d = Conv(r, w2)
  [add] s = Add(r, d)
  [concat] y = Concat<axis = 1>(r, s)
}
"""
RANGES = {
    "x": Range(-1, 3),
    "c": Range(-2, 2),
    "r": Range(0, 2),
    "d": Range(-4, 1),
    "s": Range(-3, 5),
    "y": Range(-3, 5),
}
