"""What decides where tensors lie in memory: which node writes which, which parts are connected.

OpenVINO makes one Split of Slices that cut a tensor into parts, keeps maps with their channels
last, and lets a kernel add to a tensor in place only if nothing else that its writer wrote is read
later.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from onnx import numpy_helper

from placer.graph import Graph, Node
from placer.graph.external_data import is_external

_CHANNELS_LAST = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool"})
# What writes the layout that it reads.
_KEEP_LAYOUT = frozenset(
    {"Relu", "LeakyRelu", "PRelu", "Elu", "Clip", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid"}
    | {"Gelu", "Erf", "Softplus", "Mish", "Abs", "Sqrt", "Exp", "Add", "Sub", "Mul", "Div"}
    | {"BatchNormalization", "Resize", "Concat", "Pad", "Identity"}
)


def slices_of(node: Node, graph: Graph) -> tuple[Node, ...]:
    """The Slices, ``node`` among them, that cut what they read into parts along one axis.

    In the order of the parts, which leave no gap and do not overlap; () if there are none.
    """
    first_cut = _cut(node, graph)
    if first_cut is None:
        return ()
    data, axis = node.inputs[0], first_cut[0]
    part_at = _parts_along(axis, data, graph)
    borders = sorted(part_at)
    parts = tuple(part_at[border] for border in borders)
    size = (graph.type_of(data).shape or ())[axis]
    starts = [0, *(end for _, end in borders)]
    is_whole = [start for start, _ in borders] == starts[:-1] and starts[-1] == size
    is_one_of_several = len(parts) > 1 and node.name in {part.name for part in parts}
    return parts if is_whole and is_one_of_several else ()


def _parts_along(axis: int, data: str, graph: Graph) -> dict[tuple[int, int], Node]:
    """The Slices that cut ``data`` along ``axis``, by where they begin and end."""
    parts: dict[tuple[int, int], Node] = {}
    for edge in graph.edges_of(data):
        reader = graph.by_name.get(edge.node)
        cut = None if reader is None else _cut(reader, graph)
        if reader is not None and cut is not None and reader.inputs[0] == data and cut[0] == axis:
            parts[cut[1:]] = reader
    return parts


def written_with(tensor: str, graph: Graph) -> Iterator[str]:
    """``tensor`` and what else its writer writes, Slices that are one Split counted as one."""
    node = graph.producer.get(tensor)
    if node is None:
        yield tensor
        return
    for writer in slices_of(node, graph) or (node,):
        yield from writer.outputs


def is_sliced_apart(tensor: str, graph: Graph) -> bool:
    """Whether a Slice writes ``tensor`` that is one of those that cut a tensor into parts."""
    node = graph.producer.get(tensor)
    return node is not None and bool(slices_of(node, graph))


def is_one_piece(tensor: str, graph: Graph) -> bool:
    """Whether a Slice along one axis writes ``tensor``, whose elements lie side by side before.

    So it is if no longer axis comes before that one in memory.
    """
    node = graph.producer.get(tensor)
    cut = None if node is None else _cut(node, graph)
    if node is None or cut is None:
        return False
    shape = graph.type_of(node.inputs[0]).shape or ()
    order = list(range(len(shape)))
    if is_channels_last(node.inputs[0], graph):
        order = [0, *order[2:], 1]
    return math.prod(shape[axis] for axis in order[: order.index(cut[0])]) == 1


def is_channels_last(tensor: str, graph: Graph) -> bool:
    """Whether operators that keep the layout lead from a convolution or pooling to ``tensor``."""
    rank = len(graph.type_of(tensor).shape or ())
    waiting, seen = [tensor], {tensor}
    while waiting and rank > 2:
        node = graph.producer.get(waiting.pop())
        if node is None:
            continue
        if node.op in _CHANNELS_LAST:
            return True
        if node.op in _KEEP_LAYOUT:
            inputs = [t for t in node.inputs if t not in graph.initializers and t not in seen]
            inputs = [t for t in inputs if len(graph.type_of(t).shape or ()) == rank]
            waiting += inputs
            seen.update(inputs)
    return False


def _cut(node: Node, graph: Graph) -> tuple[int, int, int] | None:
    """Axis, start and end of a Slice along one axis in steps of 1; None of anything else."""
    shape = graph.type_of(node.inputs[0]).shape if node.op == "Slice" else None
    constants = [graph.initializers.get(tensor) for tensor in node.inputs[1:]]
    known = [t for t in constants if t is not None and not is_external(t)]
    if not shape or len(known) < max(3, len(constants)):
        return None
    values = [numpy_helper.to_array(t).ravel().tolist() for t in known]
    if any(len(value) != 1 for value in values) or values[3:] not in ([], [[1]]):
        return None
    axis = int(values[2][0]) % len(shape)
    start, end, _ = slice(int(values[0][0]), int(values[1][0])).indices(shape[axis])
    return axis, start, end
