"""What an explanation says of scales that nobody has computed."""

from __future__ import annotations

from placer.quantization import Ranges

_LEAST = 2
_STEPS = 255  # Between the values of 8 bits.


def placeholder_scales(ranges: Ranges) -> str:
    """A sentence where all activations have the scale 1; empty if one has another.

    ``ranges``: those that pairs represent, by activation. So tools begin that calibrate later.
    """
    spans = {known.high - known.low for known in ranges.values()}
    if len(ranges) < _LEAST or spans != {_STEPS}:
        return ""
    return (
        f"all {len(ranges)} activations with pairs have the scale 1, as before any calibration; "
        "placer optimize with `ranges` calibrated, and `data`, computes them"
    )
