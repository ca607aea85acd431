"""What the report tells of a node that is clicked: tensors with shapes and ranges, attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx

from placer.graph import UNKNOWN_TYPE, Edge, Node
from placer.report.run_folder import Topology

# Longer values, such as the pads of many axes or a body's tensors, are cut.
MOST_CHARACTERS = 80
Details = list[Any]


def node_details(topology: Topology) -> list[Details]:
    """For each node its name, attributes, inputs and outputs, as the page's script reads them.

    An input is ``[tensor, type and shape, range]``, an output ``[tensor, type and shape]``; what is
    not known is an empty text. The range is what the scale of the input's pair represents.
    """
    return [
        [node.name, "; ".join(_attributes(node)), _inputs(node, topology), _outputs(node, topology)]
        for node in topology.nodes
    ]


def _inputs(node: Node, topology: Topology) -> list[list[str]]:
    rows = []
    for index, tensor in enumerate(node.inputs):
        if tensor:
            known = topology.ranges.get(Edge(tensor, node.name, index))
            span = "" if known is None else f"{known.low:.4g} to {known.high:.4g}"
            rows.append([tensor, _type(tensor, topology), span])
    return rows


def _outputs(node: Node, topology: Topology) -> list[list[str]]:
    return [[tensor, _type(tensor, topology)] for tensor in node.outputs if tensor]


def _type(tensor: str, topology: Topology) -> str:
    known = topology.types.get(tensor, UNKNOWN_TYPE)
    name = "" if not known.dtype else onnx.TensorProto.DataType.Name(known.dtype).lower()
    if known.shape is None:
        return name
    return f"{name} {'x'.join(map(str, known.shape)) or 'scalar'}".strip()


def _attributes(node: Node) -> Iterator[str]:
    for name, value in node.attributes.items():
        yield f"{name} = {_value(value)}"


def _value(value: object) -> str:
    match value:
        case onnx.TensorProto():
            return f"tensor of shape {'x'.join(map(str, value.dims)) or 'scalar'}"
        case onnx.GraphProto():
            return f"graph of {len(value.node)} nodes"
        case float():
            return f"{value:.6g}"
        case list():
            text = f"[{', '.join(map(_value, value))}]"
        case _:
            text = str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
