"""Means over the places of a map, written as the pooling that they are.

PyTorch's exporters and Keras write both operators. OpenVINO and TensorRT build them alike; ONNX
Runtime has kernels for pooling only that read integers or blocks of channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from placer.graph.edit import readers_by_tensor
from placer.graph.external_data import is_external

_MAP = 4  # Dimensions of a map: samples, channels, rows and columns.
_PLACES = {2, 3}


def pool_means(graph: GraphProto, infer: Callable[[], Mapping[str, ValueInfoProto]]) -> int:
    """Make GlobalAveragePool of each ReduceMean that is one; return how many.

    A mean that is subtracted, as where a normalization is written out, stays. ``infer``: returns
    types of tensors; called once if they matter.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    means = [node for node in graph.node if _axes(node, constants) is not None]
    if not means:
        return 0
    readers = readers_by_tensor(graph.node)
    values, count = infer(), 0
    for node in means:
        data, mean = node.input[0], node.output[0]
        is_subtracted = any(reader.op_type == "Sub" for reader in readers[mean])
        axes = _axes(node, constants) or set()
        rank = _rank(values.get(data))
        if rank == _MAP and {axis % rank for axis in axes} == _PLACES and not is_subtracted:
            node.CopyFrom(helper.make_node("GlobalAveragePool", [data], [mean], name=node.name))
            count += 1
    return count


def _axes(node: NodeProto, constants: Mapping[str, TensorProto]) -> set[int] | None:
    """The axes of a ReduceMean that keeps them; None of other nodes, or if they are not known."""
    if node.op_type != "ReduceMean" or node.domain:
        return None
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if not attributes.get("keepdims", 1):
        return None
    if len(node.input) == 1:
        return set(attributes.get("axes", ())) or None
    tensor = constants.get(node.input[1])
    if tensor is None or is_external(tensor):
        return None
    return {int(axis) for axis in numpy_helper.to_array(tensor).reshape(-1)} or None


def _rank(value: ValueInfoProto | None) -> int:
    """Of a float tensor; 0 if it is not known."""
    if value is None or value.type.tensor_type.elem_type not in (
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
        TensorProto.BFLOAT16,
    ):
        return 0
    return len(value.type.tensor_type.shape.dim)
