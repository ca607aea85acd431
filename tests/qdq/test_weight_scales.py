"""Scales of weights in half precision."""

import numpy as np
import pytest

from placer.quantization.numerics import ScaleError, quantize_weight, weight_scale

_LEAST = np.float16(2**-14)  # The smallest normal number of FP16.


def test_tiny_channels_take_the_smallest_scale_that_fp16_has():
    """One scale for the whole weight, 1 / 127 here, would be coarser for them."""
    values = np.array([[1, -0.5], [0.004, -0.002], [1e-6, 0]], np.float16)
    scale = weight_scale(values, 0)
    assert scale.dtype == np.float16
    np.testing.assert_array_equal(scale, [np.float16(1 / 127), _LEAST, _LEAST])
    quantized = quantize_weight(values, scale, 0, "int8", -127)
    np.testing.assert_array_equal(quantized, [[127, -64], [66, -33], [0, 0]])


def test_a_weight_whose_largest_scale_fp16_does_not_hold_is_refused():
    with pytest.raises(ScaleError, match=r"a scale of 3.15e-05 is outside"):
        weight_scale(np.array([[0.004, -0.002], [0.001, 0]], np.float16), 0)
