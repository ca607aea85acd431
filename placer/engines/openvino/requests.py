"""Requests of a compiled OpenVINO model: one at a time, or several in flight."""

from __future__ import annotations

from typing import Any

import numpy as np

from placer.engines.base import Tensors
from placer.engines.openvino.library import load_openvino
from placer.errors import RunError

ov = load_openvino()
# Inferences of a burst for each request in flight: the last ones of a burst run beside idle
# streams, which must not count for much.
_PER_REQUEST = 8


class Burst:
    """A number of inferences, so many at a time that all streams are busy.

    ``size``: inferences in a burst.
    """

    def __init__(self, compiled: Any, inputs: Tensors) -> None:
        """Raises RunError if OpenVINO makes no requests or refuses ``inputs``."""
        try:
            self._queue = ov.AsyncInferQueue(compiled)  # As many as OpenVINO calls optimal.
        except RuntimeError as error:
            raise RunError(f"OpenVINO makes no requests: {reason(error)}") from error
        for request in self._queue:
            set_inputs(request, inputs)
        self.size = _PER_REQUEST * len(self._queue)

    def run(self) -> None:
        """Make them all; raises RunError if OpenVINO fails."""
        try:
            for _ in range(self.size):
                self._queue.start_async()
            self._queue.wait_all()
        except RuntimeError as error:
            raise RunError(f"OpenVINO failed to run the model: {reason(error)}") from error


def set_inputs(request: Any, inputs: Tensors) -> None:
    """Give ``request`` its inputs; raises RunError if OpenVINO refuses one."""
    for name, values in inputs.items():
        try:  # Not ascontiguousarray, which gives a scalar a dimension.
            request.set_tensor(name, ov.Tensor(np.asarray(values, order="C")))
        except RuntimeError as error:
            raise RunError(f"OpenVINO refuses input '{name}': {reason(error)}") from error


def infer(request: Any) -> None:
    """Run ``request`` and wait for it; raises RunError if OpenVINO fails."""
    try:
        request.infer(share_outputs=True)
    except RuntimeError as error:
        raise RunError(f"OpenVINO failed to run the model: {reason(error)}") from error


def reason(error: Exception) -> str:
    """OpenVINO's message in one line, without the places in its sources."""
    lines = [line.strip() for line in str(error).splitlines()]
    sentences = [
        line for line in lines if line and not line.startswith(("Exception from", "Check '"))
    ]
    return " ".join(sentences or lines)
