"""Epilogues of precompiled kernels of one-dimensional Convs, as on sequences.

The builder views their maps as ones of two dimensions, and moves the view behind a node that alone
reads such a map. What reads anything else as it is, or a map that others read, too, is in another
kernel. Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 45 small graphs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placer.graph import Graph, Node
from placer.prediction.kernels.gelus import Gelu
from placer.prediction.kernels.parts import CONVS, Unit

LINE_RANK = 3
_BINARY = ("Add", "Sub", "Mul", "Div")
# These are computed in parts, which read their operand several times.
_IN_PARTS = ("HardSwish",)
IN_PARTS = (*_IN_PARTS, "LeakyRelu")


def writes_line(graph: Graph, product: Unit) -> bool:
    """Whether it is a Conv over one dimension."""
    rank = len(graph.type_of(product.node.outputs[0]).shape or ())
    return product.node.op in CONVS and rank == LINE_RANK


def is_single_line(graph: Graph, conv: Node) -> bool:
    """Whether it is a Conv from one line to one, as those over channels of ECA modules are.

    Of integers its kernel reads them as they are and scales what it sums (16 small graphs).
    """
    shape = graph.type_of(conv.inputs[1]).shape or ()
    return conv.op == "Conv" and len(shape) == LINE_RANK and shape[:2] == (1, 1)


def may_follow(
    graph: Graph, unit: Unit, region: Sequence[Unit], functions: Mapping[str, Gelu]
) -> bool:
    """Whether the kernel of the one-dimensional Conv that computes ``region`` computes ``unit``.

    ``functions``: GELUs, which are one function each, by name of their parts.
    """
    if unit.node.op in _IN_PARTS:
        return False
    if unit.node.name in functions:
        return _is_of(functions[unit.node.name], region[0])
    return all(
        (_is_unary(writer) or _is_read_once(edge.tensor, writer))
        if writer in region and writer is not None
        else _is_viewed(graph, edge.tensor, writer)
        for edge, writer in unit.reads
    )


def is_shared(unit: Unit) -> bool:
    """Whether constants scale or shift a line that several nodes read, which they do themselves."""
    (tensor,) = unit.outputs or ("",)
    return unit.node.op in _BINARY and not _is_read_once(tensor, unit)


def _is_of(gelu: Gelu, product: Unit) -> bool:
    """Whether a GELU is of what a Conv writes, which nothing else reads."""
    names = {node.name for node in gelu.nodes}
    made = gelu.given in product.node.outputs
    return made and all(reader.node.name in names for _, reader in product.readers)


def _is_viewed(graph: Graph, tensor: str, writer: Unit | None) -> bool:
    """Whether a tensor is a view of a map of two dimensions, which a prepared kernel can add."""
    if writer is None:
        return False
    if not _is_unary(writer) or writer.node.op in _IN_PARTS:
        return _is_read_once(tensor, writer) and _is_made_of_views(graph, writer)
    ((edge, source),) = writer.reads
    if source is None or _is_unary(source):
        return _is_viewed(graph, edge.tensor, source)
    return _is_made_of_views(graph, source)


def _is_made_of_views(graph: Graph, writer: Unit) -> bool:
    if writer.role == "pool" or (writer.role == "product" and writer.node.op in CONVS):
        return not writer.leaves_sums
    if writer.role != "pointwise" or not writer.works or writer.node.op in _IN_PARTS:
        return False
    if writer.node.op in _BINARY and any(
        tensor in graph.initializers for tensor in writer.node.inputs
    ):
        return False
    return all(_is_viewed(graph, edge.tensor, source) for edge, source in writer.reads)


def _is_unary(unit: Unit) -> bool:
    """Whether it computes element by element of one tensor, without constants for channels.

    What alone reads a Conv's output is the Conv's own activation, whose output the Conv writes.
    """
    if unit.role != "pointwise" or not unit.works or len(unit.reads) != 1:
        return False
    ((_, writer),) = unit.reads
    active = writer is not None and writer.role == "product" and len(writer.readers) == 1
    return not active and unit.node.op not in _BINARY


def _is_read_once(tensor: str, writer: Unit) -> bool:
    """Whether one reader at most is no Conv or pool, which take a view themselves."""
    others = {
        reader.node.name
        for edge, reader in writer.readers
        if edge.tensor == tensor and reader.role not in ("product", "pool")
    }
    return len(others) < 2
