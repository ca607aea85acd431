"""The shapes that a model's inputs have: as given, else as the file says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnx
from onnx import ModelProto, ValueInfoProto

from placer.common.names import unknown
from placer.common.shapes import MAX_DIMENSION, Shape
from placer.errors import InputError
from placer.model.named_dimensions import (
    dimensions_of,
    parts_of,
    size_of,
    sizes_by_name,
    with_named_sizes,
)


def input_shapes_of(
    proto: ModelProto, given: dict[str, tuple[int, ...]], path: Path
) -> dict[str, tuple[int, ...]]:
    """The shape of every input by its name; an unknown first dimension that is not ``given`` is 1.

    Raises InputError for a ``given`` input that the model does not have or whose shape does not
    fit, for an input that is no tensor or holds no values, and where a dimension stays unknown.
    """
    shapes = _sizes(proto, given_shapes(proto, given, path), path)
    told = _unknown(proto, shapes)
    if told is not None:
        raise InputError(f"{path}: {told[0]}", told[1])
    return {name: tuple(size for size in sizes if size) for name, sizes in shapes.items()}


def unknown_dimensions(
    proto: ModelProto, given: Mapping[str, Shape], path: Path
) -> tuple[str, str] | None:
    """Which dimensions of inputs are not known, and how to give them; None if all are.

    An unknown first one is 1. ``given``: see ``given_shapes``.
    """
    try:
        return _unknown(proto, _sizes(proto, given, path))
    except InputError:  # An input without a shape, or that is no tensor.
        return None


def _sizes(
    proto: ModelProto, given: Mapping[str, Shape], path: Path
) -> dict[str, tuple[int | None, ...]]:
    sizes = sizes_by_name(dimensions_of(proto), dict(given))
    return {
        name: _input_shape(value, given.get(name), sizes, path)
        for name, value in _inputs(proto).items()
    }


def _unknown(
    proto: ModelProto, shapes: Mapping[str, tuple[int | None, ...]]
) -> tuple[str, str] | None:
    """What is not known, and how to give it; None if nothing is."""
    inputs = _inputs(proto)
    unknown_inputs = [name for name, sizes in shapes.items() if None in sizes]
    if not unknown_inputs:
        return None
    named = _by_names(inputs, shapes, unknown_inputs)
    if named is not None:
        return named
    shown = " and ".join(_dimensions(inputs[name], shapes[name]) for name in unknown_inputs)
    flags = " ".join(
        f"{name}={'x'.join(str(size or 'N') for size in shapes[name])}" for name in unknown_inputs
    )
    return shown, f"give them with `shapes`, as {flags}, a number for each N"


def given_shapes(proto: ModelProto, given: Mapping[str, Shape], path: Path) -> dict[str, Shape]:
    """``given`` by inputs of ``proto``; it may name dimensions instead, with one size each.

    Raises InputError for a name that is neither, and for a shape that does not fit its input.
    """
    inputs = _inputs(proto)
    shapes = with_named_sizes(proto, given)
    for name, shape in shapes.items():
        if name not in inputs:
            dims = dict.fromkeys(part for value in inputs.values() for part in _names(value))
            others = f"a dimension: {', '.join(dims)}" if dims else ""
            raise InputError(f"{path}, shapes: {unknown('input', name, inputs, others)}")
        tensor = inputs[name].type.tensor_type
        _check_given(name, list(tensor.shape.dim) if tensor.HasField("shape") else None, shape)
    return shapes


def _inputs(proto: ModelProto) -> dict[str, ValueInfoProto]:
    weights = {tensor.name for tensor in proto.graph.initializer}  # Old exporters list them, too.
    return {value.name: value for value in proto.graph.input if value.name not in weights}


def _by_names(
    inputs: Mapping[str, ValueInfoProto],
    shapes: Mapping[str, Sequence[int | None]],
    unknown_inputs: Sequence[str],
) -> tuple[str, str] | None:
    """The names of what is not known, if several inputs share them."""
    missing: dict[str, None] = {}
    for name in unknown_inputs:
        dims = inputs[name].type.tensor_type.shape.dim
        for dim, size in zip(dims, shapes[name], strict=True):
            parts = parts_of(dim)
            if size is None and not parts:
                return None
            missing.update({} if size else dict.fromkeys(parts))
    if 1 < len(unknown_inputs) >= len(missing):
        flags = " ".join(f"{name}=N" for name in missing)
        return (
            f"{len(unknown_inputs)} inputs have dimensions that are not known",
            f"give them with `shapes`, as {flags}, a number for each N",
        )
    return None


def _names(value: ValueInfoProto) -> list[str]:
    return [part for dim in value.type.tensor_type.shape.dim for part in parts_of(dim)]


def _input_shape(
    value: ValueInfoProto, given: Shape | None, named: Mapping[str, int], path: Path
) -> tuple[int | None, ...]:
    """The sizes of an input's dimensions; None for those that are not known."""
    if not value.type.HasField("tensor_type"):
        raise InputError(f"{path}: input '{value.name}' is not a tensor; export it as one")
    tensor = value.type.tensor_type
    dims = list(tensor.shape.dim) if tensor.HasField("shape") else None
    _check_holds_values(value.name, dims or (), path)
    if given is not None:
        return given
    if dims is None:
        raise InputError(
            f"{path}: input '{value.name}' has no shape",
            f"give it with `shapes`, e.g. {value.name}=1x3x224x224",
        )
    sizes = [size_of(dim, named) for dim in dims]
    if sizes and sizes[0] is None and not parts_of(dims[0]):
        sizes[0] = 1
    return tuple(sizes)


def _dimensions(value: ValueInfoProto, sizes: Sequence[int | None]) -> str:
    """What is not known of an input, for a message."""
    dims = value.type.tensor_type.shape.dim
    labels = [d.dim_param if d.dim_param not in ("", "?") else "?" for d in dims]
    shown = ", ".join(str(size or label) for size, label in zip(sizes, labels, strict=True))
    return f"input '{value.name}' has unknown dimensions [{shown}]"


def _check_holds_values(
    name: str, dims: Iterable[onnx.TensorShapeProto.Dimension], path: Path
) -> None:
    # Negative sizes mean unknown ones, to ONNX Runtime too. 0 is a size, which no sample has.
    if any(d.HasField("dim_value") and d.dim_value == 0 for d in dims):
        raise InputError(
            f"{path}: input '{name}' has a dimension of 0, so that it holds no values; "
            "export it with the size that it has, or with a dynamic dimension"
        )


def _check_given(
    name: str, dims: list[onnx.TensorShapeProto.Dimension] | None, given: tuple[int, ...]
) -> None:
    shown = "x".join(map(str, given))
    if any(size < 1 for size in given):
        raise InputError(f"shape {name}={shown}: every dimension must be at least 1")
    if any(size > MAX_DIMENSION for size in given):
        raise InputError(f"shape {name}={shown} has a dimension above {MAX_DIMENSION:,}; give less")
    if dims is None:
        return
    if len(dims) != len(given):
        raise InputError(
            f"shape {name}={shown}: the input has {len(dims)} dimensions; give a size for each"
        )
    for axis, (dim, size) in enumerate(zip(dims, given, strict=True)):
        if dim.dim_value > 0 and dim.dim_value != size:
            raise InputError(
                f"shape {name}={shown}: dimension {axis} is fixed to {dim.dim_value} in the model"
            )
