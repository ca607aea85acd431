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
    return _float_rows(state, reader, rows, scale, zero_point)


def _key(state: ImportState, tensor: str, scale: np.ndarray, zero_point: str) -> tuple[str, ...]:
    point = state.draft.array_or_zero(zero_point)
    return tensor, str(scale.item()), str(scale.dtype), str(point.item())


def _float_rows(
    state: ImportState, reader: NodeProto, rows: str, scale: np.ndarray, zero_point: str
) -> Quantized:
    """Made once for each tensor on the way from the table to ``rows``: others may end there."""
    known = _key(state, rows, scale, zero_point)
    if known not in state.rows:
        made = _float_values(state, reader, rows, scale, zero_point)
        dtype = state.draft.constants[table_behind(state, rows) or rows].data_type
        point = state.draft.array_or_zero(zero_point)
        state.rows[known] = Quantized(made, scale, point, 0, *limits_of(dtype), dtype)
        state.records.add_activation(state.rows[known])
    return state.rows[known]


def _float_values(
    state: ImportState, reader: NodeProto, rows: str, scale: np.ndarray, zero_point: str
) -> str:
    """Name of the float tensor: the table's, or what the node that writes ``rows`` takes of one."""
    if rows not in state.draft.writer:
        return _float_table(state, reader, rows, scale, zero_point)
    move = state.draft.writer[rows]
    source, copy = move.input[0], NodeProto.FromString(move.SerializeToString())
    if source in state.draft.writer:
        behind = _float_rows(state, reader, source, scale, zero_point).tensor
    else:
        behind = _float_table(state, reader, source, scale, zero_point)
    copy.name = state.draft.node_names.unused(f"{move.name}/float")
    copy.input[0], copy.output[0] = behind, state.name_of_float(rows)
    state.draft.append(copy)
    return copy.output[0]


def _float_table(
    state: ImportState, reader: NodeProto, table: str, scale: np.ndarray, zero_point: str
) -> str:
    known = _key(state, table, scale, zero_point)
    if known not in state.dequantized:
        operand = Operand(table, "", zero_point, 0)
        state.dequantized[known] = dequantize_constant(state, reader, operand, scale.reshape(()))
    return state.dequantized[known]
