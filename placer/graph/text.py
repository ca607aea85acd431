"""Small models in the ONNX text format, as rules carry them in their tests."""

from __future__ import annotations

import math

import onnx
import onnx.checker
import onnx.parser
import onnx.shape_inference

from placer.errors import InputError
from placer.graph.index import Graph, index_graph, tensor_type


def parse_model(text: str) -> onnx.ModelProto:
    """Parse an ONNX text model; an initializer given one value is filled with it.

    Raises InputError if the text is not a valid model.
    """
    try:
        proto = onnx.parser.parse_model(text)
        for tensor in proto.graph.initializer:
            _fill(tensor)
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.parser.ParseError, onnx.checker.ValidationError) as error:
        raise InputError(f"not a valid ONNX text model: {error}") from error
    except onnx.shape_inference.InferenceError as error:
        raise InputError(f"shapes of the ONNX text model do not fit: {error}") from error
    return proto


def _fill(tensor: onnx.TensorProto) -> None:
    """Repeat the only value of a float tensor, so that rule files need not spell out weights."""
    if len(tensor.float_data) == 1:
        tensor.float_data.extend([tensor.float_data[0]] * (math.prod(tensor.dims) - 1))


def graph_of_text(text: str) -> Graph:
    """Parse an ONNX text model and index it; raises InputError if it is not a valid model."""
    inferred = onnx.shape_inference.infer_shapes(parse_model(text), data_prop=True)
    graph = inferred.graph
    values = [*graph.input, *graph.value_info, *graph.output]
    return index_graph(graph, {value.name: tensor_type(value) for value in values})
