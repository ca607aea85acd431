"""What an explanation says of pairs on what the model returns."""

from __future__ import annotations

from collections.abc import Mapping

from placer.common.listed import in_quotes
from placer.graph import Edge

_BITS_8 = frozenset({"int8", "uint8", "float8e4m3fn"})


def output_pairs(types: Mapping[Edge, str]) -> str:
    """A sentence on pairs of 8 bits on graph outputs; empty if there are none.

    ``types``: what the pairs of the file quantize to, by edge. Quantizers that put a pair behind
    every operator put it there, too.
    """
    outputs = sorted({e.tensor for e, dtype in types.items() if not e.node and dtype in _BITS_8})
    if not outputs:
        return ""
    one = len(outputs) == 1
    pairs = "the pair on the output" if one else "pairs on the outputs"
    return (
        f"{pairs} {in_quotes(outputs)} round{'s' * one} what the model returns to 8 bits: take "
        f"{'it' if one else 'them'} out unless that is meant, as NVIDIA advises (TensorRT issue "
        "2604)"
    )
