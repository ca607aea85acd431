"""Shapes of inputs as users give them: one shape, or the range that an engine is built for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index

from placer.errors import InputError

Shape = tuple[int, ...]
MAX_DIMENSION = 2**31 - 1


@dataclass(frozen=True)
class ShapeRange:
    """What shapes of an input the engine must take, and the one it is made fastest for."""

    minimum: Shape
    optimum: Shape
    maximum: Shape

    @staticmethod
    def fixed(shape: Shape) -> ShapeRange:
        """One shape only."""
        return ShapeRange(shape, shape, shape)

    @property
    def is_fixed(self) -> bool:
        """Whether it holds one shape only."""
        return self.minimum == self.optimum == self.maximum

    @property
    def text(self) -> str:
        """As the user writes it: ``1x3:8x3:32x3``, or ``1x3`` if it is fixed."""
        shapes = (self.optimum,) if self.is_fixed else (self.minimum, self.optimum, self.maximum)
        return ":".join("x".join(map(str, shape)) for shape in shapes)

    def check_order(self, name: str) -> None:
        """Raise InputError unless ranks agree, sizes are in order and none is 0."""
        shown, sizes = f"shape {name}={self.text}", (self.minimum, self.optimum, self.maximum)
        ranks = [len(shape) for shape in sizes]
        if len(set(ranks)) > 1:
            raise InputError(
                f"{shown}: the three shapes have {ranks[0]}, {ranks[1]} and {ranks[2]} dimensions; "
                "give all the same number"
            )
        for axis, values in enumerate(zip(*sizes, strict=True)):
            if min(values) < 1:
                raise InputError(f"{shown}: every dimension must be at least 1")
            if list(values) != sorted(values):
                order = ", ".join(map(str, values))
                raise InputError(
                    f"{shown}: dimension {axis} goes {order}, which is not in order; "
                    "give minimum, optimum and maximum"
                )

    def check(self, name: str, dims: Sequence[int | None]) -> None:
        """Raise InputError unless input ``name`` takes it; ``dims`` are None where dynamic."""
        shown = f"shape {name}={self.text}"
        if len(dims) != len(self.optimum):
            raise InputError(f"{shown}: the input has {len(dims)} dimensions; give a size for each")
        for axis, dim in enumerate(dims):
            sizes = (self.minimum[axis], self.optimum[axis], self.maximum[axis])
            if dim is not None and set(sizes) != {dim}:
                raise InputError(
                    f"{shown}: dimension {axis} is fixed at {dim} in the model; give {dim} for it"
                )


# A shape in Python: numbers, a text as on the command line, or a range.
GivenShape = Sequence[int] | str | ShapeRange


def parse_shape_range(text: str) -> tuple[str, ShapeRange]:
    """Read ``NAME=SHAPE`` or ``NAME=MIN:OPT:MAX``, a shape being e.g. ``1x3x224x224``.

    Raises InputError for anything else, for shapes of different rank and for sizes out of order.
    """
    name, _, dims = text.rpartition("=")
    parts = dims.split(":")
    if len(parts) == 1:
        return name, ShapeRange.fixed(parse_shape(text)[1])
    if len(parts) != 3:
        raise InputError(
            f"shape '{text}' has {len(parts)} shapes; write NAME=SHAPE or NAME=MIN:OPT:MAX"
        )
    minimum, optimum, maximum = (parse_shape(f"{name}={part}")[1] for part in parts)
    shape_range = ShapeRange(minimum, optimum, maximum)
    shape_range.check_order(name)
    return name, shape_range


def given_ranges(shapes: Mapping[str, GivenShape] | None) -> dict[str, ShapeRange]:
    """Shapes by input as Python callers give them: numbers, a text as on the command line, a range.

    Raises InputError, which names the input, for anything else.
    """
    if not isinstance(shapes, Mapping | None):
        raise InputError(f"`shapes` is {shapes!r}; give a mapping such as {{'image': (1, 3, 32)}}")
    return {name: _given_range(name, given) for name, given in (shapes or {}).items()}


def _given_range(name: str, given: GivenShape) -> ShapeRange:
    if isinstance(given, ShapeRange):
        return given
    if isinstance(given, str):
        return parse_shape_range(f"{name}={given}")[1]
    try:
        return ShapeRange.fixed(tuple(map(index, given)))
    except TypeError:
        raise InputError(
            f"`shapes`: that of '{name}' is {given!r}; give whole numbers such as (1, 3, 32, 32), "
            "a text such as '1x3x32x32', or a placer.ShapeRange"
        ) from None


def optima(ranges: Mapping[str, ShapeRange]) -> dict[str, Shape]:
    """The shape by input that calibration, gates and latency use."""
    return {name: shape_range.optimum for name, shape_range in ranges.items()}


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Split ``name=1x3x320x320`` into name and shape; InputError for anything else."""
    name, _, dims = text.rpartition("=")
    if not name or not re.fullmatch(r"\d+(x\d+)*", dims):
        raise InputError(f"shape '{text}' is not a shape; write NAME=1x3x224x224")
    if max(map(len, dims.split("x"))) > len(str(MAX_DIMENSION)):
        raise InputError(f"shape '{text}' has a dimension above {MAX_DIMENSION:,}; give less")
    return name, tuple(int(d) for d in dims.split("x"))
