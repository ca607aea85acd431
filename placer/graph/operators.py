"""Operators and domains that many modules compare with, each named once."""

from __future__ import annotations

# ONNX's own operators; files call their domain either.
STANDARD_DOMAINS = ("", "ai.onnx")
# ONNX Runtime's contrib operators.
MICROSOFT = "com.microsoft"
PAIR_OPS = ("QuantizeLinear", "DequantizeLinear")
# These read the shape of a tensor and none of its values.
OF_SHAPES = ("Shape", "Size")
RECURRENT = ("GRU", "LSTM", "RNN")
