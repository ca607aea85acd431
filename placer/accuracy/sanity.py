"""Whether an engine's outputs can be what the candidate computes at all.

Engines have built fused layers that gave garbage (TensorRT issue 4366), which no latency makes up
for. A gate judges accuracy; this judges whether there is anything to judge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

# Kernels round differently from ONNX Runtime's, and rounding at a quantizer's edge adds up over a
# deep network, but noise as large as the signal is no rounding.
MIN_SQNR_DB = 3.0
# Noise of more than 1% of the signal's power in a float model is no rounding, either.
DOUBTFUL_SQNR_DB = 20.0


def invalid_output(
    outputs: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]
) -> str | None:
    """Why ``outputs`` cannot be right, in half a sentence, or None.

    ``reference`` are ONNX Runtime's outputs of the same candidate on the same inputs.
    """
    for name, expected in reference.items():
        output = outputs.get(name)
        if output is None or output.shape != expected.shape:
            shape = "missing" if output is None else f"of shape {output.shape}"
            return f"output '{name}' is {shape} instead of shape {expected.shape}"
        if not np.issubdtype(expected.dtype, np.floating):
            continue
        problem = _invalid(output.astype(np.float64), expected.astype(np.float64))
        if problem is not None:
            return f"output '{name}' {problem}"
    return None


def least_sqnr(
    outputs: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]
) -> tuple[float, str]:
    """The least SQNR of float ``outputs`` against ``reference``, in dB, and the output's name.

    That is infinity, without a name, where none is comparable.
    """
    found = [
        (_sqnr(outputs[name].astype(np.float64), expected.astype(np.float64)), name)
        for name, expected in reference.items()
        if np.issubdtype(expected.dtype, np.floating)
        and name in outputs
        and outputs[name].shape == expected.shape
    ]
    return min(found, default=(math.inf, ""))


def _sqnr(output: np.ndarray, expected: np.ndarray) -> float:
    """In dB; infinity where ``expected`` is zero or not finite."""
    power = float(np.mean(expected**2)) if expected.size else 0.0
    if not math.isfinite(power) or power == 0.0:
        return math.inf
    noise = float(np.mean((output - expected) ** 2))
    return math.inf if noise == 0 else 10 * math.log10(power / noise)


def _invalid(output: np.ndarray, expected: np.ndarray) -> str | None:
    if np.isfinite(expected).all() and not np.isfinite(output).all():
        return "holds NaN or infinity"
    sqnr = _sqnr(output, expected)
    if sqnr < math.inf and not output.any():
        return "is zero throughout"
    if sqnr < MIN_SQNR_DB:
        return f"differs grossly from ONNX Runtime's result of the same model ({sqnr:.1f} dB)"
    return None
