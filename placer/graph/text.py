"""Small models in the ONNX text format, as rules carry them in their tests."""

from __future__ import annotations

import math
import re

import onnx
import onnx.checker
import onnx.parser
import onnx.shape_inference
from google.protobuf.message import DecodeError

from placer.common.limits import Limits
from placer.errors import InputError
from placer.graph.index import Graph, dimensions, index_graph, names_of_dimensions, tensor_type

# A rule's test needs the shape of a weight, not its size.
MAX_FILLED = 1 << 22
# Strings, comments and the arrow, whose brackets nest nothing.
_NO_BRACKETS = re.compile(r'"(?:\\.|[^"\\])*"|#[^\n]*|=>', re.DOTALL)


def parse_model(text: str) -> onnx.ModelProto:
    """Parse an ONNX text model; an initializer given one value is filled with it.

    Raises InputError if the text is not a valid model or larger or nested deeper than the limits.
    """
    _check_text(text)
    try:
        proto = onnx.parser.parse_model(text)
        for tensor in proto.graph.initializer:
            _fill(tensor)
        onnx.checker.check_model(proto, full_check=True)
    except onnx.shape_inference.InferenceError as error:
        raise InputError(f"shapes of the ONNX text model do not fit: {error}") from error
    except (
        *(onnx.parser.ParseError, onnx.checker.ValidationError, DecodeError),
        *(IndexError, ValueError, RuntimeError),  # What C++ throws of its own, at numbers e.g.
    ) as error:
        raise InputError(f"not a valid ONNX text model: {error}") from error
    return proto


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
        if size > MAX_FILLED:
            raise InputError(
                f"initializer '{tensor.name}' has {size:,} values, more than {MAX_FILLED:,}; "
                "use a smaller one"
            )
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
