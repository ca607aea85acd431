"""ONNX files as normalised float models: loaded, quantized ones taken apart, saved again."""

from placer.model.load import (
    Model,
    check_file,
    has_tensorrt_pairs,
    is_quantized_file,
    load_as_is,
    load_model,
    load_quantized,
    load_unquantized,
    model_fingerprint,
    quantizes_at_run_time,
)
from placer.model.save import save_model

__all__ = [
    "Model",
    "check_file",
    "has_tensorrt_pairs",
    "is_quantized_file",
    "load_as_is",
    "load_model",
    "load_quantized",
    "load_unquantized",
    "model_fingerprint",
    "quantizes_at_run_time",
    "save_model",
]
