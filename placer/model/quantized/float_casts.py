"""Casts between float types around a pair, as models in FP16 have them whose scales are FP32.

TensorRT-RTX 1.7.1 takes a product behind such a Cast in INT8, and the Cast before Q with the
quantizing kernel, so the pair may stand where the product reads.
"""

from __future__ import annotations

from dataclasses import replace

from onnx import NodeProto, helper

from placer.model.quantized.copies import copy_node
from placer.model.quantized.operators import integer
from placer.model.quantized.quantized_tensors import FLOATS, Quantized
from placer.model.quantized.state import ImportState


def visit_cast_behind_pair(state: ImportState, node: NodeProto) -> bool:
    """Let what reads a Cast of a pair's activations have the pair; whether that was done.

    A Cast back to the type that a Cast before the pair read is dropped with it.
    """
    info, to = state.pairs.get(node.input[0]), integer(node, "to", 0)
    target = node.output[0]
    if info is None or info.is_constant or to not in FLOATS or target in state.draft.outputs:
        return False
    before = state.draft.writer.get(info.tensor)
    if before is not None and before.op_type == "Cast" and state.types.get(before.input[0]) == to:
        moved = replace(info, tensor=before.input[0])
        if _only_casts_read(state, info.tensor, node.input[0]):
            state.records.activations.pop(info.tensor, None)
    else:
        del state.pairs[node.input[0]]  # So that the Cast itself is not taken for a reader.
        copy_node(state, node)
        state.pairs[node.input[0]] = info
        moved = replace(info, tensor=target)
    state.stand_for(target, moved)
    state.records.add_activation(moved)
    return True


def cast_by_dequantizing(state: ImportState, node: NodeProto, info: Quantized) -> Quantized:
    """``info``, behind a Cast where ``node`` dequantizes to another float type than Q read.

    So it may since opset 19, whose DequantizeLinear gives the type of its scale, and with opset
    23's output_dtype.
    """
    target = node.output[0]
    to = state.types.get(target, 0)
    if info.is_constant:
        return _retyped_constant(state, info, target, to)
    if {to, info.float_type} - FLOATS or to == info.float_type:
        return info
    cast = state.draft.names.unused(f"{target}/Cast")
    name = state.draft.node_names.unused(f"{node.name}/Cast")
    state.draft.append(helper.make_node("Cast", [info.tensor], [cast], name, to=to))
    moved = replace(info, tensor=cast, float_type=to)
    state.records.add_activation(moved)
    return moved


def _retyped_constant(state: ImportState, info: Quantized, target: str, to: int) -> Quantized:
    """A float constant behind Q and DQ in the type that the DQ gives."""
    constant, weight = state.draft.constants[info.tensor], state.records.weights.get(info.tensor)
    if {to, constant.data_type} - FLOATS or to == constant.data_type:
        return info
    values = state.draft.array(info.tensor).astype(helper.tensor_dtype_to_np_dtype(to))
    name = state.draft.set_constant(state.draft.names.of_float(target, target), values)
    if weight is not None:
        kept = state.draft.constants[name]
        state.records.keep_weight(kept, weight.scale, weight.axis, is_float8=weight.is_float8)
    return replace(info, tensor=name, float_type=to)


def _only_casts_read(state: ImportState, tensor: str, dequantized: str) -> bool:
    """Whether nothing but one Q reads ``tensor``, and Casts alone what its DQ writes."""
    readers = state.readers[dequantized]
    return len(state.readers[tensor]) == 1 and all(node.op_type == "Cast" for node in readers)
