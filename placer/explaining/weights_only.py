"""What an explanation says of Convs whose weights alone are quantized."""

from __future__ import annotations

from placer.common.listed import in_quotes
from placer.explaining.integer_nodes import integer_nodes
from placer.graph import Graph
from placer.plan import Plan
from placer.quantization import Placement

_CONVS = frozenset({"Conv", "ConvTranspose"})


def weights_only(graph: Graph, placement: Placement | None, plan: Plan) -> str:
    """A sentence on Convs that ``placement`` leaves in float; empty if there are none.

    ``plan``: what is predicted of it, where what a Conv reads may be integers though the pair is
    before a Transpose or Reshape.

    TensorRT issue 2131: weights behind DequantizeLinear alone are no INT8 Conv, and TensorRT 8
    refused them. Of MatMuls nothing is said: engines may keep their weights in integers.
    """
    edges = frozenset() if placement is None else placement.edges
    on_integers = integer_nodes(plan)
    found = []
    for node in graph.nodes:
        read = graph.edges_into(node)
        if node.op in _CONVS and len(read) > 1:
            data, weight = read[:2]
            is_bare = weight in edges and data not in edges and node.name not in on_integers
            if is_bare and weight.tensor in graph.initializers:
                found.append(node.name)
    if not found:
        return ""
    return (
        f"pairs on weights alone leave {in_quotes(found)} in float and gain no speed: quantize "
        "what these Convs read, too"
    )
