"""The vocabulary of quantization: schemes, ranges, placements and their numerics."""

from placer.quantization.placement import EMPTY, Placement
from placer.quantization.ranges import Range, Ranges, union
from placer.quantization.scheme import FLOAT8, Scheme

__all__ = ["EMPTY", "FLOAT8", "Placement", "Range", "Ranges", "Scheme", "union"]
