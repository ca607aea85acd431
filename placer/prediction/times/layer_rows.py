"""The rows of a kernel: stretches of memory that it computes or copies at once.

Short rows cost nearly as much as long ones, so that operations and bytes do not tell what they
take: with channels last a pixel of 8 channels is a row, of a Transpose of heads each head of each
token, and of a product of two tensors each stretch in which none of them is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from placer.graph import Graph, Node
from placer.graph.transposes import order_of
from placer.plan import Layer

_AT_ONCE = 16  # Channels that a depthwise convolution computes at once; others one by one.


def row_count(main: Node, layer: Layer, graph: Graph, last: bool) -> float:
    """Rows of ``layer``, whose main node is ``main``; 0 where its operations tell all.

    ``last``: whether its channels are last.
    """
    count = _COUNTS.get(main.op)
    return 0.0 if count is None else count(main, layer, graph, last)


def _shape(tensor: str, graph: Graph) -> tuple[int, ...]:
    return tuple(graph.type_of(tensor).shape or ())


def _of_pixels(main: Node, _layer: Layer, graph: Graph, _last: bool) -> float:
    written = _shape(main.outputs[0], graph)
    return float(math.prod((written[0], *written[2:]))) if written else 0.0


def _of_convs(main: Node, layer: Layer, graph: Graph, last: bool) -> float:
    """Pixels, in each group; of depthwise ones products of the channels that no vector takes."""
    pixels = _of_pixels(main, layer, graph, last)
    groups = main.attributes.get("group", 1)
    if not isinstance(groups, int) or not pixels:
        return pixels
    if groups == 1 or _shape(main.inputs[1], graph)[:2] != (groups, 1):
        return pixels * groups
    window = math.prod(_shape(main.inputs[1], graph)[2:])
    return pixels * window * (_shape(main.outputs[0], graph)[1] % _AT_ONCE)


def _of_products(main: Node, _layer: Layer, graph: Graph, _last: bool) -> float:
    return float(math.prod(_shape(main.outputs[0], graph)[:-1]))


def _of_pieces(main: Node, layer: Layer, graph: Graph, last: bool) -> float:
    """Stretches of each of the tensors that are joined or that one is cut into."""
    written = _shape(main.outputs[0], graph)
    given_axis = main.attributes.get("axis", 1)
    axis = given_axis % len(written) if isinstance(given_axis, int) and written else 1
    outer = written[:axis]
    if last and axis == 1 and len(written) > 2:
        outer = (written[0], *written[2:])
    return float(math.prod(outer) * max(len(layer.inputs), len(layer.outputs)))


def _moved(main: Node, _layer: Layer, graph: Graph, _last: bool) -> float:
    """Stretches that a Transpose moves: what stays at the end of its axes moves as a whole."""
    read = _shape(main.inputs[0], graph)
    if not read:
        return 1.0
    moved = [axis for axis in order_of(graph, main) if read[axis] != 1]
    in_order = sorted(moved)
    while moved and moved[-1] == in_order[-1]:
        moved.pop()
        in_order.pop()
    return float(math.prod(read[axis] for axis in moved)) if moved else 0.0


def _repeats(main: Node, _layer: Layer, graph: Graph, _last: bool) -> float:
    """Of an operation of two operands, of which one is repeated but is no scalar."""
    written = _shape(main.outputs[0], graph)
    shapes = (_shape(tensor, graph) for tensor in main.inputs)
    return max((_stretches(shape, written) for shape in shapes), default=0.0)


def _stretches(shape: Sequence[int], written: Sequence[int]) -> float:
    if math.prod(shape) in (1, math.prod(written)):
        return 0.0
    full = (1,) * (len(written) - len(shape)) + tuple(shape)
    axis = len(written)
    repeated = full[-1] != written[-1]  # Then one element for each stretch.
    while axis and (full[axis - 1] == 1 if repeated else full[axis - 1] == written[axis - 1]):
        axis -= 1
    return float(math.prod(written[:axis]))


_COUNTS: Mapping[str, Callable[[Node, Layer, Graph, bool], float]] = {
    "Concat": _of_pieces,
    "Conv": _of_convs,
    "ConvTranspose": _of_convs,
    "Gemm": _of_products,
    "MatMul": _of_products,
    "Resize": _of_pixels,
    "Slice": _of_pieces,
    "Split": _of_pieces,
    "Transpose": _moved,
    **dict.fromkeys(("Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub"), _repeats),
}
