"""Whether ONNX Runtime knows that two tensors in blocks of channels have equal shapes.

Where a model leaves image sizes open, its NchwcTransformer follows them by itself
(``NchwcArgument::Shape`` and ``ConvPoolShapeInference`` in nchwc_transformer.cc): each dimension of
a tensor in blocks has an origin, a tensor whose size it had, and has been halved so many times
since. Convs and pools in blocks keep the origin where their padding makes up for the kernel and the
stride is 1 or 2; what they write otherwise is an origin itself. Two dimensions are equal if the
model fixes both or gives them one name, or if they were halved as often from one origin.

Sums whose operands are not known to be equal stay in blocks, between two Reshapes, and are no part
of a Conv; products leave the blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from placer.graph import Edge, Graph, Node
from placer.graph.kept import kept
from placer.rules.block_operators import GLOBAL_POOLS, POOLS, edges_in_blocks, reads_blocks

_BATCH, _CHANNELS, _HEIGHT = 0, 1, 2
_IMAGE = 4  # Dimensions of what lies in blocks.
_SUMS = ("Add", "Mul")
_WINDOWS = POOLS | GLOBAL_POOLS
_SAME = ("SAME_UPPER", "SAME_LOWER")
_ONE, _OTHER, _BOTH = 1, 2, 3  # Operands of a sum or product.


class Size(NamedTuple):
    """A dimension: that of the tensor ``origin``, halved so many times."""

    origin: str
    halvings: int = 0


Sizes = tuple[Size, ...]  # Of the four dimensions of an image.


@kept
def block_sizes(graph: Graph, block: int) -> Mapping[str, Sizes]:
    """By tensor that lies in blocks of ``block`` channels where nothing is quantized, its sizes."""
    found: dict[str, Sizes] = {}
    for node in graph.nodes:
        edges = edges_in_blocks(node, graph, block)
        if edges is None or not _are_in_blocks(edges, node, found):
            continue
        # What a Gelu of several nodes reads, the last of which is a Mul, other nodes read.
        if node.op in _SUMS and all(edge.node == node.name for edge in edges):
            sizes = _of_join(node, graph, found)
        else:
            sizes = _written(node, graph, block, found, edges)
        if sizes is not None:
            found[node.outputs[0]] = sizes
    return found


def _are_in_blocks(edges: tuple[Edge, ...], node: Node, found: Mapping[str, Sizes]) -> bool:
    # All that a Conv has of them is its weight.
    return node.op == "Conv" or all(edge.tensor in found for edge in edges)


def equal_in_blocks(one: str, other: str, graph: Graph, block: int) -> bool:
    """Whether ONNX Runtime knows that both tensors, in blocks, have the same shape."""
    return _are_equal(one, other, graph, block_sizes(graph, block))


def equality_edges(join: Node, graph: Graph, block: int) -> tuple[Edge, ...]:
    """The edges through which the operands of a sum or product have open sizes from one tensor.

    None are from where both come on.
    """
    sizes = block_sizes(graph, block)
    if len(set(join.inputs)) != 2 or any(tensor not in sizes for tensor in join.inputs):
        return ()
    one, other = join.inputs
    axes = [axis for axis in range(_IMAGE) if not _is_told(one, other, axis, graph)]
    behind = {one: _ONE, other: _OTHER}
    found: list[Edge] = []
    while any(operands != _BOTH for operands in behind.values()):
        # The last first: all that reads it was there before.
        tensor = max(behind, key=lambda tensor: graph.producer[tensor].index)
        operands = behind.pop(tensor)
        if any(sizes[tensor][axis].origin != tensor for axis in axes):
            for edge in _followed(graph.producer[tensor], graph, block):
                behind[edge.tensor] = behind.get(edge.tensor, 0) | operands
                found += [edge] if operands != _BOTH else []
    return tuple(dict.fromkeys(found))


def _followed(node: Node, graph: Graph, block: int) -> tuple[Edge, ...]:
    """The edges from which ``node`` has sizes."""
    if node.op == "Conv" or node.op in _WINDOWS or node.op == "Concat":
        return graph.edges_into(node)[:1]
    return edges_in_blocks(node, graph, block) or ()


def _of_join(node: Node, graph: Graph, found: Mapping[str, Sizes]) -> Sizes | None:
    """What a sum or product writes; None: no blocks."""
    first = node.inputs[0]
    if all(_are_equal(first, tensor, graph, found) for tensor in node.inputs):
        return found[first]
    channels = {(graph.type_of(tensor).shape or (0, 0))[_CHANNELS] for tensor in node.inputs}
    return _own(node) if node.op == "Add" and len(channels) == 1 else None


def _are_equal(one: str, other: str, graph: Graph, sizes: Mapping[str, Sizes]) -> bool:
    ones, others = sizes.get(one), sizes.get(other)
    return all(
        _is_told(one, other, axis, graph)
        or (ones is not None and others is not None and ones[axis] == others[axis])
        for axis in range(_IMAGE)
    )


def _is_told(one: str, other: str, axis: int, graph: Graph) -> bool:
    """Whether the model itself has two dimensions equal."""
    ones, others = graph.dimensions_of(one), graph.dimensions_of(other)
    if axis >= min(len(ones), len(others)):
        return False
    return ones[axis] is not None and ones[axis] == others[axis]


def _own(node: Node) -> Sizes:
    return (Size(node.outputs[0]),) * _IMAGE


def _written(
    node: Node, graph: Graph, block: int, found: Mapping[str, Sizes], edges: tuple[Edge, ...]
) -> Sizes:
    """What a node writes that is no sum or product; ``edges``: what it reads in blocks."""
    own = _own(node)
    if node.op == "Resize":
        return own
    if node.op == "Concat":
        read = found[node.inputs[0]]
        return (read[_BATCH], own[_CHANNELS], *read[_HEIGHT:])
    if node.op == "Conv" or node.op in _WINDOWS:
        images = node.op == "Conv" and not reads_blocks(node, graph, block)
        before = None if images else found.get(node.inputs[0])
        if before is None:
            return own
        spatial = _behind_window(node, graph, before[_HEIGHT:])
        return (before[_BATCH], own[_CHANNELS], *(spatial or own[_HEIGHT:]))
    return found[edges[0].tensor]


def _behind_window(node: Node, graph: Graph, before: Sizes) -> Sizes | None:
    """Height and width behind a Conv or pool that reads ``before``; None: its own.

    A pool without a ``kernel_shape`` is a global one.
    """
    if node.op == "Conv":
        window: Sequence[int] = graph.initializers[node.inputs[1]].dims[_HEIGHT:]
    else:
        window = _integers(node, "kernel_shape", ())
    pads, auto_pad = _integers(node, "pads", (0,) * 4), node.attributes.get("auto_pad", "NOTSET")
    strides, dilations = _integers(node, "strides", (1, 1)), _integers(node, "dilations", (1, 1))
    if any(len(values) != 2 for values in (window, strides, dilations)) or len(pads) != 4:
        return None
    own = Size(node.outputs[0])
    padded = [pads[axis] + pads[axis + 2] if auto_pad == "NOTSET" else 0 for axis in range(2)]
    return tuple(
        before[axis]._replace(halvings=before[axis].halvings + strides[axis] - 1)
        if dilations[axis] == 1
        and strides[axis] in (1, 2)
        and (auto_pad in _SAME or padded[axis] + 1 == window[axis])
        else own
        for axis in range(2)
    )


def _integers(node: Node, attribute: str, default: Sequence[int]) -> Sequence[int]:
    value = node.attributes.get(attribute, default)
    return value if isinstance(value, list | tuple) else default
