"""Zero point 0 everywhere: uint8 where nothing is negative, int8 elsewhere."""

import pytest

from placer.quantization import Range, Scheme
from placer.quantization.numerics import Quantization, activation_quantization

EITHER = Scheme(activation="int8-or-uint8", symmetric=True, bias="float")


@pytest.mark.parametrize(
    ("found", "integer", "expected"),
    [
        (Range(0.0, 2.55), "uint8", (0.01, 0)),
        (Range(-0.3, 1.27), "int8", (0.01, 0)),
        (Range(-1.27, 0.0), "int8", (0.01, 0)),
    ],
)
def test_the_sign_of_a_range_decides_the_type(
    found: Range, integer: str, expected: tuple[float, int]
):
    quantization = activation_quantization(found, EITHER)
    assert EITHER.of(found.low).activation == integer
    assert quantization == Quantization(pytest.approx(expected[0]), expected[1])


def test_its_activations_have_no_zero_points():
    with pytest.raises(ValueError, match="int8-or-uint8 needs symmetric: true"):
        Scheme(activation="int8-or-uint8", symmetric=False, bias="float")


def test_other_schemes_ask_no_sign():
    plain = Scheme(activation="uint8", symmetric=False, bias="float")
    assert plain.of(0.0) is plain.of(-1.0) is plain
