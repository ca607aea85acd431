"""Networks of well-known architectures, small and without weights in an archive of ONNX files.

Estimates of networks that are deployed are closer where such ones took part in a fit: layers stand
in them as often, and in such shapes, as nobody's random blocks have them. Weights are drawn anew,
since their values hardly matter to how long a layer takes. ``benchmarks/networks/architectures.py``
writes the archive.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from io import BytesIO
from zipfile import ZipFile

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

ARCHIVE = files("placer.fitting") / "architectures.zip"


@cache
def architecture_names() -> tuple[str, ...]:
    """Of all networks in the archive; those that are alike lie beside each other."""
    with ZipFile(BytesIO(ARCHIVE.read_bytes())) as archive:
        return tuple(archive.namelist())


def architecture(number: int) -> onnx.ModelProto:
    """The network of this number in the archive, with the same weights each time."""
    with ZipFile(BytesIO(ARCHIVE.read_bytes())) as archive:
        model = onnx.load_from_string(archive.read(architecture_names()[number]))
    rng = np.random.default_rng(number)
    for tensor in model.graph.initializer:
        if is_bare(tensor):
            tensor.CopyFrom(numpy_helper.from_array(_weights(tuple(tensor.dims), rng), tensor.name))
    return model


def is_bare(tensor: TensorProto) -> bool:
    """Whether ``tensor`` was kept without its values."""
    held = tensor.raw_data or tensor.float_data
    return tensor.data_type == TensorProto.FLOAT and math.prod(tensor.dims) > 0 and not held


def _weights(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Factors near 1 where there is one for each channel, else what keeps outputs as large.

    A matrix has what it sums over first, kernels have it behind their outputs (He et al. 2015).
    """
    if len(shape) < 2:
        return rng.uniform(0.8, 1.2, size=shape).astype(np.float32)
    summed = shape[-2] if len(shape) == 2 else math.prod(shape[1:])
    return rng.normal(0, math.sqrt(2 / summed), size=shape).astype(np.float32)
