"""Constant nodes as initializers."""

from __future__ import annotations

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from placer.graph.edit import replace_nodes
from placer.model.passes.sparse_initializers import dense


def constants_to_initializers(graph: GraphProto) -> int:
    """Replace the Constant nodes of ``graph`` by initializers; return how many.

    Strings stay, and so does what is in subgraphs, and sparse tensors that ``dense`` leaves.
    """
    kept: list[NodeProto] = []
    for node in graph.node:
        tensor = constant_of(node)
        if tensor is None:
            kept.append(node)
        else:
            tensor.name = node.output[0]
            graph.initializer.append(tensor)
    count = len(graph.node) - len(kept)
    if count:
        replace_nodes(graph, kept)
    return count


def constant_of(node: NodeProto) -> TensorProto | None:
    """The value of a Constant node; None for strings and for other nodes, see ``dense``, too."""
    if node.op_type != "Constant" or len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    tensor: TensorProto
    if attribute.name == "value":
        tensor = attribute.t
    elif attribute.name in ("value_float", "value_floats", "value_int", "value_ints"):
        value = helper.get_attribute_value(attribute)
        floats = attribute.type in (AttributeProto.FLOAT, AttributeProto.FLOATS)
        tensor = numpy_helper.from_array(np.array(value, np.float32 if floats else np.int64))
    elif attribute.name == "sparse_value":
        values = dense(attribute.sparse_tensor)
        return None if values is None else numpy_helper.from_array(values)
    else:
        return None
    return tensor
