"""Calibration methods: from the statistics of a tensor to the range that quantization keeps.

Every range holds zero, lies within the observed one widened to zero, and so stays one-sided for
tensors without negative (or without positive) values.
"""

from __future__ import annotations

import numpy as np

from placer.calibration.histogram import HALF, Statistics
from placer.common.names import unknown
from placer.errors import InputError
from placer.quantization import Range, Scheme

METHODS = ("minmax", "percentile", "entropy", "mse")
PERCENTILE = 99.99

# Shares of the observed extreme that "mse" tries; 5% apart, which moves the error by far less.
_SHARES = np.geomspace(0.01, 1.0, 96)
_ENTROPY_CANDIDATES = 256
_ENTROPY_CANDIDATES_PER_SIDE = 24


def threshold(
    statistics: Statistics, method: str, scheme: Scheme, percentile: float = PERCENTILE
) -> Range:
    """Return the range of a tensor by one of ``METHODS``.

    ``minmax``: the observed extremes. ``percentile``: see ``_percentile``; ``percentile`` in
    percent. ``entropy``: see ``_entropy``. ``mse``: see ``_mse``.
    Raises InputError for an unknown method and a percentile outside (0, 100].
    """
    if method not in METHODS:
        raise InputError(unknown("calibration method", method, METHODS))
    if not 0 < percentile <= 100:
        raise InputError(f"percentile {percentile} is outside (0, 100]; 99.99 is usual")
    full, scheme = _with_zero(statistics.low, statistics.high), scheme.of(statistics.low)
    if method == "minmax" or statistics.low == statistics.high:
        return full
    if method == "percentile":
        best = _percentile(statistics, scheme, percentile)
    elif method == "entropy":
        best = _entropy(statistics, scheme)
    else:
        best = _mse(statistics, scheme)
    clipped = _with_zero(max(best.low, full.low), min(best.high, full.high))
    # Where nearly all values are zero a percentile may be zero too and would erase the tensor.
    return clipped if clipped.low < clipped.high else full


def _with_zero(low: float, high: float) -> Range:
    return Range(low if low < 0 else 0.0, high if high > 0 else 0.0)


def _symmetric(limit: float) -> Range:
    return Range(-limit, limit)


def _percentile(statistics: Statistics, scheme: Scheme, percentile: float) -> Range:
    """Cut off the rarest values, linearly interpolated within bins.

    Symmetric schemes keep ``percentile`` % of the magnitudes; others cut half of the rest off
    either tail, as ONNX Runtime's PercentileCalibrater does.
    """
    outside = 1 - percentile / 100
    if scheme.symmetric:
        return _symmetric(_tail(statistics, statistics.positive + statistics.negative, outside))
    return Range(
        -_tail(statistics, statistics.negative, outside / 2),
        _tail(statistics, statistics.positive, outside / 2),
    )


def _tail(statistics: Statistics, side: np.ndarray, outside: float) -> float:
    """Magnitude that the share ``outside`` of all values exceeds on the given side."""
    edges = np.minimum(np.arange(HALF + 1) * statistics.width, statistics.amax)
    inside = statistics.count - int(side.sum()) + _cumulative(side)
    return float(np.interp((1 - outside) * statistics.count, inside, edges))


def _entropy(statistics: Statistics, scheme: Scheme) -> Range:
    """The range with the least Kullback-Leibler divergence from the observed distribution.

    S. Migacz, "8-bit Inference with TensorRT", GTC 2017: values beyond the range count as the
    outermost bin, the bins inside are merged into 128 levels, and each level is spread evenly over
    its occupied bins. Symmetric schemes do so with magnitudes. Otherwise one side has 256 levels;
    if both occur, the same divergence is taken over signed intervals with 256 levels and both ends
    are searched. Values of exactly zero do not count: they are represented without an error.
    """
    width = statistics.width
    if scheme.symmetric:
        magnitudes = statistics.positive + statistics.negative
        return _symmetric(width * _entropy_end(magnitudes, 128))
    if statistics.low >= 0:
        return Range(0.0, width * _entropy_end(statistics.positive, 256))
    if statistics.high <= 0:
        return Range(-width * _entropy_end(statistics.negative, 256), 0.0)
    occupied = np.flatnonzero(statistics.histogram)
    first, last = int(occupied[0]), int(occupied[-1]) + 1
    count = _ENTROPY_CANDIDATES_PER_SIDE
    grid = np.meshgrid(_integers(first, HALF, count), _integers(HALF, last, count), indexing="ij")
    starts, ends = (axis.ravel() for axis in grid)
    start, end = _least_divergent(statistics.histogram, starts, ends, 256)
    return Range((start - HALF) * width, (end - HALF) * width)


def _entropy_end(magnitudes: np.ndarray, levels: int) -> int:
    """Number of bins from zero that the best range keeps."""
    last = int(np.flatnonzero(magnitudes)[-1]) + 1
    ends = _integers(min(levels, last), last, _ENTROPY_CANDIDATES)
    return _least_divergent(magnitudes, np.zeros_like(ends), ends, levels)[1]


