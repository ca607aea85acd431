"""Value ranges of float tensors, the only thing that Q/DQ insertion needs from calibration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Range(NamedTuple):
    """Closed interval [low, high] that quantization must represent; low <= high."""

    low: float
    high: float


Ranges = Mapping[str, Range]


def union(ranges: Iterable[Range]) -> Range:
    """Return the smallest range that holds all of ``ranges`` (at least one)."""
    items = list(ranges)
    return Range(min(r.low for r in items), max(r.high for r in items))
