"""Weights that bring a layer nearest to its target, and integers that stay near it.

Everything here works on second moments of what a layer reads and shall give, so that its cost does
not grow with the samples. Shapes: g groups of a convolution (1 elsewhere), o outputs of a group, k
weights of an output.

Sources: Hubara et al., "Improving Post Training Neural Quantization: Layer-wise Calibration and
Integer Programming" (2020), equation 2, for the objective, here solved in closed form with a prior
on the weights as given; Frantar et al., "GPTQ" (2023), section 3, for the rounding: weights are
rounded one after the other, and those still to come make up for the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# Strengths of the prior, relative to the mean power of what is read; infinity keeps the weights.
_PRIORS = (np.inf, 10.0, 1.0, 0.1, 0.01, 0.001)
# Added to the diagonal before the rounding, as GPTQ does.
_DAMPING = 0.01
# Sums in float32 are off by less than this part of the sum of squares; what a mean leaves of inputs
# that hardly vary is such an error.
_SUM_ERROR = 4e-6
# Scales that a channel's weights may be clipped to, as shares of their largest magnitude.
_CLIPS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6)
_LARGEST = 127
# Columns that are rounded before their error is passed on to the columns behind them.
_BLOCK = 128
# Changing the weights has to spare that share of the error on samples that it was not fitted to.
_LEAST_GAIN = 0.01


@dataclass
class Moments:
    """Sums over positions of what a layer reads, x, and shall give, t, without its bias.

    ``xx``: (g, k, k); ``tx``: (g, o, k); ``x``: (g, k); ``t``: (g, o); ``tt``: sum of squares.
    """

    count: int
    xx: np.ndarray
    tx: np.ndarray
    x: np.ndarray
    t: np.ndarray
    tt: float

    @staticmethod
    def of(x: np.ndarray, t: np.ndarray) -> Moments:
        """Of ``x`` (positions, g, k) and ``t`` (positions, g, o), float32."""
        by_group, targets = x.transpose(1, 2, 0), t.transpose(1, 2, 0)
        rows = x.transpose(1, 0, 2)
        return Moments(
            len(x),
            (by_group @ rows).astype(np.float64),
            (targets @ rows).astype(np.float64),
            x.sum(axis=0, dtype=np.float64),
            t.sum(axis=0, dtype=np.float64),
            float(np.sum(np.square(t, dtype=np.float64))),
        )

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.count + other.count,
            self.xx + other.xx,
            self.tx + other.tx,
            self.x + other.x,
            self.t + other.t,
            self.tt + other.tt,
        )

    def centred(self) -> Quadratic:
        """The error around the means, which a bias takes away."""
        n = max(self.count, 1)
        xx = self.xx - self.x[:, :, None] * self.x[:, None, :] / n
        tx = self.tx - self.t[:, :, None] * self.x[:, None, :] / n
        tt = self.tt - float(np.sum(self.t**2)) / n
        return Quadratic(xx / n, tx / n, tt / n, self._floor())

    def around_zero(self) -> Quadratic:
        """The error of a layer whose bias cannot change."""
        n = max(self.count, 1)
        return Quadratic(self.xx / n, self.tx / n, self.tt / n, self._floor())

    def _floor(self) -> np.ndarray:
        traces = np.trace(self.xx, axis1=1, axis2=2)
        return np.asarray(_SUM_ERROR * traces / max(self.count, 1))[:, None, None]


class Quadratic(NamedTuple):
    """A layer's mean squared error as a function of its weights.

    ``floor``: (g, 1, 1); what ``xx`` may be off by, so that with less on its diagonal it need not
    be positive definite.
    """

    xx: np.ndarray
    tx: np.ndarray
    tt: float
    floor: np.ndarray

    def error(self, weights: np.ndarray) -> float:
        """Of ``weights`` (g, o, k)."""
        return float(np.sum((weights @ self.xx - 2 * self.tx) * weights)) + self.tt

    def nearest(self, weights: np.ndarray, prior: float) -> np.ndarray:
        """The weights with the least error, drawn to ``weights`` with the strength ``prior``."""
        if not np.isfinite(prior):
            return weights
        size = self.xx.shape[-1]
        power = np.trace(self.xx, axis1=1, axis2=2)[:, None, None] / size
        least = np.maximum(self.floor, np.finfo(np.float64).tiny)
        ridge = np.maximum(prior * power, least) * np.eye(size)
        missing = self.tx - weights @ self.xx
        correction = np.linalg.solve(self.xx + ridge, missing.transpose(0, 2, 1))
        return np.asarray(weights + correction.transpose(0, 2, 1))


def fitted(weights: np.ndarray, folds: tuple[Quadratic, Quadratic], whole: Quadratic) -> np.ndarray:
    """``weights`` (g, o, k) moved towards the least error, as far as this holds on other samples.

    ``folds``: the errors on two halves of the samples: the strength of the prior is the one that,
    fitted to either half, has the least error on the other.
    """
    one, two = folds
    errors = [
        two.error(one.nearest(weights, prior)) + one.error(two.nearest(weights, prior))
        for prior in _PRIORS
    ]
    best = int(np.argmin(errors))
    if errors[best] > (1 - _LEAST_GAIN) * errors[0]:
        return weights
    return whole.nearest(weights, _PRIORS[best])


def rounded(weights: np.ndarray, error: Quadratic, *, per_channel: bool) -> np.ndarray:
    """``weights`` (g, o, k) as products of integers in [-127, 127] and a scale for each output.

    ``per_channel``: the scale is each output's own, and may cut off its largest weights where that
    lowers the error. The largest magnitude is 127 times the scale, so that whoever quantizes the
    result by its largest magnitude gets the same integers.
    """
    size = weights.shape[-1]
    power = np.trace(error.xx, axis1=1, axis2=2)[:, None, None] / size
    floor = np.maximum(_DAMPING * power, error.floor)
    floor = np.where(floor > 0, floor, 1.0)
    xx = error.xx + floor * np.eye(size)
    scale = _scale(weights, per_channel=per_channel)
    if per_channel:
        scale = scale * _best_clips(weights, scale, xx)
    return _fed_back(weights, scale, xx, whole=not per_channel)


def nearest_integers(weights: np.ndarray, *, per_channel: bool) -> np.ndarray:
    """``weights`` (g, o, k) as they are quantized without further thought."""
    scale = _scale(weights, per_channel=per_channel)
    return np.asarray(_integers(weights / scale) * scale)


def _scale(weights: np.ndarray, *, per_channel: bool) -> np.ndarray:
    """Largest magnitude / 127 of each output, or of all, shape (g, o, 1)."""
    largest = np.abs(weights).max(axis=2, keepdims=True)
    if not per_channel:
        largest = np.broadcast_to(largest.max(), largest.shape)
    return np.asarray(np.where(largest > 0, largest, 1.0) / _LARGEST)


def _best_clips(weights: np.ndarray, scale: np.ndarray, xx: np.ndarray) -> np.ndarray:
    """The share of each output's scale, (g, o, 1), with the least error after plain rounding."""
    errors = []
    for share in _CLIPS:
        moved = weights - _integers(weights / (share * scale)) * share * scale
        errors.append(np.sum((moved @ xx) * moved, axis=2, keepdims=True))
    return np.asarray(np.asarray(_CLIPS)[np.argmin(errors, axis=0)])


