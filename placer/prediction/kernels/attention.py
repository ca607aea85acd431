"""Attentions that are one kernel, and the matrix products of others.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of attentions with heads of 4
to 32 channels, with keys narrower than values, and with an odd number of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from placer.graph import Graph, Node

# A Softmax of old opsets is over all that follows its axis: exporters flatten before.
_FLAT = ("Flatten", "Reshape")
_NARROWEST = 8  # Channels of a head; those of other than a multiple of it are padded.


def attentions(graph: Graph) -> Mapping[str, tuple[Node, ...]]:
    """By name of their first MatMul: products, scaling, mask and Softmax of each attention."""
    found = {}
    for softmax in graph.nodes:
        if softmax.op != "Softmax" or _is_of_one_head(graph, softmax):
            continue
        inner, node = [softmax], graph.producer.get(softmax.inputs[0])
        while node is not None and node.op in (*_FLAT, "Mul", "Div", "Add"):
            inner.insert(0, node)
            made = [graph.producer[t] for t in node.inputs if t in graph.producer]
            node = made[0] if len(made) == 1 else None
        mix = _only_reader(graph, softmax)
        while mix is not None and mix.op in _FLAT:
            inner.append(mix)
            mix = _only_reader(graph, mix)
        if node is None or mix is None or {node.op, mix.op} != {"MatMul"}:
            continue
        if mix.inputs[0] != inner[-1].outputs[0]:  # Scores that weight columns.
            continue
        heads = all(_is_heads(graph, t) for t in (*node.inputs, *mix.inputs))
        if heads and _is_even(graph, node, mix):
            found[node.name] = (node, *inner, mix)
    return found


def _is_of_one_head(graph: Graph, softmax: Node) -> bool:
    """Whether it is of a single head of a single sample, whose products are single matrices."""
    return math.prod((graph.type_of(softmax.outputs[0]).shape or (0,))[:-2]) == 1


def _only_reader(graph: Graph, node: Node) -> Node | None:
    readers = graph.edges_of(node.outputs[0])
    return graph.by_name.get(readers[0].node) if len(readers) == 1 else None


def _is_heads(graph: Graph, tensor: str) -> bool:
    """Whether an attention may read it: an activation, or learned queries of several heads."""
    return tensor in graph.producer or len(graph.type_of(tensor).shape or ()) > 2


def _is_even(graph: Graph, scores: Node, mix: Node) -> bool:
    """Whether keys and values are as wide, and no narrower than a kernel reads."""
    wide = head_width(graph, scores)
    values = (graph.type_of(mix.outputs[0]).shape or (0,))[-1]
    return wide == values >= _NARROWEST


def head_width(graph: Graph, scores: Node) -> int:
    """How many channels a head has; 0 if that is not known."""
    return (graph.type_of(scores.inputs[0]).shape or (0,))[-1]


def is_padded(graph: Graph, scores: Node) -> bool:
    """Whether queries, keys and values get channels of zeros before, taken off behind."""
    return head_width(graph, scores) % _NARROWEST != 0
