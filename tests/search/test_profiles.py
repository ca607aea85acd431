"""Profiles of candidates that as a whole are slower than their layers."""

import pytest

from placer.search.models.profiles import agreed

ONCE = dict.fromkeys(range(4), 1)


def test_layers_that_the_float_model_has_tell_by_how_much_a_profile_is_off():
    floats = {0: 0.5, 1: 0.3, 2: 0.2}
    # Layer 2 became layer 3, which takes half of its time; the whole is twice as slow.
    slow = {0: 1.0, 1: 0.6, 3: 0.2}
    assert agreed([floats, slow], [ONCE] * 2, [True, False]) == [
        pytest.approx(floats),
        pytest.approx({0: 0.5, 1: 0.3, 3: 0.1}, rel=0.05),
    ]


def test_layers_count_by_all_the_time_that_those_of_their_number_take():
    floats, slow = {0: 0.05, 1: 0.4}, {0: 0.1, 1: 0.4}
    many, few = [[{0: count, 1: 1}] * 2 for count in (12, 1)]
    # Twelve layers that take 0.6 of the float model doubled, one of 0.4 did not.
    expected = {0: 0.063, 1: 0.25}
    assert agreed([floats, slow], many, [True, False])[1] == pytest.approx(expected, rel=0.02)
    # One layer that takes a ninth doubled.
    expected = {0: 0.091, 1: 0.365}
    assert agreed([floats, slow], few, [True, False])[1] == pytest.approx(expected, rel=0.02)


def test_profiles_pass_on_what_they_share_with_the_float_model():
    floats = {0: 0.5, 1: 0.5}
    # The last has no layer of the float model, but one of a candidate that has.
    half, whole = {0: 0.75, 2: 0.3}, {2: 0.6, 3: 0.9}
    assert agreed([floats, half, whole], [ONCE] * 3, [True, False, False]) == [
        pytest.approx(floats),
        pytest.approx({0: 0.5, 2: 0.2}, rel=0.1),
        pytest.approx({2: 0.2, 3: 0.3}, rel=0.25),
    ]


@pytest.mark.parametrize("other", [{1: 0.4, 2: 0.1}, {0: 0.0, 1: 0.4}])
def test_a_profile_that_shares_no_time_is_believed_as_it_is(other: dict[int, float]):
    assert agreed([{0: 1.0}, other], [ONCE] * 2, [True, False]) == [
        {0: 1.0},
        pytest.approx(other),
    ]


def test_without_profiles_there_is_nothing_to_agree_on():
    assert agreed([], [], []) == []
