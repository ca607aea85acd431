"""The axes over which a node reduces, which decide what is generated in one kernel with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from onnx import numpy_helper

from placer.graph import Graph, Node
from placer.graph.kept import kept
from placer.graph.weights import WeightInput, weight_input
from placer.prediction.kernels.flattened import batches
from placer.prediction.kernels.parts import PLACES, PRODUCTS

_LONG = 512
# A sum of so many elements is taken by several blocks of threads, if it is one of few or longer
# still; a norm of a single group keeps it where a block has 48 KiB, in FP32 (graphs of one sum to
# 256 sums), and a LayerNormalization whatever its length (12,290 to 32,760, of 1 to 256 rows).
_SHARED, _FEW, _ALWAYS_SHARED = 16384, 32, 32768
_KEPT = 48 * 1024 // 4
# Larger maps are turned by a kernel of their own before sums over all places of each channel, of
# an odd number of places up to 512 larger ones; seen for 16,416 and 147,600 elements and not for
# 16,384 and 147,440 (500 Convs of 8 to 4,096 channels, TensorRT-RTX 1.7.1). Volumes and lines were
# asked for less.
_LARGE_MAP, _LARGE_ODD, _LARGE_OTHER = 16 * 1024, 144 * 1024, 17 * 1024

# Sums of so few elements, along one dimension, are written out, as nodes that compute element by
# element (graphs of 2 to 8 elements). A Softmax of 5 and 6 is so in part, which is not predicted.
WRITTEN_OUT, _SUMS_WRITTEN_OUT = 4, 6
_SUMS = ("ReduceSum", "ReduceL2", "ReduceSumSquare")
_OTHERS = ("ReduceMean", "ReduceMax", "Softmax", "LayerNormalization")

_MAP_RANKS = (3, 4)
_WRITES_MAPS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "Resize")


@dataclass(frozen=True)
class Reduction:
    """``rows`` sums over ``length`` elements each; ``innermost``: these follow each other.

    Sums that are as many and as long are one kernel.
    """

    rows: int
    length: int
    innermost: bool

    @property
    def ends_kernel(self) -> bool:
        """Whether what reads the results is in another kernel; seen for 384 and not for 512."""
        return not self.innermost and self.length < _LONG

    @property
    def is_shared(self) -> bool:
        """Whether several blocks of threads take each sum, which they count in cleared memory.

        What reads the results is in another kernel.
        """
        few = self.rows <= _FEW or self.length >= _ALWAYS_SHARED
        return few and self.length >= _SHARED

    @property
    def is_kept(self) -> bool:
        """Whether one kernel can both sum a norm of a single group in FP32 and scale it."""
        return self.length <= _KEPT


@kept
def reduction(graph: Graph, node: Node) -> Reduction:
    """Over what ``node`` sums.

    A matrix product of one row sums columns of its weight, one of a single column its rows.
    """
    shape = graph.type_of(node.inputs[0]).shape or ()
    if node.op in PRODUCTS:
        made = product_shape(graph, node) or (1,)
        length = shape[-1] if shape else 1
        return Reduction(math.prod(made), length, made[-1] == 1 or math.prod(made[:-1]) > 1)
    if node.op == "Conv":  # Of a single place, on few channels.
        return Reduction((graph.type_of(node.outputs[0]).shape or (1, 1))[1], shape[1], True)
    axes = {axis % len(shape) for axis in _axes(graph, node, len(shape))} if shape else set[int]()
    summed = [size for axis, size in enumerate(shape) if axis in axes]
    kept = [size for axis, size in enumerate(shape) if axis not in axes]
    order = [axis in axes for axis, size in enumerate(shape) if size > 1]
    innermost = order == sorted(order) or (axes == {1} and is_map(graph, node.inputs[0]))
    return Reduction(math.prod(kept), math.prod(summed), innermost)


@kept
def product_shape(graph: Graph, node: Node) -> tuple[int, ...]:
    """The shape of what a product makes, rows and columns last; empty where it is not known.

    MatMul leaves out the rows or columns of an operand of one dimension, which are 1 here.
    """
    made = graph.type_of(node.outputs[0]).shape
    if made is None:
        return ()
    ranks = [len(graph.type_of(tensor).shape or (0, 0)) for tensor in node.inputs[:2]]
    if ranks[1] == 1:
        made = (*made, 1)
    return (*made[:-1], 1, *made[-1:]) if ranks[0] == 1 else made


def has_heads(graph: Graph, weight: WeightInput) -> bool:
    """Whether it is several matrices, as that of shifted relative positions (ten small graphs)."""
    return math.prod((graph.type_of(weight.tensor).shape or ())[:-2]) > 1


@kept
def is_written_out(graph: Graph, node: Node) -> bool:
    """Whether a float node sums so few elements that each is an operand of its own.

    Products of several heads are kernels of their own, but for those of what a Conv writes (40
    small graphs), and what a row is multiplied by is only added (24 small graphs of 3 to 8
    elements).
    """
    if node.op not in (*PRODUCTS, *_SUMS, *_OTHERS):  # Nodes of other kinds may have no inputs.
        return False
    shape = graph.type_of(node.inputs[0]).shape or ()
    if node.op in PRODUCTS:
        weighted = weight_input(graph, node) is not None
        row = weighted and math.prod(product_shape(graph, node)[:-1]) == 1
        longest = _SUMS_WRITTEN_OUT if row else WRITTEN_OUT
        return bool(shape) and 1 < shape[-1] <= longest and not _multiplies_few(graph, node)
    axes = reduction_axes(graph, node)
    longest = _SUMS_WRITTEN_OUT if node.op in _SUMS else WRITTEN_OUT
    return len(axes) == 1 and 1 < shape[axes[0]] <= longest


def _multiplies_few(graph: Graph, node: Node) -> bool:
    """Whether it multiplies heads of so few columns, or of so few rows, that each is read alone."""
    if node.op != "MatMul" or weight_input(graph, node) is not None:
        return False
    before = graph.producer.get(node.inputs[0])
    columns = (graph.type_of(node.inputs[0]).shape or (0,))[-1]
    if not 1 < columns <= WRITTEN_OUT or (before is not None and before.op == "Conv"):
        return False
    return batches(graph, node) > 0


@kept
def is_map(graph: Graph, tensor: str) -> bool:
    """Whether it is a map that a Conv writes, as it is or after pointwise nodes.

    Its channels are stored last.
    """
    shape = graph.type_of(tensor).shape or ()
    waiting, seen = [tensor], {tensor}
    while waiting and len(shape) in _MAP_RANKS:
        node = graph.producer.get(waiting.pop())
        if node is None or graph.type_of(node.outputs[0]).shape != shape:
            continue
        if node.op in _WRITES_MAPS:
            return True
        given = [t for t in node.inputs if t not in seen and graph.type_of(t).shape == shape]
        seen.update(given)
        waiting += given
    return False


@kept
def sums_places(graph: Graph, node: Node) -> bool:
    """Whether ``node`` sums over all places of a map, channel by channel."""
    shape = graph.type_of(node.inputs[0]).shape or ()
    if node.op in (*PRODUCTS, "Softmax") or len(shape) not in (3, 4):
        return False
    places = tuple(range(2, len(shape)))
    return reduction_axes(graph, node) == places


@kept
def sums_map(graph: Graph, node: Node) -> bool:
    """Whether it does so of a map of two dimensions."""
    return len(graph.type_of(node.inputs[0]).shape or ()) == 4 and sums_places(graph, node)


def is_large(graph: Graph, tensor: str) -> bool:
    """Whether a map is turned by a kernel of its own before its places are summed over.

    One of an odd number of channels is not, nor one whose height alone is a power of two.
    """
    shape = graph.type_of(tensor).shape or (0,)
    elements = math.prod(shape)
    if len(shape) != _MAP_RANKS[-1]:
        return elements > _LARGE_OTHER
    channels, height, width = shape[1:]
    if channels % 2 or (_is_power_of_two(height) and not _is_power_of_two(width)):
        return False
    odd = height * width % 2 and height * width <= _LONG
    return elements > (_LARGE_ODD if odd else _LARGE_MAP)


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


@kept
def reduction_axes(graph: Graph, node: Node) -> tuple[int, ...]:
    """The dimensions that ``node`` sums over, counted from 0."""
    rank = len(graph.type_of(node.inputs[0]).shape or ())
    return tuple(sorted(axis % rank for axis in _axes(graph, node, rank))) if rank else ()


def _axes(graph: Graph, node: Node, rank: int) -> tuple[int, ...]:
    if node.op in ("GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization"):
        return tuple(range(2, rank))
    if node.op in ("Softmax", "LogSoftmax", *PLACES):
        return (int(node.attributes.get("axis", 0 if node.op in PLACES else -1)),)
    if node.op == "LayerNormalization":
        return tuple(range(int(node.attributes.get("axis", -1)) % rank, rank))
    given = node.inputs[1] if len(node.inputs) > 1 else ""
    if given in graph.initializers:
        return tuple(map(int, numpy_helper.to_array(graph.initializers[given]).ravel()))
    return tuple(node.attributes.get("axes", range(rank)))
