"""Streaming statistics of one tensor: exact extremes and a histogram that merges exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

_HALF_BITS = 11
HALF = 1 << _HALF_BITS  # bins on either side of zero
BINS = 2 * HALF
# Tensors below 2^-32 are zero for any practical purpose; a floor keeps the scale finite.
_MIN_EXPONENT = -32


@dataclass(frozen=True, eq=False)
class Statistics:
    """What calibration remembers of a tensor.

    ``low``, ``high``: exact minimum and maximum. ``count``: number of values, ``zeros`` of which
    are exactly zero. ``histogram``: int64 counts, shape (BINS,), of the nonzero values; bin i holds
    the values of [(i - HALF) * width, (i - HALF + 1) * width). The bins cover [-R, R) with
    R = 2^exponent above every magnitude, so that a histogram of twice the range follows from this
    one without an error and the result does not depend on the order of samples.
    """

    low: float
    high: float
    count: int
    zeros: int
    exponent: int
    histogram: np.ndarray

    @staticmethod
    def of(values: np.ndarray) -> Statistics:
        """Statistics of float32 or float16 ``values`` of any shape.

        Raises ValueError if a value is NaN or Inf.
        """
        flat = np.asarray(values, dtype=np.float32).ravel()
        if flat.size == 0:
            return Statistics(0.0, 0.0, 0, 0, _MIN_EXPONENT, np.zeros(BINS, np.int64))
        low, high = float(flat.min()), float(flat.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError("values are not finite")
        amax = max(-low, high)
        # frexp: amax = m * 2^e with m < 1, so every value lies strictly below 2^e. Of zero it
        # gives e = 0, which would coarsen the histogram of small values merged later.
        exponent = max(math.frexp(amax)[1], _MIN_EXPONENT) if amax else _MIN_EXPONENT
        # Scaling by a power of two and floor are exact in float32, adding HALF there is not.
        scaled = flat * np.float32(2.0 ** (_HALF_BITS - exponent))
        index = np.floor(scaled, out=scaled).astype(np.intp)
        index += HALF
        histogram = np.bincount(index, minlength=BINS).astype(np.int64)
        zeros = flat.size - int(np.count_nonzero(flat))
        histogram[HALF] -= zeros
        return Statistics(low, high, flat.size, zeros, exponent, histogram)

    def merge(self, other: Statistics) -> Statistics:
        """Statistics of both sets of values together; commutative and associative."""
        if self.count == 0 or other.count == 0:
            return other if self.count == 0 else self
        exponent = max(self.exponent, other.exponent)
        return Statistics(
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            count=self.count + other.count,
            zeros=self.zeros + other.zeros,
            exponent=exponent,
            histogram=self._at(exponent) + other._at(exponent),
        )

    def _at(self, exponent: int) -> np.ndarray:
        """Histogram over [-2^exponent, 2^exponent), which holds the present range."""
        if exponent == self.exponent:
            return self.histogram
        shift = min(exponent - self.exponent, _HALF_BITS + 1)
        target = (np.arange(-HALF, HALF) >> shift) + HALF
        wider = np.zeros_like(self.histogram)
        np.add.at(wider, target, self.histogram)
        return wider

    @property
    def is_possible(self) -> bool:
        """Whether some values have these statistics: what is read from a file may be damaged."""
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            return False
        if self.histogram.shape != (BINS,) or not 0 <= self.zeros <= self.count:
            return False
        counted = int(self.histogram.sum()) == self.count - self.zeros
        return counted and bool((self.histogram >= 0).all()) and self.amax < 2.0**self.exponent

    @property
    def width(self) -> float:
        """Width of a bin."""
        return math.ldexp(1.0, self.exponent - _HALF_BITS)

    @property
    def amax(self) -> float:
        """Largest magnitude."""
        return max(-self.low, self.high)

    @property
    def positive(self) -> np.ndarray:
        """Counts of positive values by magnitude, shape (HALF,): bin i is [i, i + 1) * width."""
        return self.histogram[HALF:]

    @property
    def negative(self) -> np.ndarray:
        """Counts of negative values by magnitude, shape (HALF,): bin i is (i, i + 1] * width."""
        return self.histogram[HALF - 1 :: -1]
