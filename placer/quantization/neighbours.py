"""Weights whose products do not saturate where a processor adds pairs of them in 16 bits.

x86 without VNNI multiplies uint8 by int8 with VPMADDUBSW, which adds the products of two neighbours
in 16 bits and saturates at 32767. 255 times the sum of two weights stays below that while the sum
is at most 128. Sources: Intel's Software Developer's Manual, volume 2, PMADDUBSW; MlasGemm's
kernels of uint8 and int8 in ONNX Runtime; oneDNN, "Nuances of int8 computations".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placer.graph import Graph, Node
from placer.graph.weights import WeightInput, weight_input

# Of two neighbours, in integers: 255 times as much is the largest number of 16 bits.
LARGEST_SUM = 128


def added_in_pairs(graph: Graph, node: Node) -> WeightInput | None:
    """The weight of ``node`` if kernels may add its products in pairs; None without one.

    Those of a depthwise Conv multiply one input channel and add in 32 bits, and a constant left
    operand is the one that takes uint8.
    """
    weight = weight_input(graph, node)
    if weight is None or weight.index == 0:
        return None
    if node.op != "Conv":
        return weight
    written, read = list(graph.initializers[weight.tensor].dims)[:2]
    is_depthwise = read == 1 and node.attributes.get("group", 1) == written
    return None if is_depthwise else weight


def weight_magnitudes(values: np.ndarray, node: Node, weight: WeightInput) -> np.ndarray:
    """``magnitudes`` of a weight as ``node`` multiplies by it, float32 in the shape of ``values``.

    Kernels go through the inputs of one output after the other: see ``weight_input`` for the axes.
    """
    if not values.size:
        return values.astype(np.float32)
    if weight.axis is None:  # A vector.
        return magnitudes(values.astype(np.float32), values.shape[-1:])
    moved = np.moveaxis(values.astype(np.float32), weight.axis, 0)
    kernel = moved.shape[1:] if node.op in ("Conv", "ConvTranspose") else (moved[0].size,)
    found = magnitudes(moved.reshape(len(moved), -1), kernel).reshape(moved.shape)
    return np.moveaxis(found, 0, weight.axis)


def magnitudes(rows: np.ndarray, kernel: Sequence[int]) -> np.ndarray:
    """Of each weight the larger of its magnitude and that of its sum with the one before it.

    ``rows``: shape (..., k), where k weights of one output are flattened from the sizes ``kernel``.
    The result has the same shape; its maximum over the last axis is what must not exceed 128 times
    the scale.
    """
    result: np.ndarray = np.abs(rows)
    for order in _orders(kernel):
        placed = rows[..., order]
        sums = np.abs(placed[..., 1:] + placed[..., :-1])
        result[..., order[1:]] = np.maximum(result[..., order[1:]], sums)
    return result


def neighbours(kernel: Sequence[int]) -> np.ndarray:
    """Indices of the weights before and behind each, in any order: shape (2 or 4, k).

    Where there is none, the index is k.
    """
    found = []
    for order in _orders(kernel):
        size = len(order)
        before, behind = np.full(size, size), np.full(size, size)
        before[order[1:]], behind[order[:-1]] = order[:-1], order[1:]
        found += [before, behind]
    return np.array(found)


def _orders(kernel: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Orders in which kernels go through the weights of one output, as indices of shape (k,).

    Of a Conv, whose sizes are (channels, k...): as they are stored, as for images with channels
    first, and with the channels last.
    """
    indices = np.arange(int(np.prod(kernel))).reshape(tuple(kernel))
    stored, last = indices.reshape(-1), np.moveaxis(indices, 0, -1).reshape(-1)
    return (stored,) if np.array_equal(stored, last) else (stored, last)
