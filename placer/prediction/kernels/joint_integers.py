"""Products of one tensor's integers with float weights that are in one kernel.

What is turned as a whole is not one with what is not. Of two that are multiplied by each other, the
second operand is a kernel of its own, as in attentions of a single head.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 50 small graphs, 29 of
which are predicted exactly. Which of three products are joined depends on more if two of them are
multiplied as they are.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from placer.graph import Edge, Graph, Node
from placer.graph.kept import kept
from placer.graph.weights import weight_input
from placer.prediction.kernels.parts import Unit, role_of
from placer.prediction.kernels.turned_operands import swaps


def joint_parts(
    graph: Graph, quantized: Container[Edge], products: Sequence[Unit]
) -> Iterator[Sequence[Unit]]:
    """The ``products`` of each kernel; ``quantized``: the edges with a pair."""
    nodes = {unit.node.name for unit in products}
    second = {two for one, two in _multiplied(graph) if one != two and {one, two} <= nodes}
    free = [unit for unit in products if unit.node.name not in second]
    turned = [unit for unit in free if _is_turned(graph, quantized, unit.node)]
    yield from ([unit] for unit in products if unit.node.name in second)
    yield from (part for part in (turned, [u for u in free if u not in turned]) if part)


def _is_turned(graph: Graph, quantized: Container[Edge], product: Node) -> bool:
    """Whether rows and columns of what it makes are swapped, be it behind a bias."""
    tensor = product.outputs[0]
    bias = graph.sole_reader(tensor)
    if bias is not None and bias.op == "Add" and set(bias.inputs) & set(graph.initializers):
        tensor = bias.outputs[0]
    readers = (e for e in graph.edges_of(tensor) if e.node and e not in quantized)
    return any(swaps(graph, graph.by_name[edge.node]) for edge in readers)


@kept
def _multiplied(graph: Graph) -> tuple[tuple[str, str], ...]:
    """Of each product of activations the names of the nodes that make its two operands."""
    return tuple(
        (_origin(graph, node.inputs[0]), _origin(graph, node.inputs[1]))
        for node in graph.nodes
        if node.op == "MatMul" and weight_input(graph, node) is None
    )


def _origin(graph: Graph, tensor: str) -> str:
    """The name of the node that makes ``tensor``, but for what reads and writes it alone."""
    node = graph.producer.get(tensor)
    while node is not None and len(node.inputs) == 1 and _keeps(graph, node):
        node = graph.producer.get(node.inputs[0])
    return "" if node is None else node.name


def _keeps(graph: Graph, node: Node) -> bool:
    return node.op == "Softmax" or role_of(node) == "pointwise" or swaps(graph, node)
