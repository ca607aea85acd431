"""Tensors in ONNX Runtime's blocked layout, in which its float kernels for images compute.

Source: nchwc_transformer.cc. Convs, and pools of whole blocks, make blocks of whatever they read;
activations, Gelu in one node or several, and Resizes keep them, and sums, products of equal
shapes and Concats do where all that they read lies in blocks. What a pair dequantizes does not, so
a tensor is in blocks only if no pair is on the way from these Convs and pools.

``block``: the number of channels in a block, which depends on the processor.
"""

from __future__ import annotations

from collections.abc import Sequence

from placer.graph import Edge, Graph, Node
from placer.rules.block_operators import edges_in_blocks
from placer.rules.block_sizes import block_sizes, equality_edges


def is_blocked(tensor: str, graph: Graph, block: int) -> bool:
    """Whether the tensor lies in blocks where nothing is quantized."""
    return tensor in block_sizes(graph, block)


def blocked_edges(tensor: str, graph: Graph, block: int) -> tuple[Edge, ...] | None:
    """The edges that carry no pair where ``tensor`` lies in blocks; None if it never does."""
    return _edges_behind([tensor], graph, block) if is_blocked(tensor, graph, block) else None


def equal_edges(join: Node, graph: Graph, block: int) -> tuple[Edge, ...]:
    """The edges that carry no pair where the operands of a sum or product are known to be equal.

    All from which their sizes come must lie in blocks, too.
    """
    edges = equality_edges(join, graph, block)
    return (*edges, *_edges_behind([edge.tensor for edge in edges], graph, block))


def _edges_behind(tensors: Sequence[str], graph: Graph, block: int) -> tuple[Edge, ...]:
    """What carries no pair where all of ``tensors`` lie in blocks."""
    blocked: dict[Edge, None] = {}
    waiting, seen = [*tensors], {*tensors}
    while waiting:
        node = graph.producer[waiting.pop()]
        edges = edges_in_blocks(node, graph, block) or ()
        if node.op == "Mul":
            edges = (*edges, *equality_edges(node, graph, block))
        for edge in edges:
            blocked[edge] = None
            if edge.tensor not in seen and edge.tensor not in graph.initializers:
                seen.add(edge.tensor)
                waiting.append(edge.tensor)
    return tuple(blocked)
