"""Element-wise nodes that compute the other operands of a layer's nodes, and are part of it.

OpenVINO's kernel of attention computes masks and biases that it adds (TokenizeMHASnippets; plans of
OpenVINO 2026.4.1 of ten small graphs).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from placer.graph import Graph, Node
from placer.rules.fusion_schema import Fusion
from placer.rules.match import Match

# A constant may be the first operand; in products of integers of Div, but not of Sub.
_EITHER = frozenset({"Add", "Mul", "Sub", "Max", "Min"})
_EITHER_IN_INTEGERS = _EITHER - {"Sub"} | {"Div"}


def find_branches(match: Match, fusion: Fusion, graph: Graph) -> list[Node]:
    """The nodes before those of ``fusion.branches``, whichever operand they compute."""
    matched = {node.name for name in fusion.nodes for node in match.row(name)}
    found = list[Node]()
    for name in fusion.branches:
        operators = match.rule.pattern[name].op
        for node in match.row(name):
            for tensor in node.inputs:
                found += _branch(tensor, operators, matched, graph)
    return found


def has_scalar_operands(match: Match, fusion: Fusion, graph: Graph) -> bool:
    """Whether nodes of ``fusion.scalar_operands`` have one computed operand and scalars besides."""
    nodes = (node for name in fusion.scalar_operands for node in match.row(name))
    return all(_is_with_scalars(node, graph) for node in nodes)


def _is_with_scalars(node: Node, graph: Graph) -> bool:
    computed = [i for i, t in enumerate(node.inputs) if t and t not in graph.initializers]
    alone = computed == [0] or (computed == [1] and node.op in _EITHER_IN_INTEGERS)
    return alone and all(_is_scalar(t, graph) for t in node.inputs if t in graph.initializers)


def _branch(
    tensor: str, operators: Collection[str], matched: Collection[str], graph: Graph
) -> Iterator[Node]:
    """The nodes that compute ``tensor``, the last first, as far as a kernel takes them."""
    node = graph.producer.get(tensor)
    while node is not None and node.op in operators and node.name not in matched:
        computed = [index for index, t in enumerate(node.inputs) if t not in graph.initializers]
        scalars = (t for t in node.inputs if t in graph.initializers)
        first = computed == [0] or (len(computed) == 1 and node.op in _EITHER)
        if not first or not all(_is_scalar(t, graph) for t in scalars):
            return
        if len(graph.edges_of(node.outputs[0])) != 1:
            return
        yield node
        node = graph.producer.get(node.inputs[computed[0]])


def _is_scalar(tensor: str, graph: Graph) -> bool:
    shape = graph.type_of(tensor).shape
    return shape is not None and math.prod(shape) == 1
