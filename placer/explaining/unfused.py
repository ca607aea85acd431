"""What an explanation says of products whose pairs keep them in float."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from placer.common.listed import in_quotes
from placer.graph import Edge
from placer.qdq.unfused_products import Reason, UnfusedProduct

# Why a product computes in float, and what to do.
_WHY: Mapping[Reason, str] = {
    "zero point": "a pair before has no zero point: ONNX Runtime multiplies integers in a Gemm "
    "only if both pairs have one; add zero points of 0",
    "factors": "alpha or beta is not 1: multiply the weight by alpha and the bias by beta instead",
    "dimensions": "the float bias does not have exactly one dimension: give it one, or quantize it "
    "to int32 with the input's scale times the weight's",
    "output": "no pair is behind and the bias is float: quantize what it writes, or the bias to "
    "int32 with the input's scale times the weight's",
    "scale": "the scale of the bias is not the input's times the weight's: leave the bias in "
    "float, or quantize it with that product as its scale",
}


def unfused(products: Sequence[UnfusedProduct]) -> Iterator[str]:
    """A sentence on ``products`` for each reason that there is."""
    for reason, why in _WHY.items():
        if nodes := [one.node for one in products if one.reason == reason]:
            yield f"{_compute(nodes)} in float, because {why}"


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


def summed(edges: Sequence[Edge]) -> str:
    """What is said of products that sum channels of different scales by ``edges`` (NNCF issue 123).

    Engines sum integers of one scale.
    """
    if not edges:
        return ""
    tensors = tuple(dict.fromkeys(edge.tensor for edge in edges))
    have = "has" if len(tensors) == 1 else "have"
    return (
        f"{_compute([edge.node for edge in edges])} in float, as {in_quotes(tensors)} {have} a "
        "scale for each channel that is summed: give each activation one scale"
    )


def _compute(nodes: Sequence[str]) -> str:
    return f"{in_quotes(nodes)} compute{'s' if len(nodes) == 1 else ''}"
