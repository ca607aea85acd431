"""Shapes of inputs that the model leaves open, as the first sample of the data has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from onnx import ModelProto, ValueInfoProto

from placer.calibration.archives import array_shapes
from placer.calibration.batches import named_arrays
from placer.calibration.sources import files_by_name, files_of, function_of
from placer.common.shapes import Shape
from placer.common.user_code import UserCode
from placer.model.fixed_inputs import fixed_values
from placer.model.named_dimensions import with_named_sizes
from placer.model.validate import parse_model


def shapes_of_data(
    model: Path, given: Collection[str], source: str, fixed: Collection[str] = ()
) -> dict[str, Shape]:
    """The shape of each input of which more than a batch of 1 is unknown, from ``source``.

    ``given``: inputs whose shapes are settled. ``source``: see
    ``placer.calibration.dataset.load_dataset``. The batch is the model's, 1 if it is unknown too;
    of stacked samples it is theirs. Arrays that are missing or of other ranks are left to the
    reading of the data. ``fixed``: inputs that become constants, for which the data need hold
    nothing. Raises InputError for a model or a source that cannot be read.
    """
    proto = parse_model(model)
    fixed = {*fixed, *fixed_values(proto)}
    inputs = {name: dims for name, dims in _inputs(proto).items() if name not in fixed}
    unknown = {
        name: dims
        for name, dims in inputs.items()
        if name not in given and (dims is None or None in dims)
    }
    if not unknown:
        return {}
    if Path(source).exists():
        shapes = _file_shapes(Path(source), inputs, fixed)
    else:
        shapes = _function_shapes(source, list(inputs))
    if isinstance(shapes, tuple):  # Of an .npy file, which is for the only input.
        shapes = dict.fromkeys(inputs, shapes) if len(inputs) == 1 else {}
    batches = {
        name: _of_batch(unknown[name], shape) for name, shape in shapes.items() if name in unknown
    }
    return _fitting(unknown, batches)


def _file_shapes(
    path: Path, inputs: Collection[str], fixed: Collection[str]
) -> Shape | Mapping[str, Shape]:
    """Shapes of the arrays in the first file, or in those that bear the names of inputs.

    Nothing of images, whose size is not the file's.
    """
    files = files_of(path)
    named = files_by_name(files, {*inputs, *fixed}) or files_by_name(files, inputs)
    if not named:
        return array_shapes(files[0]) if files else {}
    shapes = {name: array_shapes(file) for name, file in named.items()}
    return {name: shape for name, shape in shapes.items() if isinstance(shape, tuple)}


def with_shapes_of_data(
    model: Path, shapes: Mapping[str, Shape], source: str | None
) -> dict[str, Shape]:
    """``shapes`` and those that ``shapes_of_data`` finds for other inputs, if there is a source.

    ``shapes`` may name dimensions, see ``placer.model.named_dimensions``.
    """
    shapes = with_named_sizes(model, shapes)
    of_data = {} if source is None else shapes_of_data(model, shapes, source)
    return {**of_data, **shapes}


Dims = tuple[int | None, ...] | None


def _inputs(proto: ModelProto) -> dict[str, Dims]:
    """Dimensions of each input, None where unknown."""
    weights = {tensor.name for tensor in proto.graph.initializer}
    return {value.name: _dims(value) for value in proto.graph.input if value.name not in weights}


def _dims(value: ValueInfoProto) -> Dims:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(d.dim_value if d.dim_value > 0 else None for d in tensor.shape.dim)


def _of_batch(dims: Dims, shape: Shape) -> Shape:
    """The input's shape, from the array of all samples; see ``placer.calibration.layout``."""
    if dims is not None and len(shape) == len(dims) + 1:
        return shape[1:]
    if dims is not None and len(shape) == len(dims) - 1:
        return (1, *shape)
    return ((dims[0] if dims else None) or 1, *shape[1:])


def _fitting(unknown: Mapping[str, Dims], shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Those of ``shapes`` that known dimensions allow, and that a batch of 1 does not give."""
    return {
        name: shapes[name]
        for name, dims in unknown.items()
        if name in shapes
        and _allows(dims, shapes[name])
        and (dims is None or shapes[name] != (1, *dims[1:]))
    }


def _allows(dims: Dims, shape: Shape) -> bool:
    if dims is None:
        return True
    return len(dims) == len(shape) and all(
        known in (None, size) for known, size in zip(dims, shape, strict=True)
    )


def _function_shapes(source: str, inputs: Sequence[str]) -> dict[str, Shape]:
    """Shapes in the first item of ``module:function``."""
    items = UserCode(source, "correct the function").items(function_of(source))
    first = next(items, None)
    if first is None:
        return {}
    return {name: array.shape for name, array in named_arrays(first, inputs, source).items()}
