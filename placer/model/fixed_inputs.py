"""A model for one value of an input, such as a sampling rate, and for one shape of others.

What depends on that value alone becomes constant, and of each If that it decides the branch that
runs takes its place, so that rules see what was in its body.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto, ValueInfoProto, helper, numpy_helper

from placer.common.names import unknown
from placer.errors import InputError
from placer.graph.edit import fix_input_shapes
from placer.model.input_shapes import given_shapes

# How the names of metadata begin that say which inputs a model was fixed for, and to what.
_KEY = "placer.fixed."


def fix_in_place(
    proto: ModelProto,
    values: Mapping[str, float],
    shapes: Mapping[str, tuple[int, ...]],
    path: Path,
) -> None:
    """Turn the inputs of ``values`` into constants, and write ``shapes`` into the others.

    ``proto``: tidy. Its metadata say what was fixed, see ``fixed_values``. Raises InputError for
    an input that is not there or whose shape is not known, and a value that its type does not have.
    """
    inputs = {value.name: value for value in proto.graph.input}
    shapes = given_shapes(proto, shapes, path)
    for name in values:
        if name not in inputs:
            raise InputError(f"{path}: {unknown('input', name, inputs)}")
    fix_input_shapes(proto, shapes)
    for name, value in values.items():
        _make_constant(proto, inputs[name], value, path)
        proto.metadata_props.add(key=f"{_KEY}{name}", value=repr(float(value)))


def fixed_values(proto: ModelProto) -> dict[str, float]:
    """The inputs that ``proto`` had before they were fixed, with their values.

    Raises InputError for a value that is no number.
    """
    fixed = {}
    for entry in proto.metadata_props:
        if entry.key.startswith(_KEY):
            try:
                fixed[entry.key.removeprefix(_KEY)] = float(entry.value)
            except ValueError as error:
                raise InputError(
                    f"the model's metadata {entry.key} is '{entry.value}', which is not a number; "
                    "remove it"
                ) from error
    return fixed


def _make_constant(proto: ModelProto, tensor: ValueInfoProto, value: float, path: Path) -> None:
    """Turn a graph input into an initializer that is ``value`` throughout."""
    kind = tensor.type.tensor_type
    sizes = [dim.dim_value for dim in kind.shape.dim]
    if not tensor.type.HasField("tensor_type") or not kind.HasField("shape") or 0 in sizes:
        raise InputError(
            f"{path}: the shape of input '{tensor.name}' is not known", "give `shapes`"
        )
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if dtype.hasobject:
        raise InputError(f"{path}: input '{tensor.name}' holds texts; fix inputs of numbers only")
    try:
        with np.errstate(over="raise", invalid="raise"):
            array = np.full(sizes, value, dtype)
            is_exact = bool((array == value).all())
    except (ValueError, ArithmeticError, TypeError):
        is_exact = False
    if not is_exact:
        raise InputError(f"{path}: input '{tensor.name}' of type {dtype} cannot be {value:g}")
    proto.graph.initializer.append(numpy_helper.from_array(array, tensor.name))
    proto.graph.input.remove(tensor)
