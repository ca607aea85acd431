"""What an explanation says of products whose pairs keep them in float."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placer.common.listed import in_quotes
from placer.graph import Edge
from placer.qdq.unfused_products import UnfusedProduct


def unfused(products: Sequence[UnfusedProduct]) -> Iterator[str]:
    """A sentence on ``products`` for each reason that there is."""
    if bare := [one.node for one in products if not one.has_zero_points]:
        yield (
            f"{_compute(bare)} in float, because a pair before has no zero point: ONNX Runtime "
            "multiplies integers in a Gemm only if both pairs have one; add zero points of 0"
        )
    if off := [one.node for one in products if one.has_zero_points]:
        yield (
            f"{_compute(off)} in float, because the scale of the bias is not the input's times the "
            "weight's: leave the bias in float, or quantize it with that product as its scale"
        )


def shifted(edges: Sequence[Edge]) -> str:
    """A sentence on products that read weights by ``edges``, as the engine multiplies no others."""
    if not edges:
        return ""
    nodes = [edge.node for edge in edges]
    return (
        f"{_compute(nodes)} in float, as {'its' if len(nodes) == 1 else 'their'} weights are of "
        "uint8 or have another zero point than 0; quantize weights to int8 with zero point 0, as "
        "placer optimize does"
    )


def _compute(nodes: Sequence[str]) -> str:
    return f"{in_quotes(nodes)} compute{'s' if len(nodes) == 1 else ''}"
