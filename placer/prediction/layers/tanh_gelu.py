"""Gelu that a graph approximates with Tanh, in the forms that OpenVINO's GeluFusion knows.

0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), where x^3 is a Pow or x times x^2. Half of x, or
half of the sum with Tanh, is taken; behind the product with x only where x^3 is no Pow. Plans of
OpenVINO 2026.4.1 of 45 small graphs, behind Convs, products and reductions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from placer.graph import Edge, Graph, Node
from placer.graph.operators import STANDARD_DOMAINS
from placer.prediction.layers.single_numbers import is_near, only_number

_CUBIC, _ROOT = 0.044715, math.sqrt(2 / math.pi)


def tanh_gelu(graph: Graph, readers: Sequence[Edge]) -> tuple[Node, ...]:
    """The nodes in order that the ``readers`` of a tensor begin; none if they are no Gelu."""
    tensor = readers[0].tensor
    first = {edge.node: graph.by_name[edge.node] for edge in readers}
    for inner in first.values():
        cubic = _cubic(graph, inner, tensor)
        if cubic is None:
            continue
        rest = _behind(graph, inner, tensor, has_power=any(node.op == "Pow" for node in cubic))
        nodes = {node.name: node for node in (*cubic, inner, *(rest or ()))}
        if rest is not None and first.keys() <= nodes.keys():
            return tuple(sorted(nodes.values(), key=lambda node: node.index))
    return ()


def _cubic(graph: Graph, inner: Node, tensor: str) -> list[Node] | None:
    """What computes 0.044715 x^3, which ``inner`` adds to x."""
    factor = _operand(graph, inner, "Add", tensor)
    if factor is None or not _is_by(graph, factor, "Mul", _CUBIC):
        return None
    cube = _varying(graph, factor)
    if cube is None:
        return None
    if cube.op == "Pow":
        exponent = only_number(graph, cube.inputs[1])
        return [factor, cube] if cube.inputs[0] == tensor and is_near(exponent, 3) else None
    square = _operand(graph, cube, "Mul", tensor)
    is_square = square is not None and square.op == "Mul" and set(square.inputs) == {tensor}
    return [factor, cube, square] if square is not None and is_square else None


def _behind(graph: Graph, inner: Node, tensor: str, has_power: bool) -> list[Node] | None:
    """The nodes from the root to the last product."""
    chain = _in_a_row(graph, inner, 4)
    if len(chain) < 4:
        return None
    root, tanh, one, product = chain
    if not (_is_by(graph, root, "Mul", _ROOT) and tanh.op == "Tanh"):
        return None
    if not _is_by(graph, one, "Add", 1) or product.op != "Mul":
        return None
    if _is_by(graph, product, "Mul", 0.5):
        last = graph.sole_reader(product.outputs[0])
        is_last = last is not None and last.op == "Mul" and tensor in last.inputs
        return [*chain, last] if last is not None and is_last else None
    if tensor in product.inputs:
        last = None if has_power else graph.sole_reader(product.outputs[0])
        return [*chain, last] if last is not None and _is_by(graph, last, "Mul", 0.5) else None
    half = _operand(graph, product, "Mul", one.outputs[0])
    is_half = half is not None and _is_by(graph, half, "Mul", 0.5) and tensor in half.inputs
    return [*chain, half] if half is not None and is_half else None


def _in_a_row(graph: Graph, node: Node, count: int) -> list[Node]:
    """Up to ``count`` nodes behind ``node``, each of which alone reads the one before."""
    row = list[Node]()
    while len(row) < count:
        node_behind = graph.sole_reader((row[-1] if row else node).outputs[0])
        if node_behind is None:
            break
        row.append(node_behind)
    return row


def _operand(graph: Graph, node: Node, op: str, tensor: str) -> Node | None:
    """What writes the other operand of a node of that operator than ``tensor``."""
    if node.op != op or tensor not in node.inputs or node.domain not in STANDARD_DOMAINS:
        return None
    other = next((name for name in node.inputs if name != tensor), None)
    return None if other is None else graph.producer.get(other)


def _varying(graph: Graph, node: Node) -> Node | None:
    """What writes the operand of a node that is no constant."""
    writers = [graph.producer[name] for name in node.inputs if name in graph.producer]
    return writers[0] if len(writers) == 1 else None


def _is_by(graph: Graph, node: Node, op: str, expected: float) -> bool:
    numbers = [only_number(graph, name) for name in node.inputs]
    return node.op == op and any(is_near(number, expected) for number in numbers)
