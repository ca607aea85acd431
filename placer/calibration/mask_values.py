"""Values that mask others, as attention's scores are: infinity below, or next to it."""

from __future__ import annotations

import math

import numpy as np

# Exporters mask scores with -1e4, -1e9, the lowest float or infinity; nothing else is as low.
_MASK = -1e3
# Scores may be scaled behind their mask, by the root of a head's width: this much is left of it.
_FAR = -50.0
# All that is not masked lies this much nearer to zero: four of 127 steps are left to it.
_GAP = 32


def may_mask(values: np.ndarray) -> bool:
    """Whether a product or sum with these constants may be a mask; NaN counts as one."""
    if values.dtype.kind != "f" or not values.size:
        return False
    return not (values.min() > _MASK and values.max() < -_MASK)


def fits_no_scale(values: np.ndarray) -> bool:
    """Whether the values are infinite, or very low ones beside others that round to zero."""
    if values.dtype.kind != "f" or not values.size:
        return False
    low, high = float(values.min()), float(values.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        return True
    return low <= _FAR and 0 < _near(values, low) < -low / _GAP


def is_mask(values: np.ndarray) -> bool:
    """Whether an input's values are very low ones beside others that are near zero, or none."""
    if values.dtype.kind != "f" or not values.size:
        return False
    low = float(values.min())
    return low <= _MASK and _near(values, low) < -low / _GAP


def _near(values: np.ndarray, low: float) -> float:
    """The largest magnitude of those that are not about as low as the lowest; 0 without any."""
    return float(np.abs(values[values > low / 2]).max(initial=0))
