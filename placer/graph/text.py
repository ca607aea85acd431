"""Small models in the ONNX text format, as rules carry them in their tests."""

from __future__ import annotations

import math
import re

import onnx
import onnx.checker
import onnx.parser
import onnx.shape_inference
from google.protobuf.message import DecodeError

from placer.common.limits import Limits, how_to_lift
from placer.errors import InputError
from placer.graph.index import Graph, dimensions, index_graph, names_of_dimensions, tensor_type

# The last ones are what C++ throws of its own, at numbers e.g.
_INVALID = (
    *(onnx.parser.ParseError, onnx.checker.ValidationError, DecodeError),
    *(IndexError, ValueError, RuntimeError),
)
# Strings, comments and the arrow, whose brackets nest nothing.
_NO_BRACKETS = re.compile(r'"(?:\\.|[^"\\])*"|#[^\n]*|=>', re.DOTALL)


def parse_model(text: str) -> onnx.ModelProto:
    """Parse an ONNX text model; an initializer given one value is filled with it.

    Raises InputError if the text is not a valid model or larger or nested deeper than the limits.
    """
    proto = _parsed(text)
    check_values(_values(proto), "an ONNX text model has initializers")
    try:
        for tensor in proto.graph.initializer:
            _fill(tensor)
        onnx.checker.check_model(proto, full_check=True)
    except onnx.shape_inference.InferenceError as error:
        raise InputError(f"shapes of the ONNX text model do not fit: {error}") from error
    except _INVALID as error:
        raise InputError(f"not a valid ONNX text model: {error}") from error
    return proto


def values_of_text(text: str) -> int:
    """How many values the initializers of an ONNX text model have; none of them is made.

    Raises InputError if the text is no ONNX text or larger or nested deeper than the limits.
    """
    return _values(_parsed(text))


def check_values(values: int, which: str) -> None:
    """Raise InputError, beginning with ``which``, for more ``values`` than the limits allow.

    A rule's test needs the shape of a weight, not its size.
    """
    limit = Limits.from_environment().test_values
    if values > limit:
        raise InputError(
            f"{which} of {values:,} values in all, more than {limit:,}; use smaller ones, or "
            + how_to_lift("test_values", values)
        )


def _parsed(text: str) -> onnx.ModelProto:
    """The model as written, before its initializers are filled."""
    _check_text(text)
    try:
        return onnx.parser.parse_model(text)
    except _INVALID as error:
        raise InputError(f"not a valid ONNX text model: {error}") from error


def _values(proto: onnx.ModelProto) -> int:
    return sum(max(math.prod(tensor.dims), 0) for tensor in proto.graph.initializer)


def _check_text(text: str) -> None:
    """Refuse what ONNX's parser in C++ cannot take: it recurses and runs out of stack.

    Each level of its recursion takes a bracket outside of strings and comments. Its stack holds
    thousands of levels and the limit is far below that, so no process of its own is needed.
    """
    limits = Limits.from_environment()
    if len(text) > limits.text_bytes:
        raise InputError(
            f"an ONNX text model has {len(text):,} characters, more than {limits.text_bytes:,}; "
            "use a smaller one"
        )
    if "\0" in text:
        raise InputError("an ONNX text model holds a NUL character; remove it")
    depth = 0
    for character in _NO_BRACKETS.sub(" ", text):
        if character in "([{<":
            depth += 1
            if depth > limits.text_depth:
                raise InputError(
                    f"an ONNX text model is nested more than {limits.text_depth} levels deep; "
                    "use a flatter one"
                )
        elif character in ")]}>":
            depth = max(depth - 1, 0)


def _fill(tensor: onnx.TensorProto) -> None:
    """Repeat the only value of a float tensor, so that rule files need not spell out weights."""
    size = math.prod(tensor.dims)
    if len(tensor.float_data) == 1 and size > 1:
        tensor.float_data.extend([tensor.float_data[0]] * (size - 1))


def graph_of_text(text: str) -> Graph:
    """Parse an ONNX text model and index it; raises InputError if it is not a valid model."""
    model = parse_model(text)
    names = names_of_dimensions(model.graph)
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    values = [*graph.input, *graph.value_info, *graph.output]
    types = {value.name: tensor_type(value) for value in values}
    left_open = {v.name: dimensions(v, names) for v in values if types[v.name].shape is None}
    return index_graph(graph, types, open_tensors=left_open)