def _integers(low: int, high: int, count: int) -> np.ndarray:
    """At most ``count`` integers spread evenly over [low, high], ends included."""
    return np.unique(np.linspace(low, high, count).round().astype(np.intp))


def _least_divergent(
    histogram: np.ndarray, starts: np.ndarray, ends: np.ndarray, levels: int
) -> tuple[int, int]:
    """The candidate interval of bins [start, end) with the least divergence."""
    # An interval of fewer bins than levels is represented exactly: its divergence says nothing.
    usable = ends - starts >= levels
    if not usable.any():
        return int(starts.min()), int(ends.max())
    starts, ends = starts[usable], ends[usable]
    best = int(np.argmin(_divergence(histogram, starts, ends, levels)))
    return int(starts[best]), int(ends[best])


def _divergence(
    histogram: np.ndarray, starts: np.ndarray, ends: np.ndarray, levels: int
) -> np.ndarray:
    """KL divergence in nats by candidate, shape of ``starts``; infinite where undefined.

    With p the clipped counts and q those of the levels, sum p log(p / q) needs only sums over
    levels, which differences of cumulative sums give for all candidates at once.
    """
    counts = histogram.astype(np.float64)
    below = _cumulative(counts)
    occupied = _cumulative(counts > 0)
    entropy = _cumulative(_x_log_x(counts))
    bins = (ends - starts)[:, None]
    edges = starts[:, None] + bins * np.arange(levels + 1) // levels
    mass = np.diff(below[edges], axis=1)
    height = mass / np.maximum(np.diff(occupied[edges], axis=1), 1)
    left, right = below[starts], below[-1] - below[ends]
    first, last = counts[starts], counts[ends - 1]
    kept = below[ends] - below[starts]
    p_log_p = entropy[ends] - entropy[starts]
    p_log_p += _x_log_x(first + left) - _x_log_x(first) + _x_log_x(last + right) - _x_log_x(last)
    mass[:, 0] += left
    mass[:, -1] += right
    p_log_q = (mass * np.log(np.where(height > 0, height, 1.0))).sum(axis=1)
    total = below[-1]
    divergence = (p_log_p - p_log_q) / total + np.log(np.maximum(kept, 1.0) / total)
    # Clipped values would land in a bin that the levels leave empty.
    undefined = (kept == 0) | ((left > 0) & (first == 0)) | ((right > 0) & (last == 0))
    return np.where(undefined, np.inf, divergence)


def _x_log_x(values: np.ndarray) -> np.ndarray:
    return values * np.log(np.where(values > 0, values, 1.0))


def _cumulative(values: np.ndarray) -> np.ndarray:
    """Sums of the first 0, 1, ... values."""
    return np.concatenate(([0], np.cumsum(values)))


def _mse(statistics: Statistics, scheme: Scheme) -> Range:
    """The range with the least expected squared quantization error.

    Both ends shrink to the shares ``_SHARES`` of the extremes: jointly for symmetric schemes
    (step amax / 127), independently otherwise (step (high - low) / 255).
    """
    if scheme.symmetric:
        limits = _SHARES * statistics.amax
        magnitudes = statistics.positive + statistics.negative
        error = _SideError(magnitudes, statistics.width, statistics.amax)
        return _symmetric(float(limits[np.argmin(error(limits, limits / 127))]))
    full = _with_zero(statistics.low, statistics.high)
    lows = _SHARES[:, None] * -full.low if full.low else np.zeros((1, 1))
    highs = _SHARES[None, :] * full.high if full.high else np.zeros((1, 1))
    steps = (lows + highs) / 255
    below = _SideError(statistics.negative, statistics.width, -full.low)
    above = _SideError(statistics.positive, statistics.width, full.high)
    errors = below(lows, steps) + above(highs, steps)
    row, column = np.unravel_index(np.argmin(errors), errors.shape)
    return Range(-float(lows[row, 0]), float(highs[0, column]))


class _SideError:
    """Sum of squared quantization errors on one side of zero, from sums of moments over bins.

    A magnitude x below step / 2 becomes 0 (error x^2), one above the limit becomes the limit, and
    in between the error is uniform over a step (step^2 / 12).
    """

    def __init__(self, side: np.ndarray, width: float, extreme: float) -> None:
        centres = np.minimum((np.arange(HALF) + 0.5) * width, extreme)
        self._width = width
        self._n = _cumulative(side)
        self._x = _cumulative(side * centres)
        self._xx = _cumulative(side * centres**2)

    def __call__(self, limits: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Errors by candidate, shape of ``limits`` and ``steps`` broadcast together."""
        limits, steps = np.broadcast_arrays(limits, steps)
        end = np.clip(np.floor(limits / self._width + 0.5), 0, HALF).astype(np.intp)
        start = np.clip(np.ceil(steps / (2 * self._width) - 0.5), 0, end).astype(np.intp)
        n, x, xx = self._n, self._x, self._xx
        clipped = xx[-1] - xx[end] - 2 * limits * (x[-1] - x[end]) + limits**2 * (n[-1] - n[end])
        result: np.ndarray = xx[start] + steps**2 / 12 * (n[end] - n[start]) + clipped
        return result
