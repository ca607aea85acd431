"""Conditioning a normal distribution on sums, against closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.search.models.bayesian_linear import Gaussian, Measured, Summed, Sums


def random_gaussian(rng: np.random.Generator, size: int) -> Gaussian:
    factors = rng.standard_normal((size, 2))
    return Gaussian(rng.standard_normal(size), factors, rng.uniform(0.1, 2, size))


def covariance(gaussian: Gaussian) -> np.ndarray:
    return np.asarray(gaussian.factors @ gaussian.factors.T + np.diag(gaussian.own))


def test_one_unknown_is_weighed_by_precision():
    """Prior 1 with deviation 2, measured 4 with deviation 1: 4 parts of 5 are the measurement."""
    start = Gaussian(np.array([1.0]), np.array([[2.0]]), np.array([0.0]))
    found = Summed(Sums(start, np.array([[1.0]])), np.array([4.0]), np.array([[1.0]]))
    assert found.mean[0] == pytest.approx((1 / 4 * 1 + 1 / 1 * 4) / (1 / 4 + 1))
    assert found.deviation(np.array([1.0])) == pytest.approx((1 / 4 + 1) ** -0.5)


def test_a_sum_is_shared_out_by_variance():
    """Two unknowns of 1 sum up to 5; the one twice as uncertain takes four times as much of 3."""
    start = Gaussian(np.ones(2), np.zeros((2, 0)), np.array([1.0, 4.0]))
    found = Summed(Sums(start, np.array([[1.0, 1.0]])), np.array([5.0]), np.array([[1e-18]]))
    np.testing.assert_allclose(found.mean, [1 + 3 / 5, 1 + 12 / 5])
    assert found.deviation(np.ones(2)) == pytest.approx(0, abs=1e-6)
    assert found.deviation(np.array([1.0, 0.0])) == pytest.approx((4 / 5) ** 0.5)


def test_what_has_a_cause_in_common_tells_of_each_other():
    """Both are the cause and a quarter of own variance; one is measured exactly, 1 too high."""
    start = Gaussian(np.zeros(2), np.ones((2, 1)), np.full(2, 0.25))
    found = Summed(Sums(start, np.array([[1.0, 0.0]])), np.array([1.0]), np.array([[0.0]]))
    np.testing.assert_allclose(found.mean, [1, 1 / 1.25])
    assert found.deviation(np.array([0.0, 1.0])) == pytest.approx((1.25 - 1 / 1.25) ** 0.5)


def test_nothing_measured_changes_nothing():
    start = random_gaussian(np.random.default_rng(0), 3)
    found = Summed(Sums(start, np.zeros((0, 3))), np.zeros(0), np.zeros((0, 0)))
    np.testing.assert_array_equal(found.mean, start.mean)
    row = np.array([1.0, 2.0, 3.0])
    assert found.deviation(row) == pytest.approx((row @ covariance(start) @ row) ** 0.5)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 8))
def test_conditioning_is_adding_precisions(seed: int, size: int, count: int):
    """The information form: Rasmussen & Williams (2006), equation 2.8."""
    rng = np.random.default_rng(seed)
    start = random_gaussian(rng, size)
    counts, values = rng.integers(0, 4, (count, size)).astype(float), rng.standard_normal(count)
    deviations = rng.uniform(0.1, 2, count)
    found = Summed(Sums(start, counts), values, np.diag(deviations**2))
    weighed = counts.T / deviations**2
    before = np.linalg.inv(covariance(start))
    after = np.linalg.inv(before + weighed @ counts)
    np.testing.assert_allclose(
        found.mean, after @ (before @ start.mean + weighed @ values), atol=1e-6
    )
    for row in np.eye(size):
        assert found.deviation(row) ** 2 == pytest.approx(row @ after @ row, abs=1e-6)


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_what_is_measured_alone_is_a_sum_of_one(seed: int, size: int):
    rng = np.random.default_rng(seed)
    start = random_gaussian(rng, size)
    index = rng.permutation(size)[: rng.integers(size + 1)]
    values, deviations = rng.standard_normal(len(index)), rng.uniform(0.1, 2, len(index))
    alone = Measured(start, index, values, deviations)
    summed = Summed(Sums(start, np.eye(size)[index]), values, np.diag(deviations**2))
    np.testing.assert_allclose(alone.posterior.mean, summed.mean, atol=1e-8)
    drawn = rng.standard_normal(size)
    np.testing.assert_allclose(alone.corrected(drawn), summed.corrected(drawn), atol=1e-8)
    nothing = Summed(Sums(alone.posterior, np.zeros((0, size))), np.zeros(0), np.zeros((0, 0)))
    for row in rng.standard_normal((3, size)):
        assert nothing.deviation(row) == pytest.approx(summed.deviation(row), abs=1e-8)


def test_corrected_draws_are_distributed_as_what_is_still_possible():
    rng = np.random.default_rng(0)
    start = random_gaussian(rng, 3)
    found = Summed(Sums(start, np.array([[1.0, 1.0, 0.0]])), np.array([2.0]), np.array([[0.0]]))
    draws = rng.multivariate_normal(start.mean, covariance(start), size=4000)
    corrected = np.array([found.corrected(draw) for draw in draws])
    np.testing.assert_allclose(corrected[:, 0] + corrected[:, 1], 2, atol=1e-6)
    np.testing.assert_allclose(corrected.mean(axis=0), found.mean, atol=0.15)
    expected = [found.deviation(row) for row in np.eye(3)]
    np.testing.assert_allclose(corrected.std(axis=0), expected, rtol=0.1)
