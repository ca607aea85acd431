"""Ranges of a file's own pairs, as a scheme takes them over."""

from __future__ import annotations

import pytest

from placer.qdq.own_pairs import OwnPairs
from placer.quantization import Range, Scheme
from placer.quantization.scheme import INT8_OR_UINT8


@pytest.mark.parametrize(
    ("activation", "symmetric", "found"),
    [
        ("int8", True, {"int8": Range(-12.7, 12.7)}),
        (INT8_OR_UINT8, True, {"int8": Range(-12.7, 12.7), "uint8 of zero point 0": (0, 25.5)}),
        ("uint8", False, None),
    ],
)
def test_only_ranges_that_give_the_scales_of_the_pairs_are_taken_over(
    activation: str, symmetric: bool, found: dict[str, Range] | None
):
    """127 steps of a symmetric scheme for 255 of uint8 would be a scale twice as large."""
    ranges = {
        "int8": Range(-12.8, 12.7),
        "uint8 of zero point 0": Range(0.0, 25.5),
        "uint8 of zero point 100": Range(-10.0, 15.5),
    }
    scheme = Scheme(activation=activation, symmetric=symmetric, bias="float")
    assert OwnPairs(ranges, {}).ranges_in(scheme) == (ranges if found is None else found)
