"""Nodes that read integers: those that move them move the float values behind them instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from onnx import NodeProto

from placer.graph.edit import reads
from placer.model.quantized import arithmetic
from placer.model.quantized.copies import copy_node
from placer.model.quantized.expansion import expand_quantize
from placer.model.quantized.operators import input_at, integer
from placer.model.quantized.quantized_tensors import Quantized
from placer.model.quantized.scales import is_quantized_type
from placer.model.quantized.state import ImportState

# Hand integers on, or choose among them, so they do the same to the float values behind them.
MOVERS: Final = frozenset(
    "Reshape Flatten Squeeze Unsqueeze Transpose Identity Slice Split Gather GatherElements "
    "GatherND Expand Tile Concat MaxPool Pad Resize DepthToSpace SpaceToDepth".split()
)


def visit_reader_of_integers(state: ImportState, node: NodeProto) -> None:
    """Move the float values where ``node`` moves integers; else compute the integers it reads."""
    infos = [state.quantized[t] for t in node.input if t in state.quantized]
    first = state.quantized.get(node.input[0]) if node.input else None
    to = integer(node, "to", 0)
    if first is not None and node.op_type == "Cast" and is_quantized_type(to):
        state.casts += 1
        state.quantized[node.output[0]] = replace(first, dtype=to)
    elif first is not None and node.op_type == "Clip" and _has_limits(state, node):
        _narrow(state, node, first)
    elif infos and _moves(state, node, infos):
        _move(state, node, infos[0])
    else:
        for tensor in dict.fromkeys(t for t in reads(node) if t in state.quantized):
            expand_quantize(state, node, tensor)
        copy_node(state, node)


def _has_limits(state: ImportState, node: NodeProto) -> bool:
    return all(input_at(node, index) in state.draft.constants for index in (1, 2))


def _narrow(state: ImportState, node: NodeProto, info: Quantized) -> None:
    """A Clip between Q and DQ: PyTorch's way to write a narrower type, e.g. [-127, 127]."""
    low, high = (float(state.draft.array(name).item()) for name in node.input[1:3])
    narrow = replace(info, lowest=max(low, info.lowest), highest=min(high, info.highest))
    state.quantized[node.output[0]] = narrow
    if not info.is_constant and info.scale is not None:
        state.records.activations.pop(info.tensor, None)
        state.records.add_activation(narrow)


def _moves(state: ImportState, node: NodeProto, infos: Sequence[Quantized]) -> bool:
    """Whether ``node`` only moves integers, all of one scale and none a constant."""
    if node.op_type not in MOVERS or any(info.is_constant for info in infos):
        return False
    data = node.input if node.op_type == "Concat" else node.input[:1]
    return all(t in state.quantized for t in data) and len({i.key for i in infos}) == 1


def _move(state: ImportState, node: NodeProto, info: Quantized) -> None:
    """Let a node that moves integers move the float values behind them."""
    copy = NodeProto.FromString(node.SerializeToString())
    for index, tensor in enumerate(node.input):
        if tensor in state.quantized:
            copy.input[index] = state.quantized[tensor].tensor
            state.draft.mark(state.quantized[tensor], node.name, index)
        elif node.op_type == "Pad" and index == 2 and tensor:
            copy.input[index] = _padding(state, node, tensor, info)
        else:
            copy.input[index] = state.read(tensor, node.name, index)
    if node.op_type == "Pad" and not input_at(node, 2) and info.zero_point.any():
        _pad_with_zero(state, node, copy, info)
    for index, target in enumerate(node.output):
        if target:
            moved = replace(info, tensor=state.name_of_float(target))
            copy.output[index] = moved.tensor
            state.quantized[target] = moved
            state.records.add_activation(moved)
    state.draft.append(copy)


def _padding(state: ImportState, node: NodeProto, tensor: str, info: Quantized) -> str:
    if tensor not in state.draft.constants or info.scale is None or info.scale.size != 1:
        raise state.refuse(node, "pads integers with a value that is not constant")
    value = arithmetic.dequantize(state.draft.array(tensor), info.scale, info.zero_point, 0)
    return state.draft.add_constant(f"{tensor}/float", value)


def _pad_with_zero(state: ImportState, node: NodeProto, copy: NodeProto, info: Quantized) -> None:
    """Pad with what the integer 0 stands for, which is what Pad takes where no value is given."""
    mode = next((a.s for a in node.attribute if a.name == "mode"), b"constant")
    if mode != b"constant" or state.draft.opset < 11:
        return
    if info.scale is None or info.scale.size != 1:
        raise state.refuse(node, "pads integers of several scales with 0")
    zero = arithmetic.dequantize(np.zeros((), np.int64), info.scale, info.zero_point, 0)
    value = state.draft.add_constant(f"{node.name}/value", zero.reshape(()))
    copy.input[:] = [*copy.input[:2], value, *copy.input[3:]]
