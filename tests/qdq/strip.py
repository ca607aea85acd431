"""Strip Q/DQ pairs from a model: the way back, to compare a candidate with its float model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from placer.errors import InputError
from placer.graph.edit import reads, rename_tensors, without_initializers
from placer.graph.external_data import is_external


def strip(proto: ModelProto) -> ModelProto:
    """Remove all Q/DQ pairs; quantized constants become float initializers again.

    The result computes what the float model computes, up to the rounding of constants. Graph
    outputs keep their names. A QuantizeLinear that other nodes than DequantizeLinear read stays,
    as does a DequantizeLinear whose scale is not an initializer. Raises InputError for quantized
    constants in external data or in blocks.
    """
    constants = {t.name: t for t in proto.graph.initializer}
    quantize = {n.output[0]: n for n in proto.graph.node if n.op_type == "QuantizeLinear"}
    outputs = {value.name for value in proto.graph.output}
    fixed = outputs | {value.name for value in proto.graph.input}
    new_name: dict[str, str] = {}
    nodes: list[NodeProto] = []
    for node in proto.graph.node:
        if node.op_type != "DequantizeLinear":
            nodes.append(node)
        elif node.input[0] in quantize:
            source, target = _resolve(quantize[node.input[0]].input[0], new_name), node.output[0]
            if target not in outputs:
                new_name[target] = source
            elif source not in fixed and source not in constants:
                new_name[source] = target
            else:  # Two names that must both survive.
                nodes.append(helper.make_node("Identity", [source], [target], node.name))
        elif all(name in constants for name in node.input):
            constants[node.output[0]] = _dequantized(node, constants)
        else:
            nodes.append(node)
    return _rebuilt(proto, nodes, constants, new_name)


def _resolve(tensor: str, new_name: Mapping[str, str]) -> str:
    while tensor in new_name:
        tensor = new_name[tensor]
    return tensor


def _dequantized(node: NodeProto, constants: Mapping[str, TensorProto]) -> TensorProto:
    attributes = {a.name: a.i for a in node.attribute}
    if attributes.get("block_size", 0):
        raise InputError(f"node '{node.name}' dequantizes in blocks, which cannot be stripped")
    external = next((name for name in node.input if is_external(constants[name])), None)
    if external is not None:
        raise InputError(f"initializer '{external}' is in another file; load the model with it")
    values, scale, *rest = (numpy_helper.to_array(constants[name]) for name in node.input)
    zero_point = rest[0] if rest else np.zeros_like(scale)
    if scale.ndim and scale.size > 1:
        shape = [1] * values.ndim
        shape[attributes.get("axis", 1)] = -1
        scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
    integers = values.astype(np.float64) - zero_point.astype(np.float64)
    floats = (integers.astype(scale.dtype) * scale).astype(scale.dtype)
    stored: TensorProto = numpy_helper.from_array(floats.reshape(values.shape), node.output[0])
    return stored


def _rebuilt(
    proto: ModelProto,
    nodes: list[NodeProto],
    constants: Mapping[str, TensorProto],
    new_name: Mapping[str, str],
) -> ModelProto:
    """Copy ``proto`` with these nodes, renamed, and those of ``constants`` that they read."""
    stripped = without_initializers(proto, constants)
    del stripped.graph.node[:]
    stripped.graph.node.extend(nodes)
    for node in stripped.graph.node:
        rename_tensors(node, lambda tensor: _resolve(tensor, new_name))
    _drop_unread_quantize(stripped.graph)
    read = {t for n in stripped.graph.node for t in reads(n)}
    read.update(value.name for value in proto.graph.output)
    stripped.graph.initializer.extend(t for name, t in constants.items() if name in read)
    return stripped


def _drop_unread_quantize(graph: GraphProto) -> None:
    read = {t for n in graph.node for t in reads(n)}
    read.update(value.name for value in graph.output)
    for index in reversed(range(len(graph.node))):
        node = graph.node[index]
        if node.op_type == "QuantizeLinear" and node.output[0] not in read:
            del graph.node[index]
