"""MatMulNBits: a product whose weight is quantized in blocks and packed, several values to a byte.

As in ONNX Runtime's contrib operator reference (docs/ContribOperators.md of its repository): the
weight has shape (N, blocks, bytes of a block), its lowest bits first, and stands for a float one of
shape (K, N); scales have (N, blocks) values. Zero points are packed alike, each row of blocks in
whole bytes, or floats like the scales; without any they are the middle of the range.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import NodeProto, helper

from placer.model.quantized.operators import input_at, integer
from placer.model.quantized.packing import (
    VALUES_AT_ONCE,
    constants_at,
    positive,
    values_in_bytes,
)
from placer.model.quantized.state import ImportState

OPERATOR = "MatMulNBits"
_BITS, _DEFAULT_BITS = (2, 4, 8), 4
_WEIGHT, _SCALES, _ZERO_POINTS, _GROUPS, _BIAS = range(1, 6)


class _Packed(NamedTuple):
    """A weight of shape (K, N) by the names of its tensors, and how it is packed."""

    weight: str
    scales: str
    zero_points: str  # Empty where there are none.
    rows: int
    columns: int
    bits: int
    block: int

    @property
    def blocks(self) -> int:
        """Blocks of a column."""
        return -(-self.rows // self.block)


def visit_packed(state: ImportState, node: NodeProto) -> None:
    """Write the float MatMul, with an Add where there is a bias; scales of blocks are not kept.

    Nodes that share a packed weight share the float one. Raises InputError where the weight or its
    scales are computed, the fields do not fit, or the weight is laid out for kernels of a GPU.
    """
    draft, output, packed = state.draft, node.output[0], _packed(state, node)
    if packed not in state.unpacked:
        floats = _unpacked(state, node, packed)
        tensor = draft.set_constant(draft.names.of_float(packed.weight), floats)
        state.unpacked[packed] = tensor
    weight = state.unpacked[packed]
    name, bias = draft.node_names.plain(node.name, f"_Q{packed.bits}"), input_at(node, _BIAS)
    product = draft.names.unused(f"{output}/product") if bias else output
    operands = [state.read(node.input[0], name, 0), weight]
    draft.append(helper.make_node("MatMul", operands, [product], name))
    if bias:
        draft.emit("Add", f"{name}/bias", [product, state.read(bias, "", 0)], output)
    state.records.seen[f"weights of {packed.bits} bits in blocks"] += 1
    state.records.notes.append(
        f"the weight of '{name}' is float; the scales of its blocks are not kept"
    )


def _packed(state: ImportState, node: NodeProto) -> _Packed:
    """How the weight of ``node`` is packed; InputError if placer cannot unpack it so."""
    rows, columns, block = (positive(state, node, name) for name in ("K", "N", "block_size"))
    bits, layout = integer(node, "bits", _DEFAULT_BITS), integer(node, "weight_prepacked")
    if layout:
        raise state.refuse(
            node,
            f"has a weight laid out for kernels of a GPU (weight_prepacked = {layout}), which "
            "placer does not undo",
        )
    if bits not in _BITS:
        raise state.refuse(node, f"has weights of {bits} bits, where placer unpacks 2, 4 and 8")
    given = constants_at(state, node, (_WEIGHT, _SCALES), (_ZERO_POINTS, _GROUPS))
    weight, scales, zero_points, groups = given
    if groups:
        of_rows = state.draft.array(groups).ravel()[:rows]
        if not np.array_equal(of_rows, np.arange(rows) // block):
            raise state.refuse(node, "reorders its rows by g_idx, which placer does not undo")
    return _Packed(weight, scales, zero_points, rows, columns, bits, block)


def _unpacked(state: ImportState, node: NodeProto, packed: _Packed) -> np.ndarray:
    """The float weight, of shape (K, N)."""
    columns, bits, blocks = packed.columns, packed.bits, packed.blocks
    integers, scales = (state.draft.array(name) for name in (packed.weight, packed.scales))
    if integers.dtype != np.uint8 or integers.size * 8 != columns * blocks * packed.block * bits:
        raise state.refuse(
            node, f"has a weight of shape {integers.shape} and {integers.dtype} for {bits} bits"
        )
    if scales.size != columns * blocks:
        raise state.refuse(node, f"has scales of shape {scales.shape} for {blocks} blocks")
    zero_points = _zero_points(state, node, packed)
    integers, scales = integers.reshape(columns, -1), scales.reshape(columns, blocks)
    floats = np.empty((packed.rows, columns), scales.dtype)
    step = max(1, VALUES_AT_ONCE // (blocks * packed.block))
    for first in range(0, columns, step):
        part = slice(first, first + step)
        values = values_in_bytes(integers[part], bits).reshape(-1, blocks, packed.block)
        steps = values.astype(np.float64) - zero_points[part, :, None]
        steps *= scales[part, :, None].astype(np.float64)
        floats[:, part] = steps.reshape(len(steps), -1)[:, : packed.rows].T
    return floats


def _zero_points(state: ImportState, node: NodeProto, packed: _Packed) -> np.ndarray:
    """The zero points as float64, of shape (N, blocks)."""
    columns, bits, blocks = packed.columns, packed.bits, packed.blocks
    if not packed.zero_points:
        return np.full((columns, blocks), float(1 << (bits - 1)))
    given = state.draft.array(packed.zero_points)
    is_packed = given.dtype == np.uint8
    each = -(-blocks * bits // 8) if is_packed else blocks
    if given.size != columns * each:
        raise state.refuse(
            node,
            f"has zero points of shape {given.shape} and {given.dtype}, where {columns} columns "
            f"of {blocks} blocks have {columns * each}",
        )
    given = given.reshape(columns, each)
    values = values_in_bytes(given, bits)[:, :blocks] if is_packed else given
    return values.astype(np.float64)
