"""Rows that a product with a weight writes turned, as columns.

The builder multiplies the other way round where a Transpose of two dimensions reads what a float
product writes, or its sum with a bias. The Transpose is gone then, and what follows it is computed
as behind any product, of several samples too. So MLP-Mixers turn back what they mix across tokens.

It is not so where an activation comes before the Transpose, where something else reads the rows,
or where the columns are reshaped without a bias, or to a map that a Conv, Resize or mean reads.
Products of integers leave their sums to a kernel that turns them.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 290 small graphs of one
and two samples, in FP16 and INT8.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from placer.graph import Edge, Graph, Node
from placer.graph.transposes import order_of
from placer.graph.weights import weight_input
from placer.prediction.kernels.parts import CONVS, PRODUCTS, VIEWS, role_of
from placer.prediction.kernels.turned_operands import constant_added, has_odd_rows
from placer.prediction.kernels.views import SWAPPED, only_reader, readers_of

_RANK = 3
_PARTS = ("Split", "Slice", "Concat")
_OF_MAPS = (*CONVS, "Resize", "GlobalAveragePool", "ReduceMean")
_WITHIN_MAPS = (*VIEWS, *_PARTS, "Softmax")


def turned_back(
    graph: Graph, quantized: Container[Edge], is_attention: Callable[[Node], bool]
) -> Mapping[str, Node]:
    """By name of each such product the Transpose that is gone; ``quantized``: edges with pairs."""
    found = ((node, _turn_behind(graph, node, quantized)) for node in graph.nodes)
    return {
        product.name: turn
        for product, turn in found
        if turn is not None and _are_plain(graph, turn, is_attention)
    }


def _turn_behind(graph: Graph, product: Node, quantized: Container[Edge]) -> Node | None:
    """The Transpose behind a float product of one weight, or behind its bias."""
    if not _writes_rows(graph, product):
        return None
    bias = constant_added(graph, product)
    chain = [product] if bias is None else [product, bias]
    turn = only_reader(graph, chain[-1])
    if turn is None or order_of(graph, turn) != SWAPPED:
        return None
    read = [Edge(t, n.name, i) for n in (*chain, turn) for i, t in enumerate(n.inputs)]
    return None if any(edge in quantized for edge in read) else turn


def _writes_rows(graph: Graph, product: Node) -> bool:
    """Whether it multiplies rows of samples by a weight."""
    weight = weight_input(graph, product) if product.op == "MatMul" else None
    if weight is None or weight.index != 1 or has_odd_rows(graph, product):
        return False
    given, made = (graph.type_of(t).shape or () for t in (product.inputs[0], product.outputs[0]))
    return len(given) == len(made) == _RANK and 1 not in made[1:]


def _are_plain(graph: Graph, turn: Node, is_attention: Callable[[Node], bool]) -> bool:
    """Whether the columns are computed with, summed, cut or joined, or leave the graph.

    Those of a sum with a bias may be reshaped, too, but not to a map for a Conv, Resize or mean.
    """
    before = graph.producer[turn.inputs[0]]
    known = (*_PARTS, *VIEWS) if before.op == "Add" else _PARTS
    return all(
        (role_of(reader) in ("pointwise", "reduce") or reader.op in known)
        and not (reader.op in VIEWS and _is_for_map(graph, reader))
        and not (reader.op in PRODUCTS and is_attention(reader))
        and reader.op not in CONVS
        for reader in readers_of(graph, turn.outputs[0])
    )


def _is_for_map(graph: Graph, node: Node) -> bool:
    """Whether one of ``_OF_MAPS`` reads what it writes, or what is computed of that."""
    seen, to_visit = {node.name}, [node]
    while to_visit:  # Each node once: gates and residuals are many paths to the same ones.
        for reader in readers_of(graph, to_visit.pop().outputs[0]):
            if reader.op in _OF_MAPS:
                return True
            passes_on = reader.op in _WITHIN_MAPS or role_of(reader) == "pointwise"
            if passes_on and reader.name not in seen:
                seen.add(reader.name)
                to_visit.append(reader)
    return False
