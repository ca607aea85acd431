"""Values of command-line options that several commands take."""

from __future__ import annotations

from collections.abc import Sequence

from placer.errors import InputError
from placer.graph.shapes import Shape, ShapeRange, optima, parse_shape_range

SHAPE_HELP = "Input shape, e.g. image=1x3x320x320, or a range, NAME=MIN:OPT:MAX."


def shape_ranges_of(texts: Sequence[str]) -> dict[str, ShapeRange]:
    """Ranges of input shapes by name; InputError if one is given twice."""
    ranges: dict[str, ShapeRange] = {}
    for text in texts:
        name, found = parse_shape_range(text)
        if name in ranges:
            raise InputError(f"--shape names input '{name}' twice; give it once")
        ranges[name] = found
    return ranges


def shapes_of(texts: Sequence[str]) -> dict[str, Shape]:
    """Input shapes by name, the optimum of a range; InputError if one is given twice."""
    return optima(shape_ranges_of(texts))


def engine_options(texts: Sequence[str]) -> dict[str, str]:
    """Values by key; InputError for anything that is not KEY=VALUE."""
    options: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise InputError(f"--engine-option '{text}' is not KEY=VALUE; write e.g. target=cuda")
        if key in options:
            raise InputError(f"--engine-option names '{key}' twice; give it once")
        options[key] = value
    return options
