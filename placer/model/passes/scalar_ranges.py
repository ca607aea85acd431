"""Bounds of Range with one dimension, which ONNX Runtime takes and ONNX's inference refuses.

They show once an If or a body that hides their shapes is replaced by what runs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import GraphProto, NodeProto, ValueInfoProto, helper, numpy_helper

from placer.graph.edit import replace_nodes
from placer.graph.names import UnusedNames, tensor_names


def make_scalars(graph: GraphProto, values: Mapping[str, ValueInfoProto]) -> None:
    """Reshape to scalars what Range nodes read that has one dimension; ``values``: inferred."""
    ranks = {name: len(value.type.tensor_type.shape.dim) for name, value in values.items()}
    ranks.update((tensor.name, len(tensor.dims)) for tensor in graph.initializer)
    names = UnusedNames(tensor_names(graph))
    nodes: list[NodeProto] = []
    scalars: dict[str, str] = {}
    for node in graph.node:
        for position, name in enumerate(node.input if node.op_type == "Range" else ()):
            if ranks.get(name) != 1:
                continue
            if name not in scalars:
                scalars[name], shape = names.unused(f"{name}/scalar"), names.unused(f"{name}/shape")
                graph.initializer.append(numpy_helper.from_array(np.empty(0, np.int64), shape))
                nodes.append(helper.make_node("Reshape", [name, shape], [scalars[name]]))
            node.input[position] = scalars[name]
        nodes.append(node)
    if scalars:
        replace_nodes(graph, nodes)
