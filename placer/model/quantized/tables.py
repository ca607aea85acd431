"""Rows that a node takes of a quantized table, such as an embedding, as rows of a float one."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from placer.model.quantized.constants import dequantize_constant
from placer.model.quantized.qoperator import Operand
from placer.model.quantized.quantized_tensors import BYTES, Quantized
from placer.model.quantized.scales import limits_of
from placer.model.quantized.state import ImportState

_TAKES = frozenset(
    "Gather GatherND Identity Reshape Unsqueeze Squeeze Flatten Transpose Slice".split()
)


def table_behind(state: ImportState, tensor: str) -> str | None:
    """The constant of 8 bits whose rows ``tensor`` holds; None if it holds something else."""
    draft = state.draft
    while tensor in draft.writer and draft.writer[tensor].op_type in _TAKES:
        tensor = draft.writer[tensor].input[0]
    is_table = tensor in draft.constants and draft.constants[tensor].data_type in BYTES
    return tensor if is_table else None


def rows_of_table(
    state: ImportState, reader: NodeProto, rows: str, scale: np.ndarray, zero_point: str
) -> Quantized | None:
    """The float rows behind ``rows``, which ``reader`` reads; None unless the table has one scale.

    ``rows``: has a ``table_behind`` it. The nodes that take them take them of the float table too.
    The integers stay for other readers.
    """
    if scale.size != 1 or state.draft.array_or_zero(zero_point).size != 1:
        return None
    known = _key(state, rows, scale, zero_point)
    if known not in state.rows:
        state.rows[known] = _float_rows(state, reader, rows, scale, zero_point)
    return state.rows[known]


def _key(state: ImportState, tensor: str, scale: np.ndarray, zero_point: str) -> tuple[str, ...]:
    point = state.draft.array_or_zero(zero_point)
    return tensor, str(scale.item()), str(scale.dtype), str(point.item())


def _float_rows(
    state: ImportState, reader: NodeProto, rows: str, scale: np.ndarray, zero_point: str
) -> Quantized:
    draft, moves, table = state.draft, list[NodeProto](), rows
    while table in draft.writer:
        moves.append(draft.writer[table])
        table = moves[-1].input[0]
    known = _key(state, table, scale, zero_point)
    if known not in state.dequantized:
        operand = Operand(table, "", zero_point, 0)
        state.dequantized[known] = dequantize_constant(state, reader, operand, scale.reshape(()))
    made = state.dequantized[known]
    for move in reversed(moves):
        copy = NodeProto.FromString(move.SerializeToString())
        copy.name = draft.node_names.unused(f"{move.name}/float")
        copy.input[0], made = made, state.name_of_float(move.output[0])
        copy.output[0] = made
        draft.append(copy)
    dtype = draft.constants[table].data_type
    info = Quantized(made, scale, draft.array_or_zero(zero_point), 0, *limits_of(dtype), dtype)
    state.records.add_activation(info)
    return info
