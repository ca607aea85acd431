"""What trials tell of noise that was measured on a few samples."""

import math
from collections.abc import Sequence

import pytest

from placer.search.models.agreement import Agreement
from placer.search.models.noise_model import ADDITIVE

NOISES = (1e-4, 3e-4, 1e-3, 3e-3)


def pairs(factors: Sequence[float]) -> list[tuple[float, float]]:
    return [(NOISES[i % 4], factor * NOISES[i % 4]) for i, factor in enumerate(factors)]


def test_without_a_trial_and_where_both_are_the_same_nothing_is_scaled():
    assert Agreement.of([]) == Agreement(1.0, ADDITIVE)
    assert Agreement.of(pairs([1.0] * 8)).factor == 1.0


def test_what_all_trials_tell_is_believed_and_what_one_tells_less():
    one, many = (Agreement.of(pairs([2.0] * count)) for count in (1, 16))
    assert 1.9 < one.factor < many.factor < 2.0
    assert one.deviation == pytest.approx(ADDITIVE)
    assert many.deviation < ADDITIVE / 2


def test_the_better_the_few_tell_of_trials_the_less_above_the_limit_is_tried():
    exact, rough = (Agreement.of(pairs(own * 4)) for own in ([1.0, 1.0], [0.8, 1.25]))
    assert 1 < exact.tolerance < 1.03
    assert rough.tolerance == pytest.approx(1.1, abs=0.02)


def test_trials_that_differ_tell_little_of_the_next_one():
    found = Agreement.of(pairs([0.5, 2.0] * 4))
    assert found.factor == pytest.approx(1.0)
    assert found.deviation == pytest.approx(math.log(2), rel=0.1)


def test_what_makes_no_noise_tells_nothing():
    assert Agreement.of([(0.0, 1e-3), (1e-3, 0.0)]) == Agreement()
