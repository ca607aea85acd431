"""MatMulNBits: a product whose weight is quantized in blocks and packed, several values to a byte.

As in ONNX Runtime's contrib operator reference (docs/ContribOperators.md of its repository): the
weight has shape (N, blocks, bytes of a block), its lowest bits first, and stands for a float one of
shape (K, N); scales have (N, blocks) values. Zero points are packed alike, each row of blocks in
whole bytes, or floats like the scales; without any they are the middle of the range.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from placer.model.quantized.operators import input_at, integer
from placer.model.quantized.state import ImportState

OPERATOR = "MatMulNBits"
_BITS, _DEFAULT_BITS = (2, 4, 8), 4
_WEIGHT, _SCALES, _ZERO_POINTS, _GROUPS, _BIAS = range(1, 6)


def visit_packed(state: ImportState, node: NodeProto) -> None:
    """Write the float MatMul, with an Add where there is a bias; scales of blocks are not kept.

    Raises InputError where the weight or its scales are computed, or the fields do not fit.
    """
    draft, output, bits = state.draft, node.output[0], integer(node, "bits", _DEFAULT_BITS)
    floats = _unpacked(state, node)
    weight = draft.set_constant(draft.names.of_float(node.input[_WEIGHT], ""), floats)
    name, bias = draft.node_names.plain(node.name, f"_Q{bits}"), input_at(node, _BIAS)
    product = draft.names.unused(f"{output}/product") if bias else output
    operands = [state.read(node.input[0], name, 0), weight]
    draft.append(helper.make_node("MatMul", operands, [product], name))
    if bias:
        draft.emit("Add", f"{name}/bias", [product, state.read(bias, "", 0)], output)
    state.records.seen[f"weights of {bits} bits in blocks"] += 1
    state.records.notes.append(
        f"the weight of '{name}' is float; the scales of its blocks are not kept"
    )


def _unpacked(state: ImportState, node: NodeProto) -> np.ndarray:
    """The float weight, of shape (K, N)."""
    rows, columns = integer(node, "K"), integer(node, "N")
    bits, block = integer(node, "bits", _DEFAULT_BITS), integer(node, "block_size")
    if input_at(node, _GROUPS):
        raise state.refuse(node, "reorders its rows by g_idx, which placer does not undo")
    names = (node.input[_WEIGHT], node.input[_SCALES], input_at(node, _ZERO_POINTS))
    for name in names:
        if name and name not in state.draft.constants:
            raise state.refuse(node, f"computes '{name}', its packed weight or a scale of it")
    packed, scales = state.draft.array(names[0]), state.draft.array(names[1])
    blocks = -(-rows // block) if block > 0 else 0
    if bits not in _BITS or packed.size * 8 != columns * blocks * block * bits:
        raise state.refuse(node, f"has a weight of shape {packed.shape} for {bits} bits")
    if scales.size != columns * blocks:
        raise state.refuse(node, f"has scales of shape {scales.shape} for {blocks} blocks")
    scales = scales.reshape(columns, blocks, 1)
    zero_points = np.full((columns, blocks), 1 << (bits - 1))
    if names[2]:
        given = state.draft.array(names[2])
        given = _values(given.reshape(columns, -1), bits) if given.dtype == np.uint8 else given
        zero_points = given.reshape(columns, -1)[:, :blocks]
    integers = _values(packed.reshape(columns, -1), bits).reshape(columns, blocks, block)
    steps = integers.astype(np.float64) - zero_points.astype(np.float64)[:, :, None]
    floats = (steps * scales.astype(np.float64)).reshape(columns, blocks * block)
    unpacked: np.ndarray = floats[:, :rows].T.astype(scales.dtype)
    return np.ascontiguousarray(unpacked)


def _values(packed: np.ndarray, bits: int) -> np.ndarray:
    """The values in each row of bytes, of ``bits`` each, the lowest first."""
    shifts = np.arange(0, 8, bits)
    values: np.ndarray = packed[..., None] >> shifts & (1 << bits) - 1
    return values.reshape(len(packed), -1)
