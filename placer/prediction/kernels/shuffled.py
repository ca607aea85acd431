"""Channels of a Conv of groups that are shuffled next, as in ShuffleNet."""

from __future__ import annotations

from placer.graph import Graph
from placer.prediction.kernels.lines import writes_line
from placer.prediction.kernels.parts import VIEWS, Unit


def is_shuffled(graph: Graph, product: Unit, unit: Unit) -> bool:
    """Whether the channels of a Conv of groups are shuffled next, or get a dimension more.

    What is generated then is computed of what the Conv's kernel leaves as it is (15 graphs). That
    of a one-dimensional Conv adds its bias, for heads too (eight graphs).
    """
    views = [reader for _, reader in unit.readers if reader.node.op in VIEWS]
    if not product.grouped or not views or writes_line(graph, product):
        return False
    behind = {r.node.op for view in views for _, r in view.readers}
    shuffled = all(reader.node.op == "Reshape" for _, reader in unit.readers)
    if shuffled and "Transpose" in behind:
        return True
    longer = [view for view in views if _only_lengthens(graph, view)]
    return any(r.generated and r.role != "cast" for v in longer for _, r in v.readers)


def _only_lengthens(graph: Graph, view: Unit) -> bool:
    """Whether a view adds or takes away dimensions of 1."""
    given, made = (
        [size for size in graph.type_of(tensor).shape or () if size != 1]
        for tensor in (view.node.inputs[0], view.node.outputs[0])
    )
    return given == made
