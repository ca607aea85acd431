"""A model for one value of an input, such as a sampling rate, and for one shape of others.

What depends on that value alone becomes constant, and of each If that it decides the branch that
runs takes its place, so that rules see what was in its body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, ValueInfoProto, helper, numpy_helper

from placer.common.files import check_writable, real_path
from placer.common.names import unknown
from placer.errors import InputError
from placer.graph.bodies import Bodies, bodies_of
from placer.graph.edit import all_tensors, fix_input_shapes
from placer.graph.external_data import check_tensors, data_folder
from placer.model.input_shapes import given_shapes
from placer.model.normalize import normalize, tidy
from placer.model.quantized import is_quantized
from placer.model.save import saved_together
from placer.model.validate import read_model

# How the names of metadata begin that say which inputs a model was fixed for, and to what.
_KEY = "placer.fixed."


@dataclass(frozen=True)
class FixedModel:
    """What ``fix_inputs`` wrote: ``nodes`` nodes, and the bodies that are left."""

    model: Path
    nodes: int
    bodies: Bodies


def fix_inputs(
    model: Path | str,
    output: Path | str,
    values: Mapping[str, float],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    *,
    replace: bool = False,
) -> FixedModel:
    """Write the float ``model`` with the inputs of ``values`` as constants, normalised.

    ``shapes`` are written into the file, too. An If that these decide is replaced by the branch
    that runs. ``replace``: whether a file that no run of placer wrote may be written over.

    Raises InputError for an input that is not there or whose shape is not known, a
    value that its type does not have, and a model that is quantized.
    """
    path, target = Path(model), Path(output)
    if real_path(target) == real_path(path):
        raise InputError(f"{target} is the model itself; choose another output")
    check_writable(target, replace=replace)  # Else that is noticed when the model is loaded.
    proto = read_model(path)
    tensors = list(all_tensors(proto.graph))
    base_dir = data_folder(tensors, path)
    check_tensors(tensors, base_dir, path)
    if is_quantized(proto):
        raise InputError(f"{path} is quantized; recover the float model by placer import first")
    tidy(proto)
    fix_in_place(proto, values, shapes or {}, path)
    proto = normalize(proto, base_dir, path).proto
    with saved_together(proto, base_dir, target):
        pass
    return FixedModel(target, len(proto.graph.node), bodies_of(proto))


def fix_in_place(
    proto: ModelProto,
    values: Mapping[str, float],
    shapes: Mapping[str, tuple[int, ...]],
    path: Path,
) -> None:
    """Turn the inputs of ``values`` into constants, and write ``shapes`` into the others.

    ``proto``: tidy. Its metadata say what was fixed, see ``fixed_values``. Raises InputError as
    ``fix_inputs`` does.
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
