"""Shapes of inputs as Python callers give them."""

import numpy as np
import pytest

from placer import InputError, ShapeRange
from placer.common.shapes import given_ranges, optima


def test_a_shape_is_numbers_a_text_or_a_range():
    span = ShapeRange((1, 3), (4, 3), (8, 3))
    given = {"a": (1, 3), "b": [np.int64(2), 5], "c": "4x7", "d": "1x3:4x3:8x3", "e": span}
    found = given_ranges(given)
    assert optima(found) == {"a": (1, 3), "b": (2, 5), "c": (4, 7), "d": (4, 3), "e": (4, 3)}
    assert found["d"] == found["e"] == span
    assert given_ranges(None) == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"x": "1x3x?"}, "shape 'x=1x3x\\?' is not a shape; write NAME=1x3x224x224"),
        ({"x": 3}, "`shapes`: that of 'x' is 3; give whole numbers such as"),
        ({"x": (1, 2.5)}, "`shapes`: that of 'x' is \\(1, 2.5\\); give whole numbers"),
        ("x=1x3", "`shapes` is 'x=1x3'; give a mapping such as"),
    ],
)
def test_anything_else_is_refused_in_a_sentence(given: object, said: str):
    with pytest.raises(InputError, match=said):
        given_ranges(given)
