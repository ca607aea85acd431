"""Rows that become a Conv's line where they are written, though others read them as rows.

A generated kernel writes both if all that is computed of the rows is computed element by element,
up to the next norm or sum: the norm or activation is computed twice rather than its rows turned.
Rows that a product of a weight reads in the end, or a norm or sum as they are, are written once,
and the Conv's kernel reads them. So are those that a product's kernel writes, unless its last step
computes of one tensor that an earlier step makes, as an activation behind a bias does, or adds
other rows to what an earlier step makes, as a residual behind a bias.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 62 small graphs of Convs
of lines behind norms, activations and sums, as in FastPitch.
"""

from __future__ import annotations

from collections.abc import Iterator

from placer.graph import Graph, Node
from placer.graph.kept import kept
from placer.prediction.kernels.parts import PRODUCTS, multiplies_weight, role_of

_NORM = "LayerNormalization"


@kept
def is_turned_as_written(graph: Graph, turn: Node) -> bool:
    """Whether the kernel that writes rows, which others read, writes the line of ``turn`` too."""
    writer = graph.producer.get(turn.inputs[0])
    if writer is None or not (writer.op == _NORM or _computes(writer)):
        return False
    if any(role_of(reader) == "reduce" for reader in _readers(graph, turn.inputs[0])):
        return False
    if _is_multiplied(graph, turn.inputs[0]):
        return False
    if _product_of(graph, writer) is None or _ends_with_function(graph, writer):
        return True
    return _adds_to_computed(graph, writer)


def _readers(graph: Graph, tensor: str) -> Iterator[Node]:
    return (graph.by_name[edge.node] for edge in graph.edges_of(tensor) if edge.node)


def _computes(node: Node) -> bool:
    return node.op not in PRODUCTS and role_of(node) == "pointwise"


def _given(graph: Graph, node: Node) -> list[str]:
    return [tensor for tensor in dict.fromkeys(node.inputs) if tensor not in graph.initializers]


def _is_multiplied(graph: Graph, rows: str) -> bool:
    """Whether a weight multiplies them, or what is computed of them element by element."""
    waiting, seen = [rows], {rows}
    for tensor in waiting:
        for reader in _readers(graph, tensor):
            if multiplies_weight(graph, reader):
                return True
            made = set(reader.outputs) - seen if _computes(reader) else set[str]()
            seen |= made
            waiting += sorted(made)
    return False


def _product_of(graph: Graph, node: Node) -> Node | None:
    """The product, of a weight or not, that makes any of what it computes of; or ``node`` itself.

    What lies between computes element by element.
    """
    waiting, seen = [node], {node.name}
    for known in waiting if node.op != _NORM else ():
        if known.op in PRODUCTS:
            return known
        for tensor in _given(graph, known) if _computes(known) else ():
            before = graph.producer.get(tensor)
            if before is not None and before.name not in seen:
                seen.add(before.name)
                waiting.append(before)
    return None


def _adds_to_computed(graph: Graph, node: Node) -> bool:
    """Whether it adds other rows than a product's to what is computed of that, as with its bias.

    Of several samples the product's as it is will do. What the product reads is added by the
    product's kernel (60 small graphs of residuals).
    """
    given = _given(graph, node)
    if len(given) != 2 or node.op != "Add":
        return False
    several = (graph.type_of(node.outputs[0]).shape or (1,))[0] != 1
    for tensor, other in (given, given[::-1]):
        before = graph.producer.get(tensor)
        product = _product_of(graph, before) if before is not None else None
        if product is not None and other not in product.inputs:
            return several or before is not product
    return False


def _ends_with_function(graph: Graph, node: Node) -> bool:
    """Whether it computes of one tensor that was computed of a product's, but by a Relu alone.

    SiLU reads its tensor twice.
    """
    given = _given(graph, node)
    if len(given) == 2:
        given = [t for t in given if _given_to(graph, given, t)]
    before = graph.producer.get(given[0]) if len(given) == 1 else None
    return before is not None and _computes(before) and before.op != "Relu"


def _given_to(graph: Graph, tensors: list[str], tensor: str) -> bool:
    """Whether the others of ``tensors`` are computed of ``tensor`` in one step."""
    others = [graph.producer.get(other) for other in tensors if other != tensor]
    return all(other is not None and _given(graph, other) == [tensor] for other in others)
