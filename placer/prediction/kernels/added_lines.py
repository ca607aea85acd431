"""Rows that a Conv's line is turned to and that a product's sums are added to or multiplied by.

The product's kernel turns the line itself, if it does nothing behind that and products or sums with
them read the result. Otherwise a generated kernel turns it and computes all that is behind the
product, as behind rows that another kernel makes of the line and of other rows.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 34 small graphs of
one-dimensional Convs of three kinds, and of a Paraformer.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from placer.graph import Graph
from placer.graph.transposes import order_of
from placer.prediction.kernels.lines import LINE_RANK, writes_line
from placer.prediction.kernels.parts import PRODUCTS, Unit
from placer.prediction.kernels.views import SWAPPED


def turned_with(graph: Graph, product: Unit, chain: Sequence[Unit]) -> list[Unit]:
    """Transposes of lines that the kernel of a product with weights does with ``chain``."""
    if product.node.op not in PRODUCTS:
        return []
    read = [writer for unit in chain for _, writer in unit.reads if writer is not None]
    return [w for w in read if _turns_line(graph, w) and len(w.readers) == 1]


def leaves_to_lines(
    graph: Graph, product: Unit, chain: Sequence[Unit], casts: Container[str]
) -> bool:
    """Whether a generated kernel does all of ``chain``, which reads lines that were turned.

    ``casts``: operators that compute in FP32.
    """
    if product.node.op not in PRODUCTS:
        return False
    turned = turned_with(graph, product, chain)
    if turned and turned[0].readers[0][1] is not chain[-1]:
        return True
    if not turned and not any(_adds_turned(graph, w) for u in chain for _, w in u.reads if w):
        return False
    biased = len(chain) > 1 or not turned
    return biased and any(r.role == "cast" or r.node.op in casts for _, r in chain[-1].readers)


def _turns_line(graph: Graph, unit: Unit) -> bool:
    """Whether it makes rows of what a Conv over one dimension writes in float."""
    if unit.role != "move" or order_of(graph, unit.node) != SWAPPED:
        return False
    ((_, writer),) = unit.reads
    rank = len(graph.type_of(unit.node.inputs[0]).shape or ())
    if writer is None or writer.role != "product" or rank != LINE_RANK:
        return False
    return writes_line(graph, writer) and not writer.leaves_sums


def _adds_turned(graph: Graph, unit: Unit) -> bool:
    """Whether it computes of such rows and of others."""
    others = [writer for _, writer in unit.reads if writer is not None]
    several = unit.role == "pointwise" and len(unit.reads) > 1
    return several and any(_turns_line(graph, writer) for writer in others)
