"""Statistics on interleaved rounds."""

import numpy as np
import pytest

from placer.common.statistics import fastest, paired_ratio, still_in


def rounds(ratios: list[float], count: int = 60, noise: float = 0.01) -> np.ndarray:
    """Seconds of models with the given true ratios, with a drift that hits all alike."""
    rng = np.random.default_rng(0)
    drift = np.linspace(1, 2, count)[:, None]
    return drift * np.array(ratios) * rng.normal(1, noise, (count, len(ratios)))


def test_a_drift_that_hits_both_alike_cancels():
    seconds = rounds([1.0, 0.8])
    ratio = paired_ratio(seconds[:, 1], seconds[:, 0])
    assert ratio.median == pytest.approx(0.8, rel=0.01)
    assert ratio.low < 0.8 < ratio.high
    assert ratio.high - ratio.low < 0.02
    assert ratio.rounds == 60


def test_two_equal_models_are_not_told_apart():
    seconds = rounds([1.0, 1.0])
    ratio = paired_ratio(seconds[:, 1], seconds[:, 0])
    assert ratio.low < 1 < ratio.high


def test_the_same_rounds_give_the_same_interval():
    seconds = rounds([1.0, 0.9])
    first, again = (paired_ratio(seconds[:, 1], seconds[:, 0]) for _ in range(2))
    assert first == again


def test_a_race_drops_what_is_slower_outside_the_noise():
    seconds = rounds([0.9, 0.8, 0.8, 1.0])
    assert fastest(seconds) in (1, 2)
    assert still_in(seconds) == [1, 2]
