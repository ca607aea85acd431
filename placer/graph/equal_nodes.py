"""Nodes that compute the same from the same: what engines make one of."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, numpy_helper

from placer.graph.external_data import is_external
from placer.graph.randomness import RANDOM_OPS

_MAX_ELEMENTS = 1 << 12  # Larger constants are the same only where they are one initializer.


@dataclass(frozen=True)
class Call:
    """A node: what it reads and writes.

    ``data``: the input that it hands on as it is. ``scope``: the body that it stands in.
    """

    op: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Iterable[onnx.AttributeProto]
    data: str | None = None
    scope: object = ()


def equal_calls(calls: Sequence[Call], constants: Mapping[str, TensorProto]) -> Mapping[int, int]:
    """By place of each node that computes what one before it does the place of the first such.

    ``calls``: in topological order. Nodes read the same if they read equal constants, what nodes
    that hand on read, and what equal nodes write, in the same order. Nodes with bodies and random
    ones are equal to none.
    """
    names = {name: _digest(name, tensor) for name, tensor in constants.items()}
    first: dict[object, int] = {}
    equal_of: dict[int, int] = {}
    for place, call in enumerate(calls):
        if call.data is not None:
            names[call.outputs[0]] = names.get(call.data, call.data)
            continue
        if call.op in RANDOM_OPS or not call.outputs or any(map(_is_body, call.attributes)):
            continue
        inputs = [names.get(tensor, tensor) for tensor in call.inputs]
        attributes = tuple(sorted(a.SerializeToString() for a in call.attributes))
        written = tuple(map(bool, call.outputs))
        key = call.op, tuple(inputs), attributes, written, call.scope
        other = first.setdefault(key, place)
        if other != place:
            equal_of[place] = other
            names.update(zip(call.outputs, calls[other].outputs, strict=True))
    return equal_of


def _is_body(attribute: onnx.AttributeProto) -> bool:
    return attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def _digest(name: str, tensor: TensorProto) -> str:
    """A name for what a constant holds, its own where it is large or in another file."""
    if is_external(tensor) or math.prod(tensor.dims) > _MAX_ELEMENTS:
        return name
    try:
        content = numpy_helper.to_array(tensor).tobytes()
    except (TypeError, ValueError):  # Strings, and tensors whose values were left out.
        return name
    digest = hashlib.sha256(content).hexdigest()
    return f"{tensor.data_type} {list(tensor.dims)} {digest}"
