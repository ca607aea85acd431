"""What ranges, or a file's own pairs, tell of the scales of a placement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from placer.prediction.layers.clamps import Exceeds
from placer.prediction.layers.motion import Scale


@dataclass(frozen=True)
class KnownScales:
    """What is known of scales, where the layers of an engine depend on it; else None.

    ``integers``: the type of each; without it the scheme's own. ``has_zero_point``: whether the
    zero point is not 0. ``exceeds``: whether Q leaves a Relu or Clip before it, so that no kernel
    of integers applies it. ``outlasts``: whether a clamp stays before Q. ``alike``: the scale that
    stands for all of the same numbers.
    """

    integers: Callable[[Scale], str] | None = None
    has_zero_point: Callable[[Scale], bool] | None = None
    exceeds: Exceeds | None = None
    outlasts: Exceeds | None = None
    alike: Callable[[Scale], Scale] | None = None


NOTHING_KNOWN = KnownScales()
