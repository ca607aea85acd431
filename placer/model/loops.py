"""How often a Loop runs, as far as the model fixes it."""

from __future__ import annotations

from onnx import GraphProto, NodeProto, TensorProto, numpy_helper

from placer.graph.bodies import ends_by_itself
from placer.graph.external_data import is_external

_NO_LIMIT = 2**63 - 1


def endless_trips(node: NodeProto, graph: GraphProto) -> int:
    """Trips of a Loop in ``graph`` that ends by its trip count alone, else 0.

    A Loop whose condition the body computes is exported with the largest count there is and ends
    by itself. See https://onnx.ai/onnx/operators/onnx__Loop.html.
    """
    if node.op_type != "Loop" or node.domain:
        return 0
    body = next((a.g for a in node.attribute if a.name == "body"), None)
    if body is None or not body.output or ends_by_itself(body):
        return 0
    count = node.input[0] if node.input else ""
    return _constant(count, graph) if count else _NO_LIMIT


def _constant(name: str, graph: GraphProto) -> int:
    """Value of an integer constant of ``graph``, 0 if ``name`` is none."""
    tensors = [t for t in graph.initializer if t.name == name]
    for node in graph.node:
        if node.op_type == "Constant" and name in node.output:
            tensors += [a.t for a in node.attribute if a.name == "value"]
    for tensor in tensors:
        if tensor.data_type in (TensorProto.INT64, TensorProto.INT32) and not is_external(tensor):
            try:
                values = numpy_helper.to_array(tensor)
            except ValueError:  # Damaged: told where tensors are checked.
                return 0
            return int(values.max()) if values.size else 0
    return 0
