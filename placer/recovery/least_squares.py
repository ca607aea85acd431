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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from placer.quantization.neighbours import magnitudes, neighbours

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


def rounded(
    weights: np.ndarray,
    error: Quadratic,
    *,
    per_channel: bool,
    kernel: Sequence[int] | None = None,
) -> np.ndarray:
    """``weights`` (g, o, k) as products of integers in [-127, 127] and a scale for each output.

    ``per_channel``: the scale is each output's own, and may cut off its largest weights where that
    lowers the error. ``kernel``: where given, the sizes that k is flattened from, and sums of
    neighbours are in [-127, 127] as well, none of which is cut off; see
    ``placer.quantization.neighbours``. The largest magnitude (or sum) is 127 times the scale, so
    that whoever quantizes the result by it gets the same integers.
    """
    size = weights.shape[-1]
    power = np.trace(error.xx, axis1=1, axis2=2)[:, None, None] / size
    floor = np.maximum(_DAMPING * power, error.floor)
    floor = np.where(floor > 0, floor, 1.0)
    xx = error.xx + floor * np.eye(size)
    scale = _scale(weights, per_channel=per_channel, kernel=kernel)
    if kernel is None:
        if per_channel:
            scale = scale * _best_clips(weights, scale, xx)
        return _fed_back(weights, scale, xx, _Magnitudes.of(weights, whole=not per_channel))
    sums = _Sums.of(weights, kernel)
    integers = np.rint(_fed_back(weights, scale, xx, sums) / scale)
    return np.asarray(_to_the_end(integers, kernel, per_channel=per_channel) * scale)


def nearest_integers(
    weights: np.ndarray, *, per_channel: bool, kernel: Sequence[int] | None = None
) -> np.ndarray:
    """``weights`` (g, o, k) as they are quantized without further thought; see ``rounded``."""
    scale = _scale(weights, per_channel=per_channel, kernel=kernel)
    return np.asarray(_integers(weights / scale) * scale)


def _scale(
    weights: np.ndarray, *, per_channel: bool, kernel: Sequence[int] | None = None
) -> np.ndarray:
    """Largest magnitude / 127 of each output, or of all, shape (g, o, 1)."""
    sizes = np.abs(weights) if kernel is None else magnitudes(weights, kernel)
    largest = sizes.max(axis=2, keepdims=True)
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


class _Limits(Protocol):
    """What integers of a weight may be."""

    def round(self, values: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Integers for ``values`` (g, o), of the weights ``at`` (g,)."""


@dataclass(frozen=True, eq=False)
class _Magnitudes:
    """Within [-127, 127]; the ``outermost`` (g, o, k), which set the scale, are at the end.

    ``signs``: of the weights, (g, o, k).
    """

    outermost: np.ndarray
    signs: np.ndarray

    @staticmethod
    def of(weights: np.ndarray, *, whole: bool) -> _Magnitudes:
        """``whole``: one scale for all ``weights`` (g, o, k)."""
        sizes = np.abs(weights)
        largest = sizes.max() if whole else sizes.max(axis=2, keepdims=True)
        return _Magnitudes(sizes == largest, np.sign(weights))

    def round(self, values: np.ndarray, at: np.ndarray) -> np.ndarray:
        groups = np.arange(len(at))
        held = self.outermost[groups, :, at]
        ends = self.signs[groups, :, at] * _LARGEST
        return np.asarray(np.where(held, ends, _integers(values)))


@dataclass(frozen=True, eq=False)
class _Sums:
    """So that no sum of two neighbours leaves [-127, 127].

    ``beside``: see ``neighbours``. ``made``: integers so far, else 0, (g, o, k + 1), and a 0 for
    weights that have no neighbour.
    """

    beside: np.ndarray
    made: np.ndarray

    @staticmethod
    def of(weights: np.ndarray, kernel: Sequence[int]) -> _Sums:
        """Of ``weights`` (g, o, k), flattened from ``kernel``."""
        groups, outputs, size = weights.shape
        return _Sums(neighbours(kernel), np.zeros((groups, outputs, size + 1)))

    def round(self, values: np.ndarray, at: np.ndarray) -> np.ndarray:
        groups = np.arange(len(at))
        near = self.made[groups, :, self.beside[:, at]]  # (neighbours, g, o)
        lowest, highest = (-_LARGEST - near).max(axis=0), (_LARGEST - near).min(axis=0)
        integers: np.ndarray = np.clip(_integers(values), lowest, highest)
        self.made[groups, :, at] = integers
        return integers


def _to_the_end(integers: np.ndarray, kernel: Sequence[int], *, per_channel: bool) -> np.ndarray:
    """``integers`` (g, o, k) of which a magnitude or sum of each output, or of any, is 127.

    The largest one is moved there where its other neighbours leave room.
    """
    moved: np.ndarray = integers.copy()
    beside = neighbours(kernel)
    flat = moved.reshape(-1, moved.shape[-1])
    sizes = magnitudes(flat, kernel)
    largest = sizes.max(axis=1)
    rows = range(len(flat)) if per_channel else [int(largest.argmax())]
    for row in rows:
        missing = _LARGEST - largest[row]
        if 0 < missing < _LARGEST:
            _move_one(flat[row], int(sizes[row].argmax()), missing, beside)
    return moved


def _move_one(row: np.ndarray, last: int, missing: float, beside: np.ndarray) -> None:
    """Move ``row[last]``, or the neighbour that makes the largest sum with it, by ``missing``."""
    padded = np.append(row, 0.0)
    sums = row[last] + padded[beside[:, last]]
    partner = int(beside[np.abs(sums).argmax(), last])
    sign = np.sign(sums[np.abs(sums).argmax()])
    for place in (last, partner):
        if place < len(row):
            value = row[place] + sign * missing
            if np.abs([value, *(value + padded[beside[:, place]])]).max() <= _LARGEST:
                row[place] = value
                return


def _fed_back(
    weights: np.ndarray, scale: np.ndarray, xx: np.ndarray, limits: _Limits
) -> np.ndarray:
    """GPTQ: round weight after weight, those that matter most first."""
    size = weights.shape[-1]
    order = np.argsort(-np.diagonal(xx, axis1=1, axis2=2), axis=1, kind="stable")
    rows = np.take_along_axis(xx, order[:, :, None], axis=1)
    permuted = np.take_along_axis(rows, order[:, None, :], axis=2)
    inverse = np.linalg.cholesky(np.linalg.inv(permuted)).transpose(0, 2, 1)  # Upper triangular.
    left = np.take_along_axis(weights, order[:, None, :], axis=2)
    rounded = np.empty_like(left)
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        errors = np.empty_like(left[:, :, start:stop])
        for i in range(start, stop):
            integers = limits.round(left[:, :, i] / scale[:, :, 0], order[:, i])
            rounded[:, :, i] = integers * scale[:, :, 0]
            error = (left[:, :, i] - rounded[:, :, i]) / inverse[:, i, i][:, None]
            errors[:, :, i - start] = error
            left[:, :, i:stop] -= error[:, :, None] * inverse[:, None, i, i:stop]
        left[:, :, stop:] -= errors @ inverse[:, start:stop, stop:]
    back = np.argsort(order, axis=1)
    return np.take_along_axis(rounded, back[:, None, :], axis=2)
