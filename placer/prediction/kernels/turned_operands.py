"""Matrices that are turned for a product with a weight, whose kernel reads them as they are.

So networks for series mix steps of time. The kernel needs an even number of rows: others are
padded before by a kernel that is named after the product, which does nothing else then; what reads
its rows cuts the padding off and has its name, too.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 32 small graphs of 7 to 25
series, in FP16 and INT8.
"""

from __future__ import annotations

import math

from placer.graph import Graph, Node
from placer.graph.kept import kept
from placer.graph.transposes import order_of
from placer.prediction.kernels.parts import PRODUCTS, multiplies_weight, role_of
from placer.prediction.kernels.views import only_reader, readers_of

_SWAPPED = ((0, 2, 1), (1, 0))


@kept
def turned_operands(graph: Graph) -> frozenset[str]:
    """Names of Transposes of two dimensions that nothing but products with weights reads."""
    return frozenset(node.name for node in graph.nodes if _is_turned_operand(graph, node))


def has_odd_rows(graph: Graph, product: Node) -> bool:
    """Whether ``product`` has an odd number of rows, and is turned before or behind its bias."""
    shape = graph.type_of(product.inputs[0]).shape or ()
    rows = shape[-2] if len(shape) > 1 else 1
    before, behind = graph.producer.get(product.inputs[0]), only_reader(graph, product)
    if rows % 2 == 0 or rows == 1 or (behind is not None and swaps(graph, behind)):
        return False  # What is turned back as it is is another product.
    if before is not None and before.name in turned_operands(graph):
        return True
    biased = product.op == "Gemm" and len(product.inputs) > 2
    if (bias := constant_added(graph, product)) is not None:
        biased, behind = True, only_reader(graph, bias)
    return biased and behind is not None and swaps(graph, behind)


def is_turned_behind(graph: Graph, product: Node) -> bool:
    """Whether a Transpose of two dimensions alone reads what it writes, or what its bias makes."""
    behind = only_reader(graph, constant_added(graph, product) or product)
    return behind is not None and swaps(graph, behind)


def is_multiplied_besides(graph: Graph, product: Node) -> bool:
    """Whether several nodes read what it writes, one of them a product with a weight.

    With a single sample one of them may also be a product of activations, or a Transpose of two
    dimensions.
    """
    if only_reader(graph, product) is not None:
        return False
    one = math.prod((graph.type_of(product.outputs[0]).shape or (0,))[:-2]) == 1
    return any(
        multiplies_weight(graph, reader)
        or (one and (swaps(graph, reader) or reader.op in PRODUCTS))
        for reader in readers_of(graph, product.outputs[0])
    )


def constant_added(graph: Graph, product: Node) -> Node | None:
    """The Add of a constant that alone reads what ``product`` writes."""
    behind = only_reader(graph, product)
    if behind is None or behind.op != "Add":
        return None
    others = [tensor for tensor in behind.inputs if tensor not in product.outputs]
    return behind if len(others) == 1 and others[0] in graph.initializers else None


def swaps(graph: Graph, node: Node) -> bool:
    """Whether it swaps the rows and columns of one matrix or of several."""
    return order_of(graph, node) in _SWAPPED


def _is_turned_operand(graph: Graph, node: Node) -> bool:
    if not swaps(graph, node):
        return False
    if node.outputs[0] in graph.outputs or 1 in (graph.type_of(node.inputs[0]).shape or (1,))[-2:]:
        return False
    before = graph.producer.get(node.inputs[0])
    if before is not None and (before.op in PRODUCTS or role_of(before) != "pointwise"):
        return False
    edges = graph.edges_of(node.outputs[0])
    readers = [graph.by_name[e.node] for e in edges if e.node and not e.input_index]
    weighted = all(multiplies_weight(graph, reader) for reader in readers)
    return len(readers) == len(edges) > 0 and weighted
