"""The vocabulary of quantization: schemes, ranges, placements and their numerics."""

from placer.quantization.placement import EMPTY, FLOAT_IDS, Placement
from placer.quantization.ranges import Range, Ranges, union
from placer.quantization.scheme import FLOAT8, Format, Scheme, WeightRangeOption

__all__ = [
    "EMPTY",
    "FLOAT8",
    "FLOAT_IDS",
    "Format",
    "Placement",
    "Range",
    "Ranges",
    "Scheme",
    "WeightRangeOption",
    "union",
]