def _integers(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(np.rint(values), -_LARGEST, _LARGEST))


def _fed_back(weights: np.ndarray, scale: np.ndarray, xx: np.ndarray, *, whole: bool) -> np.ndarray:
    """GPTQ: round weight after weight, those that matter most first."""
    size = weights.shape[-1]
    order = np.argsort(-np.diagonal(xx, axis1=1, axis2=2), axis=1, kind="stable")
    rows = np.take_along_axis(xx, order[:, :, None], axis=1)
    permuted = np.take_along_axis(rows, order[:, None, :], axis=2)
    inverse = np.linalg.cholesky(np.linalg.inv(permuted)).transpose(0, 2, 1)  # Upper triangular.
    values = np.take_along_axis(weights, order[:, None, :], axis=2)
    # What sets the scale stays at the end of its range.
    outermost = np.abs(values) == np.abs(values).max(axis=2, keepdims=True)
    if whole:
        outermost &= np.abs(values) == np.abs(values).max()
    left, rounded = values.copy(), np.empty_like(values)
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        errors = np.empty_like(left[:, :, start:stop])
        for i in range(start, stop):
            integers = _integers(left[:, :, i] / scale[:, :, 0])
            held = outermost[:, :, i]
            integers = np.where(held, np.sign(values[:, :, i]) * _LARGEST, integers)
            rounded[:, :, i] = integers * scale[:, :, 0]
            error = (left[:, :, i] - rounded[:, :, i]) / inverse[:, i, i][:, None]
            errors[:, :, i - start] = error
            left[:, :, i:stop] -= error[:, :, None] * inverse[:, None, i, i:stop]
        left[:, :, stop:] -= errors @ inverse[:, start:stop, stop:]
    back = np.argsort(order, axis=1)
    return np.take_along_axis(rounded, back[:, None, :], axis=2)
