"""Means by which a normalization that is written out shifts or scales."""

from __future__ import annotations

import math

from onnx import numpy_helper

from placer.graph import Edge, Graph, Node

# A variance, a constant that is added to it and what limits it; Mul and Pow are looked at.
_BEFORE_ROOT = frozenset(
    {"Add", "Sub", "Max", "Clip", "Abs", "Cast", "Identity"}
    | {"Reshape", "Flatten", "Squeeze", "Unsqueeze"}
)


def is_norm_statistic(tensor: str, graph: Graph) -> bool:
    """Whether ``tensor`` is a mean that is taken from its own input, or leads to a root or divisor.

    Sums, differences, limits, views, constant factors and squares may stand before the root; what
    has another number of elements is no statistic any more.
    """
    mean = graph.producer.get(tensor)
    if mean is None:
        return False
    todo, seen = [tensor], {tensor}
    while todo:
        for edge in graph.edges_of(todo.pop()):
            node = graph.by_name.get(edge.node)
            if node is None:
                continue
            if _normalizes(node, edge, mean.inputs[0], graph):
                return True
            output = node.outputs[0]
            if output not in seen and _leads_on(node, graph) and _as_long(output, tensor, graph):
                seen.add(output)
                todo.append(output)
    return False


def _normalizes(node: Node, edge: Edge, source: str, graph: Graph) -> bool:
    """Whether ``node`` takes a root of what it reads at ``edge``, or shifts or divides by it."""
    second = edge.input_index == 1
    match node.op:
        case "Sqrt" | "Reciprocal":
            return True
        case "Sub":
            return second and node.inputs[0] == source
        case "Div":
            return second
        case "Pow":
            return not second and _exponent(node, graph) < 1
    return False


def _leads_on(node: Node, graph: Graph) -> bool:
    if node.op == "Mul":
        constant = any(tensor in graph.initializers for tensor in node.inputs)
        return constant or node.inputs[0] == node.inputs[1]
    return node.op in _BEFORE_ROOT or (node.op == "Pow" and _exponent(node, graph) < math.inf)


def _exponent(node: Node, graph: Graph) -> float:
    """Infinity where it is no single constant."""
    constant = graph.initializers.get(node.inputs[1])
    if constant is None or math.prod(constant.dims) != 1:
        return math.inf
    return float(numpy_helper.to_array(constant).item())


def _as_long(output: str, tensor: str, graph: Graph) -> bool:
    """Whether both have equally many elements, or it is not known."""
    shapes = [graph.types[t].shape if t in graph.types else None for t in (output, tensor)]
    first, second = (None if shape is None else math.prod(shape) for shape in shapes)
    return first == second or None in (first, second)
