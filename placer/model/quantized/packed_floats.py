"""MatMulBnb4: a product whose weight is stored in bitsandbytes' floats of 4 bits, two to a byte.

As in ONNX Runtime's contrib operator reference (docs/ContribOperators.md of its repository): the
weight of shape (K, N) is transposed and flattened; each block of its values has a largest
magnitude, by which the numbers that the 4 bits stand for are multiplied. The first of two values
has the upper bits of their byte. The numbers are those of bitsandbytes' FP4 and of NF4 (QLoRA,
arXiv:2305.14314, appendix E).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from onnx import NodeProto, helper

from placer.model.quantized.operators import integer
from placer.model.quantized.packing import constants_at, positive
from placer.model.quantized.state import ImportState

OPERATOR = "MatMulBnb4"
_WEIGHT, _LARGEST = 1, 2
_OF_FP4 = np.array([0, 1 / 16, 8, 12, 4, 6, 2, 3]) / 12
_OF_NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
# By quant_type: what each of the 16 numbers of 4 bits stands for.
_NUMBERS: Mapping[int, np.ndarray] = {0: np.concatenate([_OF_FP4, -_OF_FP4]), 1: np.array(_OF_NF4)}


class _Packed(NamedTuple):
    weight: str
    largest: str
    rows: int
    columns: int
    block: int
    kind: int


def visit_packed_floats(state: ImportState, node: NodeProto) -> None:
    """Write the float MatMul; scales of blocks are not kept.

    Nodes that share a packed weight share the float one. Raises InputError where the weight or its
    scales are computed, or the fields do not fit.
    """
    draft, packed = state.draft, _packed(state, node)
    if packed not in state.unpacked:
        floats = _unpacked(state, node, packed)
        state.unpacked[packed] = draft.set_constant(draft.names.of_float(packed.weight), floats)
    name = draft.node_names.plain(node.name, "_Bnb4")
    operands = [state.read(node.input[0], name, 0), state.unpacked[packed]]
    draft.append(helper.make_node("MatMul", operands, [node.output[0]], name))
    state.records.seen["weights of 4 bits in blocks"] += 1
    state.records.notes.append(
        f"the weight of '{name}' is float; the scales of its blocks are not kept"
    )


def _packed(state: ImportState, node: NodeProto) -> _Packed:
    weight, largest = constants_at(state, node, (_WEIGHT, _LARGEST))
    rows, columns, block = (positive(state, node, name) for name in ("K", "N", "block_size"))
    kind = integer(node, "quant_type", -1)
    if kind not in _NUMBERS:
        raise state.refuse(node, f"has quant_type = {kind}, where placer unpacks FP4 (0), NF4 (1)")
    if not integer(node, "transB", 1):
        raise state.refuse(node, "has transB = 0, as in training; export it for inference")
    return _Packed(weight, largest, rows, columns, block, kind)


def _unpacked(state: ImportState, node: NodeProto, packed: _Packed) -> np.ndarray:
    """The float weight, of shape (K, N)."""
    stored, largest = (state.draft.array(name) for name in (packed.weight, packed.largest))
    count = packed.rows * packed.columns
    blocks = -(-count // packed.block)
    if stored.dtype != np.uint8 or stored.size != -(-count // 2) or largest.size != blocks:
        raise state.refuse(
            node,
            f"has a weight of shape {stored.shape} and {stored.dtype} with {largest.size} scales, "
            f"where {count} values in blocks of {packed.block} belong",
        )
    numbers = _NUMBERS[packed.kind].astype(largest.dtype)
    codes = np.stack([stored.ravel() >> 4, stored.ravel() & 15], axis=-1).ravel()[:count]
    floats = numbers[codes] * np.repeat(largest.ravel(), packed.block)[:count]
    transposed: np.ndarray = floats.reshape(packed.columns, packed.rows).T
    return np.ascontiguousarray(transposed)
