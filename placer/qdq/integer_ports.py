"""Graph inputs and outputs that are integers of a pair, whose other half is outside of the model.

By the placement their edges are quantized as between two nodes, but no layer converts what enters
or leaves.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto, TensorProto

from placer.graph import Graph, TensorType
from placer.graph.index import with_nodes
from placer.qdq.extract import ExtractedModel

_INTEGERS: Mapping[int | None, str] = {TensorProto.INT8: "int8", TensorProto.UINT8: "uint8"}
_Q, _DQ = "QuantizeLinear", "DequantizeLinear"


def with_float_ports(model: ExtractedModel, graph: Graph) -> tuple[Graph, Mapping[str, str]]:
    """``graph``, which is of ``model``, with such inputs and outputs as float tensors.

    Returns their integer types as well, ONNX's names in lower case, by tensor.
    """
    nodes = model.proto.graph.node
    readers: dict[str, list[NodeProto]] = {}
    for node in nodes:
        for tensor in node.input:
            readers.setdefault(tensor, []).append(node)
    outputs = {output.name for output in model.proto.graph.output}
    types: dict[str, TensorType] = {}
    for tensor in graph.inputs:
        read = readers.get(tensor, [])
        if read and tensor not in outputs and all(_is_data(_DQ, node, tensor) for node in read):
            types[tensor] = graph.type_of(read[0].output[0])
    for node in nodes:
        if node.op_type == _Q and node.output[0] in outputs:
            types[node.output[0]] = graph.type_of(node.input[0])
    declared = {tensor: graph.type_of(tensor).dtype for tensor in types}
    integers = {
        tensor: _INTEGERS[dtype]
        for tensor, dtype in declared.items()
        if dtype in _INTEGERS and types[tensor].is_float
    }
    if not integers:
        return graph, {}
    known = {tensor: types[tensor] for tensor in integers}
    return with_nodes(graph, graph.nodes, types=known), integers


def _is_data(op: str, node: NodeProto, tensor: str) -> bool:
    return node.op_type == op and tensor not in node.input[1:]
