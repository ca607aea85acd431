"""Samples as ``quantize_static`` of ONNX Runtime asks for them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from onnxruntime.quantization import CalibrationDataReader

from placer.calibration.sample import Sample


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """The inputs of ``samples``, one after the other."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = iter(samples)

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next inputs; None at the end."""
        sample = next(self._samples, None)
        return None if sample is None else dict(sample.inputs)
