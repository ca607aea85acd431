"""Labels: which ones tell classes, and whether a score on them is better than guessing."""

from __future__ import annotations

import math

import numpy as np

# A score that guessing reaches more often than this tells nothing of the labels.
LEVEL = 0.05


def class_indices(labels: np.ndarray) -> np.ndarray:
    """``labels`` as integers; floats must be whole numbers.

    Raises ValueError, with half a sentence that says what they are instead.
    """
    if labels.dtype.kind in "iu":
        return labels
    if labels.dtype.kind != "f":
        raise ValueError(f"have type {labels.dtype}; give class indices as integers")
    # Above 2^53 not every whole number is a float64.
    wrong = ~(np.abs(labels) <= 2.0**53) | (labels != np.rint(labels))
    if wrong.any():
        raise ValueError(f"hold {labels[wrong].flat[0]}, which is not a class index; correct them")
    return labels.astype(np.int64)


def is_guessing(correct: int, of: int, classes: int) -> bool:
    """Whether ``correct`` of so many labels is no better than guessing among ``classes``.

    That is a share of at most 1 / classes, or one that guessing reaches in more than ``LEVEL`` of
    all cases (one-sided exact binomial test). So few labels that the test would not even pass a
    model halfway between guessing and perfect are judged by the share alone.
    """
    if correct * classes <= of:
        return True
    chance = 1 / classes
    halfway = math.ceil(of * (1 + chance) / 2)
    return _tail(halfway, of, chance) <= LEVEL and _tail(correct, of, chance) > LEVEL


def _tail(least: int, of: int, chance: float) -> float:
    """Probability that at least ``least`` of ``of`` trials succeed, for ``least`` above the mean.

    Sums the binomial distribution from there on; its terms fall, so that few of them count.
    """
    log_term = math.lgamma(of + 1) - math.lgamma(least + 1) - math.lgamma(of - least + 1)
    log_term += least * math.log(chance) + (of - least) * math.log1p(-chance)
    term = total = math.exp(log_term)
    for count in range(least, of):
        term *= (of - count) / (count + 1) * chance / (1 - chance)
        total += term
        if term < 1e-12 * total:
            break
    return total
