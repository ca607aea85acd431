"""Tensors that hold nothing below zero, by the operators that lead to them."""

from __future__ import annotations

from onnx import numpy_helper

from placer.graph.index import Graph

# What computes nothing below zero, and what hands on values of its first input or between them.
_NEVER_NEGATIVE = frozenset(
    {"Relu", "Sigmoid", "HardSigmoid", "Softmax", "Softplus", "Abs", "Exp", "Sqrt"}
)
_HANDS_ON = frozenset(
    {"MaxPool", "GlobalMaxPool", "AveragePool", "GlobalAveragePool", "Resize", "Identity"}
    | {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "Split"}
)


def is_non_negative(tensor: str, graph: Graph) -> bool:
    """Whether the operators that lead to ``tensor`` write nothing below zero."""
    node = graph.producer.get(tensor)
    while node is not None and node.op in _HANDS_ON:
        if node.attributes.get("mode") == "cubic":  # Overshoots.
            return False
        node = graph.producer.get(node.inputs[0])
    if node is None or node.op != "Clip":
        return node is not None and node.op in _NEVER_NEGATIVE
    low = graph.initializers.get(node.inputs[1]) if len(node.inputs) > 1 else None
    least = node.attributes.get("min") if low is None else numpy_helper.to_array(low).item()
    return least is not None and float(least) >= 0
