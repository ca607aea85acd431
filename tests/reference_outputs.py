"""What ONNX Runtime computes of a model as it is, and how far other outputs are from that."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort


def outputs(proto: onnx.ModelProto, **inputs: np.ndarray) -> list[np.ndarray]:
    """What ONNX Runtime computes, without its own optimizations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(proto.SerializeToString(), options)
    found: list[np.ndarray] = session.run(None, inputs)
    return found


def sqnr(expected: np.ndarray, found: np.ndarray) -> float:
    """Signal to quantization noise ratio in dB; infinite where nothing differs.

    An expected output of zeros has no signal.
    """
    signal = np.square(expected.astype(np.float64)).sum()
    noise = np.square(expected.astype(np.float64) - found).sum()
    if not noise:
        return np.inf
    return float(10 * np.log10(signal / noise)) if signal else -np.inf
