"""Quantize and dequantize by float operators, where a pair cannot stand for its float tensor."""

from __future__ import annotations

from onnx import NodeProto

from placer.model.quantized import arithmetic
from placer.model.quantized.operators import input_at
from placer.model.quantized.quantized_tensors import BYTES, INTEGERS, Quantized
from placer.model.quantized.scales import limits_of
from placer.model.quantized.state import ImportState


def expand_dequantize(state: ImportState, node: NodeProto) -> None:
    """Integers from elsewhere, a graph input for example: (q - zero point) * scale."""
    draft, source = state.draft, node.input[0]
    if source in state.quantized:
        expand_quantize(state, node, source)
    if node.input[1] not in draft.constants or draft.array(node.input[1]).size != 1:
        raise state.refuse(node, f"dequantizes '{source}' with scales that are not constant")
    zero_point, scale = draft.array_or_zero(input_at(node, 2)), draft.array(node.input[1])
    part = arithmetic.dequantize_nodes(source, node.output[0], scale, zero_point, draft.names)
    draft.extend(part)
    dtype = state.types.get(source, 0)
    if source in draft.inputs and dtype in BYTES:  # The other half of the pair is the caller's.
        info = Quantized(node.output[0], scale, zero_point, 0, *limits_of(dtype), dtype)
        state.records.add_activation(info)
        state.stand_for(node.output[0], info)
    state.records.notes.append(
        f"node '{node.name}' dequantizes '{source}', which nothing here quantizes with that "
        "scale: written as arithmetic"
    )


def expand_quantize(state: ImportState, node: NodeProto, integers: str) -> None:
    """Compute ``integers`` by float operators, for a reader that needs them as such."""
    if integers in state.expanded:
        return
    info = state.quantized[integers]
    if info.scale is None:
        raise state.refuse(
            node,
            f"reads the integers of '{info.tensor}', whose scale is computed at run time, with a "
            "scale of its own",
        )
    if info.scale.size != 1 or info.dtype not in INTEGERS:
        raise state.refuse(node, f"reads the quantized values of '{info.tensor}'")
    if state.draft.opset < 11:
        raise state.refuse(node, "reads quantized values in a model of an opset below 11")
    state.expanded.add(integers)
    limits, names = (info.lowest, info.highest), state.draft.names
    part = arithmetic.quantize_nodes(
        info.tensor, integers, info.scale, info.zero_point, limits, info.dtype, names
    )
    state.draft.extend(part)
    if not node.op_type and info.dtype in BYTES:  # The pair's other half is the caller's.
        state.draft.mark(info, part[0][0].name, 0)
    reader = f"node '{node.name}' ({node.op_type})" if node.op_type else node.name
    state.records.notes.append(
        f"quantization of '{info.tensor}' is written as arithmetic: {reader} reads the integers"
    )
