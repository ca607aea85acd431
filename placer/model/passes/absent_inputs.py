"""Take out optional inputs that are absent and last."""

from __future__ import annotations

from onnx import GraphProto

# Their third and later inputs are optional, and exporters write "" for what is not given.
_OPERATORS = frozenset({"Pad", "Conv", "ConvTranspose", "Gemm", "Clip", "Resize"})


def drop_absent_inputs(graph: GraphProto) -> None:
    """Drop a trailing "" from the inputs of common operators.

    With one behind its pads, as Keras 3 and PyTorch write it, ONNX Runtime merges no Pad with the
    Conv that it is for.
    """
    for node in graph.node:
        if node.op_type in _OPERATORS and not node.domain:
            while len(node.input) > 1 and not node.input[-1]:
                del node.input[-1]
