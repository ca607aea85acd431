"""Where ONNX Runtime moves tensors to another memory layout, and which pools read rows of images.

On a CPU a quantized Conv reads and writes channels last (NhwcTransformer), and a float Conv in
blocks of channels where its channels fill them (NchwcTransformer). What is between goes on in such
a layout, or the tensor is moved: a Transpose of integers is pushed behind a layer where that costs
no more than it saves, or where the layer leads to another Transpose. Sources, in
onnxruntime/core/optimizer: nhwc_transformer.cc, nchwc_transformer.cc, transpose_optimization/. What
versions do otherwise is in ``layout_options.py``.

Kernels differ: a uint8 MaxPool takes some 40 times as long where its channels are not last.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from placer.graph import Edge, Graph, Node
from placer.graph.transposes import order_of
from placer.plan.dtypes import is_quantized
from placer.prediction.layers.blocks import goes_on_in_blocks
from placer.prediction.layers.claims import FLOAT
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.layout_options import LayoutOptions
from placer.prediction.layers.views import channels_last, inverse, split_order
from placer.rules.block_operators import POOLS, is_conv_of_blocks, reads_blocks

MemoryLayout = Literal["row-major", "channels-last", "turned", "blocked"]
ROW_MAJOR: MemoryLayout = "row-major"
LAST: MemoryLayout = "channels-last"
TURNED: MemoryLayout = "turned"  # Another order of dimensions, which only views go on in.
BLOCKED: MemoryLayout = "blocked"

DEFAULT = LayoutOptions()
_CONVS = ("Conv", "ConvTranspose")
# Integer kernels that a Transpose is pushed through, and float ones.
_PUSHED = frozenset(
    "Add AveragePool Concat GlobalAveragePool LeakyRelu MaxPool Mul ReduceMean Resize Sigmoid "
    "Slice Softmax Split".split()
)
_PUSHED_FLOAT = frozenset(
    "Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Celu Clip Concat Cos Cosh Div Elu Erf Exp Floor "
    "HardSigmoid HardSwish Hardmax LeakyRelu Log LogSoftmax Max Min Mul Neg PRelu Pow Reciprocal "
    "ReduceMean Relu Round Selu Sigmoid Sign Sin Sinh Slice Softmax Softplus Softsign Split Sqrt "
    "Sub Tan Tanh ThresholdedRelu".split()
)
_PUSHED_FUSED = frozenset({"FastGelu", "Gelu", "QuickGelu"})  # Of ONNX Runtime's own, in float.


class Move(NamedTuple):
    """A tensor that is moved to another layout, in its type here.

    ``behind``: the edge for which it was dequantized, by a DQ that a Transpose was pushed past.
    """

    tensor: str
    dtype: str
    to: MemoryLayout
    behind: Edge | None = None


class LaidOut(NamedTuple):
    """How a layer runs: in which layout, what is moved for it first, and whether it does nothing.

    ``gone``: a Transpose of the model that another one undoes, or a reorder does on its way.
    """

    layout: MemoryLayout
    moves: tuple[Move, ...]
    gone: bool = False


class _Read(NamedTuple):
    """A tensor that a layer reads, in its type there, and the edge; none for a conversion."""

    tensor: str
    dtype: str
    edge: Edge | None


def lay_out(
    layers: Sequence[PredictedLayer], graph: Graph, options: LayoutOptions = DEFAULT
) -> tuple[LaidOut, ...]:
    """The memory layout that each of ``layers``, of a whole plan in order, runs in."""
    draft = _Draft(graph, _leading(layers, graph), options)
    laid = [draft.add(layer) for layer in layers]
    return tuple(map(draft.left, layers, laid))


def _leading(layers: Sequence[PredictedLayer], graph: Graph) -> frozenset[Edge]:
    """Edges from which a Transpose, or layers to push one through and then a Transpose, read."""
    leading: set[Edge] = set()
    for predicted in reversed(layers):
        reads = _reads(predicted, graph)
        if _is_integer_conv(predicted, reads) or _main_op(predicted) == "Transpose":
            leading.update(predicted.edges[:1])
        elif _hands_on(predicted, reads, graph) and _leads(predicted, leading, graph):
            leading.update(predicted.edges)
    return frozenset(leading)


def _leads(predicted: PredictedLayer, leading: Container[Edge], graph: Graph) -> bool:
    if not predicted.nodes:
        return any(edge in leading for edge in predicted.edges)
    outputs = (port.tensor for port in predicted.layer.outputs)
    return any(edge in leading for tensor in outputs for edge in graph.edges_of(tensor))


@dataclass
class _Draft:
    """``there``: the layouts that there are of a tensor and type, the one written first.

    What was dequantized for one edge is there for that edge. ``orders``: of tensors that are not
    row-major, their dimensions in the order in which they lie.
    """

    graph: Graph
    leading: frozenset[Edge]
    options: LayoutOptions
    there: dict[object, list[MemoryLayout]] = field(default_factory=dict)
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def add(self, predicted: PredictedLayer) -> LaidOut:
        """The next layer."""
        reads = _reads(predicted, self.graph)
        laid = (
            self._of_transpose(predicted, reads)
            or self._of_view(predicted, reads)
            or self._of_others(predicted, reads)
        )
        for port in predicted.layer.outputs:
            self.there[port.tensor, port.dtype] = [laid.layout]
        if predicted.layer.kind == "dequantize":
            self.there |= {edge: [laid.layout] for edge in predicted.edges}
        return laid

    def left(self, predicted: PredictedLayer, laid: LaidOut) -> LaidOut:
        """``laid`` with what is moved behind the layer, for outputs of the graph."""
        moves = [
            self._moved(_Read(port.tensor, port.dtype, None), ROW_MAJOR)
            for port in predicted.layer.outputs
            if not is_quantized(port.dtype) and self._leaves(predicted, port.tensor)
        ]
        return laid._replace(moves=(*laid.moves, *(move for move in moves if move is not None)))

    def _leaves(self, predicted: PredictedLayer, tensor: str) -> bool:
        edges = self.graph.edges_of(tensor) if predicted.nodes else predicted.edges
        return any(edge.is_graph_output for edge in edges)

    def _of_others(self, predicted: PredictedLayer, reads: Sequence[_Read]) -> LaidOut:
        layout = self._layout(predicted, reads)
        image = layout == BLOCKED and self._reads_image(predicted)
        moves = [self._moved(read, ROW_MAJOR if image else layout) for read in reads]
        return LaidOut(layout, tuple(move for move in moves if move is not None))

    def _of_transpose(self, predicted: PredictedLayer, reads: Sequence[_Read]) -> LaidOut | None:
        """A Transpose of the model that is none where the channels are moved; None: it is one."""
        if _main_op(predicted) != "Transpose" or len(predicted.nodes) != 1 or not reads:
            return None
        order, written = order_of(self.graph, predicted.nodes[0]), self._written(reads[0])
        if written != ROW_MAJOR and order == self._order(reads[0].tensor):
            move = None if written != BLOCKED else self._moved(reads[0], ROW_MAJOR)
            return LaidOut(ROW_MAJOR, () if move is None else (move,), gone=True)
        if written != ROW_MAJOR or not order:
            return None
        output, turned = predicted.nodes[0].outputs[0], inverse(order)
        becomes_map = self.options.views and self._turns_to_last(output, turned)
        if turned == channels_last(len(order)):
            leads = becomes_map or _leads(predicted, self.leading, self.graph)
            return LaidOut(LAST, (), gone=True) if leads else None
        if becomes_map:
            self.orders[output] = turned
            return LaidOut(TURNED, (), gone=True)
        return None

    def _turns_to_last(self, tensor: str, order: Sequence[int]) -> bool:
        """Whether views alone read ``tensor``, whose channels are last if it lies in ``order``."""
        nodes = [self.graph.by_name.get(edge.node) for edge in self.graph.edges_of(tensor)]
        split = [None if node is None else split_order(node, order, self.graph) for node in nodes]
        return bool(split) and all(x is not None and x == channels_last(len(x)) for x in split)

    def _of_view(self, predicted: PredictedLayer, reads: Sequence[_Read]) -> LaidOut | None:
        """A Reshape of what is not row-major that splits it as it lies; None: it is no such one."""
        if not self.options.views or not reads or not _is_view(predicted):
            return None
        if self._written(reads[0]) not in (LAST, TURNED):
            return None
        node = predicted.nodes[0]
        split = split_order(node, self._order(reads[0].tensor), self.graph)
        if split is None:
            return None
        self.orders[node.outputs[0]] = split
        return LaidOut(LAST if split == channels_last(len(split)) else TURNED, ())

    def _order(self, tensor: str) -> tuple[int, ...]:
        rank = len(self.graph.type_of(tensor).shape or ())
        return self.orders.get(tensor, channels_last(rank))

    def _layout(self, predicted: PredictedLayer, reads: Sequence[_Read]) -> MemoryLayout:
        if _is_integer_conv(predicted, reads):
            return LAST
        if self._is_blocked_conv(predicted) or self._is_blocked_pool(predicted, reads):
            return BLOCKED
        written = [self._written(read) for read in reads]
        if BLOCKED in written and self._goes_on_in_blocks(predicted, reads):
            return BLOCKED
        if _is_clamp_that_is_gone(predicted):
            return LAST if LAST in written else ROW_MAJOR
        if LAST not in written or not _is_pushed(predicted, reads, self.graph):
            return ROW_MAJOR
        stays = self.options.outputs and predicted.nodes and self._writes_output(predicted)
        return LAST if not stays and self._is_worth_it(predicted, reads) else ROW_MAJOR

    def _writes_output(self, predicted: PredictedLayer) -> bool:
        """Whether a graph output is among what the layer writes in float."""
        return any(
            not is_quantized(port.dtype) and self._leaves(predicted, port.tensor)
            for port in predicted.layer.outputs
        )

    def _is_blocked_conv(self, predicted: PredictedLayer) -> bool:
        """A Conv whose weights are dequantized in every run is none."""
        main, block = _main(predicted), self.options.block
        if block is None or main is None or main.op != "Conv":
            return False
        is_float = self.graph.edge_at(main, 1) not in self.there
        return is_float and is_conv_of_blocks(main, self.graph, block)

    def _is_blocked_pool(self, predicted: PredictedLayer, reads: Sequence[_Read]) -> bool:
        """A pool of floats that makes blocks of whatever it reads."""
        main, block = _main(predicted), self.options.block
        if main is None or block is None or main.op not in POOLS:
            return False
        is_float = all(not is_quantized(read.dtype) for read in reads)
        return is_float and reads_blocks(main, self.graph, block)

    def _reads_image(self, predicted: PredictedLayer) -> bool:
        """Whether it is a Conv in blocks that reads fewer channels than a block, row-major."""
        main, block = _main(predicted), self.options.block
        return (
            main is not None
            and block is not None
            and main.op == "Conv"
            and not reads_blocks(main, self.graph, block)
        )

    def _goes_on_in_blocks(self, predicted: PredictedLayer, reads: Sequence[_Read]) -> bool:
        main, block = _main(predicted), self.options.block
        if main is None or block is None or predicted.layer.kind == "no-op":
            return False
        tensors = [read.tensor for read in reads]
        whole = all(self._written(read) == BLOCKED for read in reads)
        return whole and goes_on_in_blocks(main, tensors, self.graph, block)

    def _is_worth_it(self, predicted: PredictedLayer, reads: Sequence[_Read]) -> bool:
        """Whether a Transpose is pushed through, by the dimensions of what is moved then.

        That is the rule of ``EstimateTransposeInputsCost``, and of ``OrtEPCostCheck`` for kernels
        that are faster with channels last.
        """
        main = _main_op(predicted)
        linear = predicted.nodes and predicted.nodes[0].attributes.get("mode") == "linear"
        if is_quantized(reads[0].dtype) and (main == "MaxPool" or (main == "Resize" and linear)):
            return True
        ranks = [(_rank(read.tensor, self.graph), self._written(read) == LAST) for read in reads]
        cost = sum(-rank if last else rank for rank, last in ranks)
        if cost < 0 and not _leads(predicted, self.leading, self.graph):
            cost += _rank(predicted.layer.outputs[0].tensor, self.graph)
        return cost < 0

    def _written(self, read: _Read) -> MemoryLayout:
        return self._there(read)[0]

    def _moved(self, read: _Read, layout: MemoryLayout) -> Move | None:
        there = self._there(read)
        if layout in there:
            return None
        there.append(layout)
        is_shared = there[0] == LAST and read.edge in self.there and not is_quantized(read.dtype)
        return Move(read.tensor, read.dtype, layout, read.edge if is_shared else None)

    def _there(self, read: _Read) -> list[MemoryLayout]:
        if read.edge in self.there and not is_quantized(read.dtype):
            return self.there[read.edge]
        return self.there.setdefault((read.tensor, read.dtype), [ROW_MAJOR])


def _reads(predicted: PredictedLayer, graph: Graph) -> list[_Read]:
    """What the layer reads, without constants and what has no channels to be moved."""
    edges: Iterable[Edge | None] = predicted.edges if predicted.nodes else (None,)
    reads = (
        _Read(port.tensor, port.dtype, edge)
        for port, edge in zip(predicted.layer.inputs, edges, strict=False)
    )
    return [
        read
        for read in dict.fromkeys(reads)
        if read.tensor not in graph.initializers
        and (is_quantized(read.dtype) or read.dtype == FLOAT)
        and len(graph.type_of(read.tensor).shape or ()) > 2
    ]


def _main(predicted: PredictedLayer) -> Node | None:
    convs = (node for node in predicted.nodes if node.op in _CONVS)
    return next(convs, predicted.nodes[0] if predicted.nodes else None)


def _main_op(predicted: PredictedLayer) -> str:
    main = _main(predicted)
    return "" if main is None else main.op


def _is_view(predicted: PredictedLayer) -> bool:
    return len(predicted.nodes) == 1 and predicted.nodes[0].op == "Reshape"


def _is_integer_conv(predicted: PredictedLayer, reads: Sequence[_Read]) -> bool:
    return _main_op(predicted) == "Conv" and bool(reads) and is_quantized(reads[0].dtype)


def _is_pushed(predicted: PredictedLayer, reads: Sequence[_Read], graph: Graph) -> bool:
    """Whether a Transpose may be pushed through the layer."""
    if not reads or predicted.layer.kind == "no-op":
        return False
    if not predicted.nodes:
        return predicted.layer.kind in ("quantize", "dequantize")
    ranks = {len(graph.type_of(read.tensor).shape or ()) for read in reads}
    integer = all(is_quantized(read.dtype) for read in reads)
    known = _PUSHED if integer else _PUSHED_FLOAT
    if not integer and predicted.layer.op in _PUSHED_FUSED:
        return True
    alone = len(predicted.nodes) == 1 or integer
    return alone and predicted.nodes[0].op in known and len(ranks) == 1


def _hands_on(predicted: PredictedLayer, reads: Sequence[_Read], graph: Graph) -> bool:
    """Whether what is behind the layer is seen from before it."""
    return _is_clamp_that_is_gone(predicted) or _is_pushed(predicted, reads, graph)


def _is_clamp_that_is_gone(predicted: PredictedLayer) -> bool:
    """Whether the layer is a Relu or Clip that Q does, and none."""
    return predicted.layer.kind == "no-op" and _main_op(predicted) in ("Relu", "Clip")


def _rank(tensor: str, graph: Graph) -> int:
    """Dimensions of more than one element, as ONNX Runtime counts them."""
    return sum(size != 1 for size in graph.type_of(tensor).shape or ())
