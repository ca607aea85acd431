"""What an explanation says of Convs whose weights alone are quantized."""

from __future__ import annotations

from collections.abc import Collection

from onnx import TensorProto

from placer.common.listed import in_quotes
from placer.explaining.integer_nodes import integer_nodes
from placer.graph import Edge, Graph
from placer.plan import Plan
from placer.qdq.unfused_products import behind_moves
from placer.quantization import Placement

_CONVS = frozenset({"Conv", "ConvTranspose"})
_NARROW = frozenset({TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1})


def weights_only(
    graph: Graph, placement: Placement | None, idle: Collection[Edge], plan: Plan
) -> str:
    """A sentence on Convs that ``placement`` leaves in float; empty if there are none.

    ``idle``: edges with pairs that no kernel takes, as those of blocks. ``plan``: what is predicted
    of it, where what a Conv reads may be integers though the pair is before a Transpose or Reshape.

    TensorRT issue 2131: weights behind DequantizeLinear alone are no INT8 Conv, and TensorRT 8
    refused them. Of MatMuls nothing is said: engines may keep their weights in integers.
    """
    edges = frozenset(idle) if placement is None else placement.edges.union(idle)
    on_integers = integer_nodes(plan)
    found: list[str] = []
    is_narrow = False
    for node in graph.nodes:
        read = graph.edges_into(node)
        if node.op in _CONVS and len(read) > 1:
            data, weight = read[:2]
            is_bare = weight in edges and behind_moves(data, edges, graph) not in edges
            is_bare = is_bare and node.name not in on_integers
            if is_bare and weight.tensor in graph.initializers:
                found.append(node.name)
                is_narrow |= graph.initializers[weight.tensor].data_type in _NARROW
    if not found:
        return ""
    narrow = ", and the weights to 8 bits: no Conv multiplies by 4 bits" if is_narrow else ""
    return (
        f"pairs on weights alone leave {in_quotes(found)} in float and gain no speed: quantize "
        f"what these Convs read, too{narrow}"
    )
