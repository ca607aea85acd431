"""GatherBlockQuantized: rows of a table that is quantized in blocks, such as an embedding.

As in ONNX Runtime's contrib operator reference (docs/ContribOperators.md of its repository): Gather
with a scale for each block of values along ``quantize_axis``. Tables of int4, uint4 and float8 have
an element for each value; of uint8 several values of ``bits`` each share a byte, the lowest bits
first, along the last axis. Zero points are packed alike; without any they are 0, of uint8 the
middle of the range.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import NodeProto, TensorProto, helper

from placer.model.quantized import arithmetic
from placer.model.quantized.operators import integer
from placer.model.quantized.packing import VALUES_AT_ONCE, constants_at, values_in_bytes
from placer.model.quantized.state import ImportState

OPERATOR = "GatherBlockQuantized"
_BITS, _DEFAULT_BITS, _DEFAULT_BLOCK = (2, 4, 8), 4, 128
_TABLE, _INDICES, _SCALES, _ZERO_POINTS = range(4)


class _Table(NamedTuple):
    """A table by the names of its tensors; ``bits`` of each value that is in bytes, else 0."""

    values: str
    scales: str
    zero_points: str  # Empty where there are none.
    axis: int
    block: int  # 0: as long as the axis.
    bits: int


def visit_packed_table(state: ImportState, node: NodeProto) -> None:
    """Write the Gather of a float table; scales of blocks are not kept.

    Nodes that read the same table share the float one. Raises InputError where the table or its
    scales are computed, or the shapes do not fit.
    """
    table = _table(state, node)
    if table not in state.unpacked:
        floats = _unpacked(state, node, table)
        tensor = state.draft.set_constant(state.draft.names.of_float(table.values), floats)
        state.unpacked[table] = tensor
    name = state.draft.node_names.plain(node.name, "_Q4")
    operands = [state.unpacked[table], state.read(node.input[_INDICES], name, 1)]
    axis = integer(node, "gather_axis")
    state.draft.append(helper.make_node("Gather", operands, [node.output[0]], name, axis=axis))
    state.records.seen["tables in blocks"] += 1
    state.records.notes.append(
        f"the table of '{name}' is float; the scales of its blocks are not kept"
    )


def _table(state: ImportState, node: NodeProto) -> _Table:
    values, scales, zero_points = constants_at(
        state, node, (_TABLE, _SCALES), (_ZERO_POINTS,), "table"
    )
    is_packed = state.draft.constants[values].data_type == TensorProto.UINT8
    bits = integer(node, "bits", _DEFAULT_BITS) if is_packed else 0
    if is_packed and bits not in _BITS:
        raise state.refuse(node, f"has values of {bits} bits, where placer unpacks 2, 4 and 8")
    axis, block = integer(node, "quantize_axis", 1), integer(node, "block_size", _DEFAULT_BLOCK)
    rank = len(state.draft.constants[values].dims)
    if not -rank <= axis < rank or (is_packed and axis % rank != rank - 1):
        raise state.refuse(node, f"has quantize_axis {axis} for a table of rank {rank}")
    return _Table(values, scales, zero_points, axis % rank, block, bits)


def _unpacked(state: ImportState, node: NodeProto, table: _Table) -> np.ndarray:
    """The float table, made of some rows at a time where blocks do not cross them."""
    stored, scales = state.draft.array(table.values), state.draft.array(table.scales)
    if not stored.size:
        raise state.refuse(node, f"has a table of shape {stored.shape}, which holds no values")
    points = _zero_points(state, table, scales)
    if scales.ndim != stored.ndim or points.shape != scales.shape:
        raise state.refuse(
            node,
            f"has scales of shape {scales.shape} and zero points of shape {points.shape} for a "
            f"table of shape {stored.shape}",
        )
    rows = len(stored)
    step = max(1, VALUES_AT_ONCE * rows // stored.size) if table.axis else rows
    parts = []
    for first in range(0, rows, step):
        part = slice(first, first + step)
        values = values_in_bytes(stored[part], table.bits) if table.bits else stored[part]
        block = table.block or values.shape[table.axis]
        try:
            parts.append(
                arithmetic.dequantize(values, scales[part], points[part], table.axis, block)
            )
        except ValueError as error:
            raise state.refuse(node, f"{error} in blocks of {block}; export it again") from error
    floats: np.ndarray = np.concatenate(parts)
    return floats


def _zero_points(state: ImportState, table: _Table, scales: np.ndarray) -> np.ndarray:
    """Zero points in the shape of the scales, as far as they fit."""
    if not table.zero_points:
        middle = 1 << (table.bits - 1) if table.bits else 0
        return np.full(scales.shape, middle, np.int16)
    given = state.draft.array(table.zero_points)
    if table.bits and scales.ndim:
        given = values_in_bytes(given, table.bits)[..., : scales.shape[-1]]
    return given
