"""NVIDIA's builder on a machine without a GPU: does it take a model, and which layers result.

TensorRT-RTX (extra ``rtx``) has the TensorRT 11 Python API and builds for a GPU that is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from placer.engines.tensorrt.build import BuildReport, BuildSettings, build
from placer.engines.tensorrt.library import Library, load_library
from placer.graph.shapes import ShapeRange


def import_builder() -> Library:
    """Return TensorRT-RTX; RunError says how to install it."""
    return load_library("tensorrt-rtx")


def check_file(
    library: Library, path: Path, gpu: str, shapes: Mapping[str, ShapeRange] | None = None
) -> BuildReport:
    """Parse and build the ONNX file at ``path`` for ``gpu``, e.g. ``sm89``.

    ``shapes`` gives dynamic inputs; unknown dimensions are 1. Raises InputError for an unknown GPU
    or input; what the builder refuses is in the report.
    """
    return build(library, path, BuildSettings(shapes=shapes or {}, gpu=gpu))


def check_model(library: Library, model: onnx.ModelProto, gpu: str) -> BuildReport:
    """The same for a model in memory without external data."""
    return build(library, model.SerializeToString(), BuildSettings(gpu=gpu))
