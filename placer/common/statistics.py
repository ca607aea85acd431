"""Compare engines' latencies by interleaved rounds, with intervals, and name a winner."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

RESAMPLES = 2000
# Beyond these, rounds disagree so much that their median says nothing: the upper end of its
# interval over the lower, and the 90th percentile of the ratios over the 10th.
WIDEST_INTERVAL, WIDEST_SPREAD = 1.5, 4.0


@dataclass(frozen=True)
class Ratio:
    """Median of paired latency ratios to a baseline and its 95% bootstrap interval."""

    median: float
    low: float
    high: float
    rounds: int


def paired_ratio(seconds: np.ndarray, baseline: np.ndarray) -> Ratio:
    """Median of ``seconds / baseline`` (both shape (rounds,)) with a percentile bootstrap interval.

    The same rounds give the same interval.

    Source: Efron & Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    ratios = seconds / baseline
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(ratios), size=(RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(ratios[picks], axis=1), (0.025, 0.975))
    return Ratio(float(np.median(ratios)), float(low), float(high), len(ratios))


def over_copies(ratio: Ratio, copies: np.ndarray, baseline: np.ndarray) -> Ratio:
    """``ratio``, of the rounds' means, with an interval that holds for other copies, too.

    ``copies`` and ``baseline``: seconds of each copy of the two models, shape (rounds, copies). A
    copy is the model compiled once more: where its memory lies moves its latency for as long as it
    lives. What copies of one model differ by, beyond what their rounds explain, widens the interval
    by Student's t; the variance is that of both models. Of one copy each nothing is known of it.

    Source: Searle, Casella & McCulloch, Variance Components (1992), chapter 3 (a one-way layout's
    estimate by analysis of variance, not below 0).
    """
    together = np.hstack([copies, baseline])
    freedom = together.shape[1] - 2
    if not freedom:
        return ratio
    rounds = np.log(together / together.mean(axis=1, keepdims=True))
    parts = np.split(np.median(rounds, axis=0), [copies.shape[1]])
    variance = sum(((part - part.mean()) ** 2).sum() for part in parts) / freedom
    picks = np.random.default_rng(0).integers(0, len(rounds), size=(RESAMPLES, len(rounds)))
    of_rounds = np.median(rounds[picks], axis=1).var(axis=0).mean()
    error = math.sqrt(max(variance - of_rounds, 0.0) * sum(1 / len(part) for part in parts))
    width = stdtrit(freedom, 0.975) * error
    below = math.hypot(math.log(ratio.median / ratio.low), width)
    above = math.hypot(math.log(ratio.high / ratio.median), width)
    low, high = ratio.median * math.exp(-below), ratio.median * math.exp(above)
    return replace(ratio, low=low, high=high)


def is_absurd(seconds: np.ndarray, baseline: np.ndarray) -> bool:
    """Whether paired ratios of latencies scatter too much to say anything.

    That is where their 95% interval reaches over a factor of ``WIDEST_INTERVAL``, or the ratios
    themselves, from their 10th to their 90th percentile, over one of ``WIDEST_SPREAD``.
    """
    ratio = paired_ratio(seconds, baseline)
    low, high = np.quantile(seconds / baseline, (0.1, 0.9))
    return bool(ratio.high > WIDEST_INTERVAL * ratio.low or high > WIDEST_SPREAD * low)


def fastest(seconds: np.ndarray) -> int:
    """Column of ``seconds`` (rounds, models) with the lowest median ratio to the row's mean.

    Dividing by the row's mean takes out what slowed all models of one round alike.
    """
    relative = seconds / seconds.mean(axis=1, keepdims=True)
    return int(np.argmin(np.median(relative, axis=0)))


def still_in(seconds: np.ndarray) -> list[int]:
    """Columns whose paired ratio to the fastest column is not above 1 outside the noise."""
    best = fastest(seconds)
    columns = range(seconds.shape[1])
    return [
        c for c in columns if c == best or paired_ratio(seconds[:, c], seconds[:, best]).low <= 1
    ]
