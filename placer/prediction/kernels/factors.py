"""Numbers that scale an operand of a matrix product, whose kernel multiplies by them.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 70 small graphs that scale
operands behind or before other nodes. Convs and attentions in one kernel do not take them along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from onnx import numpy_helper

from placer.graph import Edge, Graph, Node
from placer.prediction.kernels.parts import PRODUCTS
from placer.prediction.motion import NormalForm

_KEEPS_ALL = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze")
_TOLERANCE = 1e-4


def factors(
    graph: Graph, form: NormalForm, is_attention: Callable[[Node], bool]
) -> Mapping[str, Node]:
    """By name of a Mul or Div by one number: the product that does it as well.

    ``is_attention``: whether a product is part of an attention in one kernel.
    """
    found: dict[str, Node] = {}
    for node in reversed(graph.nodes):
        if number(graph, node) is None or _ends_gelu(graph, node):
            continue
        product = _product(graph, form, node, found)
        given = (Edge(tensor, node.name, i) for i, tensor in enumerate(node.inputs))
        quantized = any(edge in form.scales for edge in given)
        if product is not None and not quantized and not is_attention(product):
            found[node.name] = product
    return found


def number(graph: Graph, node: Node) -> float | None:
    """The constant that a node multiplies all elements by, or divides them by."""
    if node.op not in ("Mul", "Div"):
        return None
    for tensor in node.inputs[1:] if node.op == "Div" else node.inputs:
        if tensor in graph.initializers and math.prod(graph.initializers[tensor].dims) == 1:
            return float(numpy_helper.to_array(graph.initializers[tensor]).ravel()[0])
    return None


def _product(
    graph: Graph, form: NormalForm, factor: Node, known: Mapping[str, Node]
) -> Node | None:
    """The product that alone reads what ``factor`` makes, in float; views between cost nothing."""
    tensor = factor.outputs[0]
    while True:
        edges = graph.edges_of(tensor)
        if len(edges) != 1 or not edges[0].node or edges[0] in form.scales:
            return None
        node = graph.by_name[edges[0].node]
        if node.name in known:
            return known[node.name]
        if node.op in PRODUCTS:
            return node if edges[0].input_index < 2 else None
        if node.op not in _KEEPS_ALL:
            return None
        tensor = node.outputs[0]


def _ends_gelu(graph: Graph, half: Node) -> bool:
    """Whether it halves x (1 + erf(x / sqrt 2)): the builder knows a GELU as one function."""
    if not _is_near(number(graph, half), 0.5):
        return False
    for gate in _makers(graph, half, "Mul"):
        for added in _makers(graph, gate, "Add"):
            for erf in _makers(graph, added, "Erf"):
                return any(_is_root(graph, n) for n in _makers(graph, erf, "Div", "Mul"))
    return False


def _is_root(graph: Graph, node: Node) -> bool:
    divisor = math.sqrt(2) if node.op == "Div" else 1 / math.sqrt(2)
    return _is_near(number(graph, node), divisor)


def _makers(graph: Graph, node: Node, *ops: str) -> list[Node]:
    """The nodes of these operators that ``node`` reads."""
    made = (graph.producer.get(tensor) for tensor in node.inputs)
    return [n for n in made if n is not None and n.op in ops]


def _is_near(value: float | None, expected: float) -> bool:
    return value is not None and math.isclose(value, expected, rel_tol=_TOLERANCE)
