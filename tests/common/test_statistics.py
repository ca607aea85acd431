"""Statistics on interleaved rounds."""

import numpy as np
import pytest
from scipy.stats import ttest_ind

from placer.common.statistics import Ratio, fastest, over_copies, paired_ratio, still_in


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


@pytest.mark.slow
def test_an_interval_over_copies_holds_for_further_copies():
    """Copies of one model differ by 2%, more than the mean of their rounds tells."""
    rng = np.random.default_rng(0)
    held = {"rounds": 0, "copies": 0}
    for _ in range(200):
        seconds = rounds(list(rng.normal(1, 0.02, 6)))
        means = [part.mean(axis=1) for part in np.split(seconds, 2, axis=1)]
        ratio = paired_ratio(*means)
        over = over_copies(ratio, seconds[:, :3], seconds[:, 3:])
        held["rounds"] += ratio.low <= 1 <= ratio.high
        held["copies"] += over.low <= 1 <= over.high
    assert held["copies"] >= 0.9 * 200 > 2 * held["rounds"]


def test_the_interval_over_copies_without_noise_is_students():
    copies, baseline = [0.79, 0.80, 0.82], [0.98, 1.0, 1.01, 1.02]
    seconds = np.tile([*copies, *baseline], (60, 1))
    ratio = Ratio(0.8, 0.8, 0.8, 60)
    over = over_copies(ratio, seconds[:, :3], seconds[:, 3:])
    low, high = ttest_ind(np.log(copies), np.log(baseline)).confidence_interval(0.95)
    assert over.high / over.median == pytest.approx(np.exp((high - low) / 2))
    assert over.median / over.low == pytest.approx(np.exp((high - low) / 2))


def test_copies_that_agree_or_single_ones_leave_the_interval_of_the_rounds():
    ratio = Ratio(0.8, 0.79, 0.81, 60)
    one, three = (rounds([1.0] * count, noise=0) for count in (1, 3))
    assert over_copies(ratio, one, one) == ratio
    assert over_copies(ratio, three, three) == ratio


def test_a_race_drops_what_is_slower_outside_the_noise():
    seconds = rounds([0.9, 0.8, 0.8, 1.0])
    assert fastest(seconds) in (1, 2)
    assert still_in(seconds) == [1, 2]


def test_equal_models_all_stay_in_a_race():
    assert still_in(np.ones((9, 3))) == [0, 1, 2]
