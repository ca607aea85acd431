"""Transposes of a model that ONNX Runtime made one with a Transpose to another memory layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

import onnx

_TRANSPOSE, _RESHAPE = "Transpose", "Reshape"


def merged_transposes(
    fused: onnx.GraphProto, final: onnx.GraphProto, name_of: Callable[[onnx.NodeProto], str]
) -> Mapping[str, str]:
    """By name of a Transpose in ``final`` one of ``fused`` that it does besides its own.

    ``fused``: the graph before layout changes. A Transpose that does more than to move the channels
    from first to last or back does what the nearest one of those does that are gone; one behind a
    Reshape is that which was before it. ``name_of``: what a node of ``final`` is called in
    ``fused``.
    """
    before = {node.name: index for index, node in enumerate(fused.node)}
    at = [before.get(name_of(node)) for node in final.node]
    gone = set(_transposes(fused)).difference(index for index in at if index is not None)
    new = [index for index in _transposes(final) if at[index] is None]
    if not gone or not new:
        return {}
    around, beside = _neighbours(fused.node), _neighbours(final.node)
    layer_of: dict[str, str] = {}
    for index in new:
        nearest = _before_view(index, at, fused, final)
        if nearest not in gone:
            if _is_of_layouts(final.node[index]):
                continue
            known = _nearest({index}, beside, lambda i: at[i] is not None)
            starts = {place for i in known if (place := at[i]) is not None}
            nearest = min(_nearest(starts, around, gone.__contains__), default=None)
        if nearest is not None:
            gone.discard(nearest)
            layer_of[final.node[index].name] = fused.node[nearest].name
    return layer_of


def _transposes(graph: onnx.GraphProto) -> list[int]:
    """Where the Transposes are that have a name."""
    return [i for i, n in enumerate(graph.node) if n.op_type == _TRANSPOSE and n.name]


def _before_view(
    index: int, at: Sequence[int | None], fused: onnx.GraphProto, final: onnx.GraphProto
) -> int | None:
    """What wrote in ``fused`` what the Reshape reads that writes what a node of ``final`` reads."""
    writer = _writer(final.node, final.node[index].input[0])
    view = None if writer is None else at[writer]
    if view is None or fused.node[view].op_type != _RESHAPE:
        return None
    return _writer(fused.node, fused.node[view].input[0])


def _writer(nodes: Sequence[onnx.NodeProto], tensor: str) -> int | None:
    return next((index for index, node in enumerate(nodes) if tensor in node.output), None)


def _is_of_layouts(transpose: onnx.NodeProto) -> bool:
    order = next((list(a.ints) for a in transpose.attribute if a.name == "perm"), [])
    rank = len(order)
    return order in ([0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)])


def _neighbours(nodes: Sequence[onnx.NodeProto]) -> list[set[int]]:
    """By number of a node those of the nodes that write what it reads or read what it writes."""
    writer = {tensor: index for index, node in enumerate(nodes) for tensor in node.output if tensor}
    neighbours: list[set[int]] = [set() for _ in nodes]
    for index, node in enumerate(nodes):
        for tensor in node.input:
            if tensor in writer:
                neighbours[writer[tensor]].add(index)
                neighbours[index].add(writer[tensor])
    return neighbours


def _nearest(
    starts: Iterable[int], neighbours: Sequence[Set[int]], wanted: Callable[[int], bool]
) -> set[int]:
    """Those that are wanted and the fewest steps away from ``starts``."""
    border = set(starts)
    seen = set(border)
    while border:
        wanted_ones = {index for index in border if wanted(index)}
        if wanted_ones:
            return wanted_ones
        border = {other for index in border for other in neighbours[index]} - seen
        seen |= border
    return set()
