"""ONNX graphs as such: the read-only index, edits, external data, shapes, structure."""

from placer.graph.index import (
    UNKNOWN_TYPE,
    AttributeValue,
    Edge,
    Graph,
    Node,
    TensorType,
    captured_tensors,
    index_graph,
    index_nodes,
    tensor_type,
)

__all__ = [
    "UNKNOWN_TYPE",
    "AttributeValue",
    "Edge",
    "Graph",
    "Node",
    "TensorType",
    "captured_tensors",
    "index_graph",
    "index_nodes",
    "tensor_type",
]
