"""Calibration tables of implicit quantization that lie beside a model."""

from __future__ import annotations

import re
from pathlib import Path

# How TensorRT begins a table, e.g. "TRT-8601-EntropyCalibration2".
_HEADER = re.compile(rb"TRT-\d+-\w*Calibration")
_READ = 64
# What ONNX Runtime's calibrator calls its own; the second is text, without a header.
_OF_ONNXRUNTIME = frozenset({"calibration.flatbuffers", "calibration.cache"})
_SUFFIXES = frozenset({"", ".cache", ".calib", ".table", ".txt", ".bin"})


def tables_beside(model: Path) -> tuple[str, ...]:
    """The names of calibration tables in the folder of ``model``, sorted.

    None of a folder that may be entered but not listed.
    """
    try:
        return tuple(sorted(one.name for one in model.parent.iterdir() if _is_table(one)))
    except OSError:
        return ()


def _is_table(path: Path) -> bool:
    if path.name in _OF_ONNXRUNTIME:
        return True
    if path.suffix not in _SUFFIXES or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return _HEADER.match(file.read(_READ)) is not None
    except OSError:  # Not to be read, so the engine does not either.
        return False
