"""Where ONNX Runtime moves tensors to another memory layout, and which pools read rows of images.

On a CPU a quantized Conv reads and writes channels last (NhwcTransformer), and a float Conv in
blocks of channels where its channels fill them (NchwcTransformer). What is between goes on in such
a layout, or the tensor is moved: a Transpose of integers is pushed behind a layer where that costs
no more than it saves, or where the layer leads to another Transpose. Where one stays behind a DQ, a
pair is put behind it that nobody needs. Sources, in onnxruntime/core/optimizer:
nhwc_transformer.cc, nchwc_transformer.cc, transpose_optimization/.

Kernels differ: a uint8 MaxPool takes some 40 times as long where its channels are not last.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from placer.graph import Edge, Graph, Node
from placer.plan.dtypes import is_quantized
from placer.prediction.layers.claims import FLOAT
from placer.prediction.layers.conversions import PredictedLayer

MemoryLayout = Literal["row-major", "channels-last", "blocked"]
ROW_MAJOR: MemoryLayout = "row-major"
LAST: MemoryLayout = "channels-last"
BLOCKED: MemoryLayout = "blocked"

_CONVS = ("Conv", "ConvTranspose")
_BLOCK, _ALIGNED = 16, 4  # Channels of a block with AVX-512; of which a float Conv takes multiples.
# Integer kernels that a Transpose is pushed through, and float ones.
_PUSHED = frozenset(
    "Add AveragePool Concat GlobalAveragePool LeakyRelu MaxPool Mul ReduceMean Resize Sigmoid "
    "Slice Softmax Split".split()
)
_PUSHED_FLOAT = frozenset(
    "Add Clip Concat Div Elu Erf Exp HardSigmoid HardSwish LeakyRelu Max Min Mul Neg Pow "
    "ReduceMean Relu Sigmoid Slice Softplus Split Sqrt Sub Tanh".split()
)
# Float operators that go on in blocks.
_IN_BLOCKS = frozenset(
    "Add AveragePool Concat GlobalAveragePool GlobalMaxPool MaxPool Mul Relu Resize Sigmoid Sum "
    "Tanh".split()
)
_IMAGE = 4  # Dimensions of what is held in blocks.


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


def lay_out(layers: Sequence[PredictedLayer], graph: Graph) -> tuple[LaidOut, ...]:
    """The memory layout that each of ``layers``, of a whole plan in order, runs in."""
    draft = _Draft(graph, _leading(layers, graph))
    laid = [draft.add(layer) for layer in layers]
    return tuple(map(draft.left, layers, laid))


def with_moves(layers: Sequence[PredictedLayer], graph: Graph) -> Iterator[PredictedLayer]:
    """``layers``, a whole plan in order, with what becomes of Transposes.

    Those of the model that others undo are none, and behind those that stay behind a DQ are pairs,
    which convert to the same integers and back (TryFixTransposeMissingQ).
    """
    written: dict[Edge, PredictedLayer] = {}
    laid_out = lay_out(layers, graph)
    by_edge = {
        edge: laid
        for predicted, laid in zip(layers, laid_out, strict=True)
        for edge in (predicted.edges if predicted.nodes else ())
    }
    for predicted, laid in zip(layers, laid_out, strict=True):
        for move in laid.moves:
            if move.behind in written:
                yield from _pair(written[move.behind])
        if predicted.layer.kind == "dequantize":
            written |= dict.fromkeys(predicted.edges, predicted)
        # What a reorder of blocks does on its way is told by rules, which know of paired weights.
        gone = laid.gone and not laid.moves and _is_undone(predicted, laid, by_edge, graph)
        layer = replace(predicted.layer, kind="no-op") if gone else predicted.layer
        yield replace(predicted, layer=layer) if gone else predicted


def _is_undone(
    turn: PredictedLayer, laid: LaidOut, by_edge: Mapping[Edge, LaidOut], graph: Graph
) -> bool:
    """Whether all that read a Transpose take what the Transpose reads."""
    readers = graph.edges_of(turn.layer.outputs[0].tensor)
    if laid.layout != LAST:
        return len(readers) == 1
    after = [by_edge.get(edge) for edge in readers]
    return all(x is not None and (x.gone or x.layout == LAST) for x in after)


def _pair(dequantize: PredictedLayer) -> tuple[PredictedLayer, PredictedLayer]:
    """A Q and a DQ behind ``dequantize``."""
    layer = dequantize.layer
    quantize = replace(
        layer, name=f"quantize {layer.outputs[0].tensor}", inputs=layer.outputs,
        outputs=layer.inputs, kind="quantize",
    )  # fmt: skip
    return replace(dequantize, layer=quantize), dequantize


def _leading(layers: Sequence[PredictedLayer], graph: Graph) -> frozenset[Edge]:
    """Edges from which a Transpose, or layers to push one through and then a Transpose, read."""
    found: set[Edge] = set()
    for predicted in reversed(layers):
        reads = _reads(predicted, graph)
        if _is_integer_conv(predicted, reads) or _main_op(predicted) == "Transpose":
            found.update(predicted.edges[:1])
        elif _is_pushed(predicted, reads, graph) and _leads(predicted, found, graph):
            found.update(predicted.edges)
    return frozenset(found)


def _leads(predicted: PredictedLayer, leading: Container[Edge], graph: Graph) -> bool:
    if not predicted.nodes:
        return any(edge in leading for edge in predicted.edges)
    outputs = (port.tensor for port in predicted.layer.outputs)
    return any(edge in leading for tensor in outputs for edge in graph.edges_of(tensor))


@dataclass
class _Draft:
    """``there``: the layouts that there are of a tensor and type, the one written first.

    What was dequantized for one edge is there for that edge.
    """

    graph: Graph
    leading: frozenset[Edge]
    there: dict[object, list[MemoryLayout]] = field(default_factory=dict)

    def add(self, predicted: PredictedLayer) -> LaidOut:
        """The next layer."""
        reads = _reads(predicted, self.graph)
        laid = self._of_transpose(predicted, reads) or self._of_others(predicted, reads)
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
        image = layout == BLOCKED and _reads_image(predicted, self.graph)
        moves = [self._moved(read, ROW_MAJOR if image else layout) for read in reads]
        return LaidOut(layout, tuple(move for move in moves if move is not None))

    def _of_transpose(self, predicted: PredictedLayer, reads: Sequence[_Read]) -> LaidOut | None:
        """A Transpose of the model that is none where the channels are moved; None: it is one."""
        if _main_op(predicted) != "Transpose" or len(predicted.nodes) != 1 or not reads:
            return None
        found, written = predicted.nodes[0].attributes.get("perm"), self._written(reads[0])
        order = tuple(found) if isinstance(found, list | tuple) else ()
        rank = len(self.graph.type_of(reads[0].tensor).shape or ())
        if order == (0, *range(2, rank), 1) and written != ROW_MAJOR:
            move = None if written == LAST else self._moved(reads[0], ROW_MAJOR)
            return LaidOut(ROW_MAJOR, () if move is None else (move,), gone=True)
        puts_first = order == (0, rank - 1, *range(1, rank - 1)) and written == ROW_MAJOR
        if puts_first and _leads(predicted, self.leading, self.graph):
            return LaidOut(LAST, (), gone=True)
        return None

    def _layout(self, predicted: PredictedLayer, reads: Sequence[_Read]) -> MemoryLayout:
        if _is_integer_conv(predicted, reads):
            return LAST
        if _is_blocked_conv(predicted, self.graph):
            return BLOCKED
        written = [self._written(read) for read in reads]
        if BLOCKED in written:
            whole = set(written) == {BLOCKED} and _goes_on_in_blocks(predicted, reads, self.graph)
            return BLOCKED if whole else ROW_MAJOR
        if LAST in written and _is_pushed(predicted, reads, self.graph):
            return LAST if self._is_worth_it(predicted, reads) else ROW_MAJOR
        return ROW_MAJOR

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
        own = there[0] == LAST and read.edge in self.there and not is_quantized(read.dtype)
        return Move(read.tensor, read.dtype, layout, read.edge if own else None)

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
    alone = len(predicted.nodes) == 1 or integer
    return alone and predicted.nodes[0].op in known and len(ranks) == 1


def _rank(tensor: str, graph: Graph) -> int:
    """Dimensions of more than one element, as ONNX Runtime counts them."""
    return sum(size != 1 for size in graph.type_of(tensor).shape or ())


def _is_blocked_conv(predicted: PredictedLayer, graph: Graph) -> bool:
    """Whether the layer is a float Conv whose channels fill blocks."""
    main = _main(predicted)
    shape = None if main is None or main.op != "Conv" else graph.type_of(main.inputs[1]).shape
    if main is None or shape is None or len(shape) != _IMAGE:
        return False
    groups = _groups(main)
    if groups == 1:
        return shape[1] < _BLOCK or shape[1] % _ALIGNED == 0
    depthwise = shape[1] == 1 and shape[0] == groups
    aligned = shape[1] % _ALIGNED == 0 and (shape[0] // groups) % _ALIGNED == 0
    return shape[0] % _ALIGNED == 0 and (depthwise or aligned)


def _reads_image(predicted: PredictedLayer, graph: Graph) -> bool:
    """Whether a Conv in blocks reads channels that are fewer than a block, row-major."""
    main = _main(predicted)
    if main is None or main.op != "Conv" or _groups(main) != 1:
        return False
    return (graph.type_of(main.inputs[1]).shape or (0, _BLOCK))[1] < _BLOCK


def _groups(node: Node) -> int:
    found = node.attributes.get("group", 1)
    return found if isinstance(found, int) else 1


def _goes_on_in_blocks(predicted: PredictedLayer, reads: Sequence[_Read], graph: Graph) -> bool:
    main, shapes = _main(predicted), [graph.type_of(read.tensor).shape for read in reads]
    if main is None or predicted.layer.kind == "no-op" or main.op not in _IN_BLOCKS:
        return False
    if main.op == "Concat":
        whole = all(shape is not None and shape[1] % _BLOCK == 0 for shape in shapes)
        return whole and main.attributes.get("axis") in (1, 1 - _IMAGE)
    if main.op == "Resize":
        return _resizes_in_blocks(main)
    return all(shape == shapes[0] for shape in shapes)


def _resizes_in_blocks(resize: Node) -> bool:
    """Whether the kernel for blocks has the Resize's rule for where pixels come from."""
    found = resize.attributes.get("coordinate_transformation_mode", "half_pixel")
    if resize.attributes.get("mode", "nearest") == "linear":
        return found in ("align_corners", "asymmetric", "half_pixel")
    rounding = resize.attributes.get("nearest_mode", "round_prefer_floor")
    return (found, rounding) == ("asymmetric", "floor")
