"""placer: where Q/DQ pairs go in an ONNX model so that the engine is fast and accuracy holds."""

from importlib.metadata import version

__version__ = version("placer")
