"""ONNX Runtime as an engine: on its CPU provider, or on another one in a worker process."""

from placer.engines.onnxruntime.engine import OnnxRuntimeEngine, OnnxRuntimeModel

__all__ = ["OnnxRuntimeEngine", "OnnxRuntimeModel"]
