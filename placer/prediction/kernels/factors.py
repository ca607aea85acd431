"""Numbers that scale an operand of a matrix product, whose kernel multiplies by them.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 70 small graphs that scale
operands behind or before other nodes. Convs and attentions in one kernel do not take them along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping

from onnx import numpy_helper

from placer.graph import Edge, Graph, Node
from placer.graph.kept import kept
from placer.prediction.kernels.gelus import whole_gelus
from placer.prediction.kernels.parts import PRODUCTS
from placer.prediction.layers.motion import NormalForm

KEEPS_ALL = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze")


def factors(
    graph: Graph, form: NormalForm, is_attention: Callable[[Node], bool], apart: Container[str]
) -> Mapping[str, Node]:
    """By name of a Mul or Div by one number: the product that does it as well.

    ``is_attention``: whether a product is part of an attention in one kernel; ``apart``: names of
    those that are almost, which only scale what another product wrote for them.
    """
    product_of: dict[str, Node] = {}
    ends = {gelu.nodes[-1].name for gelu in whole_gelus(graph, form.scales)}
    for node in reversed(graph.nodes):
        if number(graph, node) is None or node.name in ends:
            continue
        product = _product(graph, form, node, product_of)
        given = (Edge(tensor, node.name, i) for i, tensor in enumerate(node.inputs))
        quantized = any(edge in form.scales for edge in given) or _is_scaled(graph, form, node)
        if product is None or quantized or is_attention(product):
            continue
        if product.name not in apart or _is_of_product(graph, node):
            product_of[node.name] = product
    return product_of


def _is_of_product(graph: Graph, factor: Node) -> bool:
    """Whether it scales what a product writes as it is, be it repeated for several queries."""
    node = graph.producer.get(factor.inputs[0])
    while node is not None and node.op in (*KEEPS_ALL, "Expand"):
        node = graph.producer.get(node.inputs[0])
    return node is not None and node.op in PRODUCTS


@kept
def number(graph: Graph, node: Node) -> float | None:
    """The constant that a node multiplies all elements by, or divides them by."""
    if node.op not in ("Mul", "Div"):
        return None
    for tensor in node.inputs[1:] if node.op == "Div" else node.inputs:
        if tensor in graph.initializers and math.prod(graph.initializers[tensor].dims) == 1:
            return float(numpy_helper.to_array(graph.initializers[tensor]).ravel()[0])
    return None


def _is_scaled(graph: Graph, form: NormalForm, factor: Node) -> bool:
    """Whether it multiplies what an INT8 product sums, whose scaling does it as well."""
    node: Node | None = factor
    while node is not None and node.op not in PRODUCTS:
        given = [tensor for tensor in node.inputs if tensor not in graph.initializers]
        if node is not factor and not (node.op in KEEPS_ALL or (node.op, len(given)) == ("Add", 1)):
            return False
        node = graph.producer.get(given[0]) if given else None
    return node is not None and all(
        Edge(node.inputs[i], node.name, i) in form.scales for i in (0, 1)
    )


def _product(
    graph: Graph, form: NormalForm, factor: Node, known: Mapping[str, Node]
) -> Node | None:
    """The product that alone reads what ``factor`` makes, in float; views between cost nothing."""
    tensor = factor.outputs[0]
    while True:
        edge = graph.sole_consumer(tensor)
        if edge is None or edge in form.scales:
            return None
        node = graph.by_name[edge.node]
        if node.name in known:
            return known[node.name]
        if node.op in PRODUCTS:
            return node if edge.input_index < 2 else None
        if node.op not in KEEPS_ALL:
            return None
        tensor = node.outputs[0]
