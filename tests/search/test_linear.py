"""Conditioning a normal distribution on sums, against closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.search.linear import Gaussian


def random_gaussian(rng: np.random.Generator, size: int) -> Gaussian:
    root = rng.standard_normal((size, size))
    return Gaussian(rng.standard_normal(size), root @ root.T + np.eye(size))


def test_one_unknown_is_weighed_by_precision():
    """Prior 1 with deviation 2, measured 4 with deviation 1: 4 parts of 5 are the measurement."""
    found = Gaussian(np.array([1.0]), np.array([[4.0]])).given(
        np.array([[1.0]]), np.array([4.0]), np.array([1.0])
    )
    assert found.mean[0] == pytest.approx((1 / 4 * 1 + 1 / 1 * 4) / (1 / 4 + 1))
    assert found.deviation(np.array([1.0])) == pytest.approx((1 / 4 + 1) ** -0.5)


def test_a_sum_is_shared_out_by_variance():
    """Two unknowns of 1 sum up to 5; the one twice as uncertain takes four times as much of 3."""
    start = Gaussian(np.ones(2), np.diag([1.0, 4.0]))
    found = start.given(np.array([[1.0, 1.0]]), np.array([5.0]), np.array([1e-9]))
    np.testing.assert_allclose(found.mean, [1 + 3 / 5, 1 + 12 / 5])
    assert found.deviation(np.ones(2)) == pytest.approx(0, abs=1e-6)
    assert found.deviation(np.array([1.0, 0.0])) == pytest.approx((4 / 5) ** 0.5)


def test_nothing_measured_changes_nothing():
    start = random_gaussian(np.random.default_rng(0), 3)
    found = start.given(np.zeros((0, 3)), np.zeros(0), np.zeros(0))
    np.testing.assert_array_equal(found.mean, start.mean)
    np.testing.assert_array_equal(found.covariance, start.covariance)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 8))
def test_conditioning_is_adding_precisions(seed: int, size: int, count: int):
    """The information form: Rasmussen & Williams (2006), equation 2.8."""
    rng = np.random.default_rng(seed)
    start = random_gaussian(rng, size)
    counts, values = rng.integers(0, 4, (count, size)).astype(float), rng.standard_normal(count)
    deviations = rng.uniform(0.1, 2, count)
    found = start.given(counts, values, deviations)
    weighed = counts.T / deviations**2
    precision = np.linalg.inv(start.covariance) + weighed @ counts
    mean = np.linalg.solve(
        precision, np.linalg.solve(start.covariance, start.mean) + weighed @ values
    )
    np.testing.assert_allclose(found.mean, mean, atol=1e-6)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(precision), atol=1e-6)


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_measurements_may_come_one_by_one(seed: int, size: int):
    rng = np.random.default_rng(seed)
    start = together = random_gaussian(rng, size)
    counts, values = rng.standard_normal((3, size)), rng.standard_normal(3)
    deviations = rng.uniform(0.1, 2, 3)
    together = start.given(counts, values, deviations)
    for row in range(3):
        own = slice(row, row + 1)
        start = start.given(counts[own], values[own], deviations[own])
    np.testing.assert_allclose(start.mean, together.mean, atol=1e-8)
    np.testing.assert_allclose(start.covariance, together.covariance, atol=1e-8)
