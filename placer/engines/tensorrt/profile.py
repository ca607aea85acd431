"""The optimization profile: shapes that an engine takes, and values of inputs that are a shape.

TensorRT refuses a network with dynamic inputs or shape tensors among its inputs without one; see
``IOptimizationProfile.set_shape`` and ``set_shape_input``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from placer.common.names import unknown
from placer.errors import InputError
from placer.graph.shapes import ShapeRange

OPTION = "shape-values"
_VALUES = re.compile(r"-?\d+(,-?\d+)*")


@dataclass(frozen=True)
class ValueRange:
    """Which values an input that is a shape may have, and those the engine is made fastest for."""

    minimum: tuple[int, ...]
    optimum: tuple[int, ...]
    maximum: tuple[int, ...]


def parse_shape_values(text: str) -> dict[str, ValueRange]:
    """Read ``NAME=VALUES`` or ``NAME=MIN:OPT:MAX``, several with ``;`` between, values with ``,``.

    Raises InputError for anything else, for unequal numbers of values and for values out of order.
    """
    return dict(_parsed(part) for part in text.split(";"))


def _parsed(text: str) -> tuple[str, ValueRange]:
    shown = f"engine option {OPTION}={text}"
    name, _, given = text.rpartition("=")
    parts = given.split(":")
    if not name or len(parts) not in (1, 3) or not all(map(_VALUES.fullmatch, parts)):
        raise InputError(f"{shown}: write NAME=VALUES or NAME=MIN:OPT:MAX, values as 1,64,64")
    least, best, most = ([int(v) for v in part.split(",")] for part in parts * (3 // len(parts)))
    if not len(least) == len(best) == len(most):
        raise InputError(f"{shown}: give minimum, optimum and maximum the same number of values")
    if not all(a <= b <= c for a, b, c in zip(least, best, most, strict=True)):
        raise InputError(f"{shown}: values are not in order; give minimum, optimum and maximum")
    return name, ValueRange(tuple(least), tuple(best), tuple(most))


def add_profile(
    builder: Any,
    network: Any,
    config: Any,
    shapes: Mapping[str, ShapeRange],
    values: Mapping[str, ValueRange],
) -> Any | None:
    """Give ``config`` the profile that the inputs of ``network`` need; None if they need none.

    ``values`` must have all that ``missing_values`` asks for. Raises InputError for shapes or
    values that they do not take.
    """
    known = _inputs(network)
    for name, given in shapes.items():
        if name not in known:
            raise InputError(f"the shape of {name} is given: {unknown('input', name, known)}")
        given.check(name, [None if d < 0 else int(d) for d in known[name].shape])
    settling = _settling(known)
    _check_values(settling, values)
    dynamic = [tensor for tensor in known.values() if -1 in tuple(tensor.shape)]
    if not dynamic and not settling:
        return None
    profile = builder.create_optimization_profile()
    for tensor in dynamic:
        ones = tuple(max(int(d), 1) for d in tensor.shape)
        shape_range = shapes.get(tensor.name, ShapeRange.fixed(ones))
        profile.set_shape(
            tensor.name, shape_range.minimum, shape_range.optimum, shape_range.maximum
        )
    for name in settling:
        found_values = values[name]
        profile.set_shape_input(
            name, found_values.minimum, found_values.optimum, found_values.maximum
        )
    if config.add_optimization_profile(profile) < 0:
        names = ", ".join([*(tensor.name for tensor in dynamic), *settling])
        raise InputError(f"the shapes given for {names} are not a valid range; order min, opt, max")
    return profile


def missing_values(network: Any, values: Mapping[str, ValueRange]) -> str | None:
    """Which input of ``network`` has a shape for its values that ``values`` does not give."""
    for name, tensor in _settling(_inputs(network)).items():
        if name not in values:
            return (
                f"the values of input '{name}' are a shape, and their range must be known; engines "
                f"tensorrt and tensorrt-rtx take its {_count(tensor)} as engine option "
                f"{OPTION}={name}=MIN:OPT:MAX"
            )
    return None


def _inputs(network: Any) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in map(network.get_input, range(network.num_inputs))}


def _settling(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tensor for name, tensor in inputs.items() if tensor.is_shape_tensor}


def _count(tensor: Any) -> int:
    return prod(int(d) for d in tensor.shape)


def _check_values(settling: Mapping[str, Any], values: Mapping[str, ValueRange]) -> None:
    """Raise InputError unless ``values`` are of inputs in ``settling``, as many as each takes."""
    for name, given in values.items():
        if name not in settling:
            why = unknown("input whose values are a shape", name, settling)
            raise InputError(f"engine option {OPTION}: {why}")
        count = _count(settling[name])
        if len(given.optimum) != count:
            raise InputError(
                f"engine option {OPTION}: input '{name}' has {count} values, not "
                f"{len(given.optimum)}"
            )
