"""Shapes of a model's inputs, held against those that the user gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import ModelProto

from placer.common.shapes import Shape, ShapeRange, optima, parse_shape, parse_shape_range

__all__ = [
    "InputType",
    "Shape",
    "ShapeRange",
    "check_ranges",
    "optima",
    "parse_shape",
    "parse_shape_range",
]


@dataclass(frozen=True)
class InputType:
    """Shape and NumPy type of an engine's input; of a range the shape it is made fastest for."""

    shape: Shape
    dtype: str


def check_ranges(proto: ModelProto, ranges: Mapping[str, ShapeRange]) -> None:
    """Raise InputError if an input of ``proto`` does not take its range; others are left alone."""
    for value in proto.graph.input:
        tensor = value.type.tensor_type
        if value.name in ranges and tensor.HasField("shape"):
            dims = [d.dim_value if d.dim_value > 0 else None for d in tensor.shape.dim]
            ranges[value.name].check(value.name, dims)
