"""How much time integers save, and what conversions take, as a pack states it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Literal

from onnx import TensorProto
from pydantic import Field, PrivateAttr

from placer.common.yaml_file import Strict
from placer.graph import Graph, Node
from placer.graph.signs import is_non_negative
from placer.rules.condition import Condition
from placer.rules.field_types import Names

_THOUSAND, _MILLION = 1e3, 1e6
_WEIGHTED = ("Conv", "Gemm", "MatMul")
_HALF = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})


class Time(Strict):
    """Microseconds on one thread, for each node or tensor and for what it has."""

    each: float = Field(default=0.0, description="For each.")
    elements: float = Field(
        default=0.0,
        description="For each thousand elements: of a tensor, or of what a node writes or reads "
        "first, whichever is more.",
    )

    def us(self, elements: int) -> float:
        """Microseconds."""
        return self.each + self.elements * elements / _THOUSAND


class Conversion(Time):
    """What it takes to quantize or dequantize a tensor."""

    maps: float = Field(
        default=0.0, description="For each map besides, which is often moved in memory as well."
    )
    map_elements: float = Field(
        default=0.0,
        description="For each thousand elements of a map besides that a node writes: an image that "
        "enters the model is not stored in blocks.",
    )

    def takes_us(self, tensor: str, graph: Graph) -> float:
        """Microseconds."""
        shape = graph.type_of(tensor).shape or ()
        is_map = len(shape) > 3 and math.prod(shape[2:]) > 1
        elements = _elements(tensor, graph)
        moved = self.map_elements * elements / _THOUSAND if tensor in graph.producer else 0.0
        return self.us(elements) + (self.maps + moved if is_map else 0.0)


class Gain(Time):
    """What nodes of some operators save in integers; negative where they take longer."""

    op: Names = Field(description="The operators.")
    groups: Literal["one", "depthwise", "any"] = Field(
        default="any", description="Of Convs those with `one` group, `depthwise` ones, or `any`."
    )
    rank: int = Field(
        default=0, description="Of nodes that read tensors of so many dimensions or more."
    )
    products: float = Field(
        default=0.0,
        description="For each million products that a Conv, ConvTranspose, MatMul or Gemm sums up.",
    )
    weights: float = Field(
        default=0.0, description="For each million weights of theirs, which are loaded."
    )
    windows: float = Field(
        default=0.0,
        description="For each thousand pixels that a Conv gathers, those of its kernel for each "
        "pixel that it writes, in each group unless it is depthwise; none of a single one.",
    )

    def saves_us(self, node: Node, graph: Graph) -> float:
        """Microseconds."""
        read, written = (_elements(t, graph) for t in (node.inputs[0], node.outputs[0]))
        products = _products(node, graph) / _MILLION
        weighted = node.op in _WEIGHTED and node.inputs[1] in graph.initializers
        weights = _elements(node.inputs[1], graph) / _MILLION if weighted else 0.0
        return (
            self.us(max(read, written))
            + self.products * products
            + self.weights * weights
            + self.windows * _gathered(node, graph) / _THOUSAND
        )


class Correction(Strict):
    """What it takes a padded Conv to correct its sums for a zero point, which the padding lacks.

    Only where it may read values below zero, since a range without any has zero point 0.
    """

    when: Condition = Field(
        default=Condition(),
        description="Processors and schemes where it is so; nowhere if the processor is unknown.",
    )
    taps: float = Field(
        default=0.0,
        description="For each thousand values of the kernel of all channels that the Conv writes, "
        "at each pixel of a row. None with groups.",
    )
    products: float = Field(
        default=0.0,
        description="For each million products of a row besides, those of all channels.",
    )
    map_elements: float = Field(
        default=0.0,
        description="For each thousand elements besides of a map, of four dimensions or more, that "
        "the Conv writes.",
    )

    def takes_us(self, node: Node, graph: Graph) -> float:
        """Microseconds for ``node``; 0 unless it is such a Conv."""
        if not _is_padded(node, graph) or _groups(node) > 1:
            return 0.0
        if is_non_negative(node.inputs[0], graph):
            return 0.0
        weights = graph.type_of(node.inputs[1]).shape or (0,)
        written = graph.type_of(node.outputs[0]).shape or (0,)
        row, elements = written[-1], math.prod(written) if len(written) > 3 else 0
        taps, products = row * weights[0] * math.prod(weights[2:]), row * math.prod(weights)
        of_rows = self.taps * taps / _THOUSAND + self.products * products / _MILLION
        return of_rows + self.map_elements * elements / _THOUSAND


NO_CORRECTION = Correction()


class Activation(Time):
    """What it takes a Conv of integers more than one of floats to compute what stands behind it.

    For each thousand elements that the Conv writes.
    """

    when: Condition = Field(
        default=Condition(),
        description="Processors and schemes where it is so; nowhere if the processor is unknown.",
    )
    op: Names = Field(
        description="Operators that alone read what the Conv writes; `SiLU` is a Sigmoid and a Mul "
        "of both, where nothing else reads either."
    )
    tile: int = Field(
        default=1,
        ge=1,
        description="Pixels of a row that a kernel computes at a time. Above 1 only Convs wider "
        "than one pixel count that write rows of another length than a multiple of it.",
    )
    writes: Literal["any", "integers"] = Field(
        default="any",
        description="`integers`: only where the Conv writes integers, as all readers of the "
        "activation want them.",
    )

    def takes_us(self, node: Node, graph: Graph) -> float:
        """Microseconds for ``node``; 0 unless it is such a Conv of one group."""
        if _activated(node, graph)[0] not in self.op:
            return 0.0
        if self.tile > 1 and not _leaves_remainder(node, graph, self.tile):
            return 0.0
        return self.us(_elements(node.outputs[0], graph))


class Sum(Time):
    """What it takes where some node reads in float what a Conv adds in place to integers.

    The operand is dequantized before the Conv, and the sum is scaled behind it.
    """

    scaling: list[str] = Field(
        default=[], description="Operators that scale what they read at no cost, so it is free."
    )

    def takes_us(self, tensor: str, graph: Graph) -> float:
        """Microseconds for the sum ``tensor``."""
        return self.us(_elements(tensor, graph))


class Gains(Strict):
    """Times of integers against float on one thread of the kind of processor in `when`.

    The default placement keeps float where integers would take longer by them.
    """

    when: Condition = Field(default=Condition(), description="Processors that take these times.")
    quantize: Conversion = Field(description="What it takes to quantize a tensor.")
    dequantize: Conversion = Field(description="What it takes to dequantize one for a reader.")
    summed: Sum = Field(
        default=Sum(), description="What it takes a sum of two quantized operands to write floats."
    )
    corrected: Correction = Field(
        default=NO_CORRECTION,
        description="What it takes padded Convs besides where they read a zero point other than 0.",
    )
    activated: list[Activation] = Field(
        default=[],
        description="What it takes Convs of integers besides where activations stand behind them.",
    )
    reordered: list[Gain] = Field(
        default=[],
        description="What it takes more to move a map of floats in memory than one of integers, "
        "before operators that no Conv takes along, whose layers want rows of pixels.",
    )
    converting: list[str] = Field(
        default=[],
        description="Operators that quantize what they write if all readers want it, where no "
        "rule has a layer of theirs; else the layer's `outputs` say so.",
    )
    nodes: list[Gain] = Field(description="What nodes save, by the first entry that fits.")
    behind_floats: list[Gain] = Field(
        default=[],
        description="The same of nodes that Q moves past, where a node in float writes what they "
        "alone read.",
    )
    fused: list[Gain] = Field(
        default=[],
        description="What layers of several nodes save in float against these nodes one by one, by "
        "the operator that they are together. The engine leaves the nodes apart where an edge that "
        "a layer needs `bare` comes from integers.",
    )

    alone: list[Gain] = Field(
        default=[],
        description="What it takes to run nodes as layers of their own which a float layer of a "
        "Conv or linear layer before them takes along, and one of integers does not.",
    )

    def alone_us(self, node: Node, graph: Graph) -> float:
        """What ``node`` takes as a layer of its own; 0 where nothing is said of it."""
        return _saved_us(self.alone, node, graph)

    def reordered_us(self, node: Node, graph: Graph) -> float:
        """What ``node`` saves for each map that it reads as integers; 0 unless it moves maps."""
        shape = _read_shape(node, graph)
        is_map = len(shape) > 3 and math.prod(shape[2:]) > 1
        return _saved_us(self.reordered, node, graph) if is_map else 0.0

    def of_fused(self, ops: Collection[str]) -> Gain | None:
        """What is said of layers that are called one of ``ops``."""
        return next((gain for gain in self.fused if not set(ops).isdisjoint(gain.op)), None)

    _keeps_half: bool = PrivateAttr(default=False)

    def with_half_kept(self) -> Gains:
        """The same where nodes that read half precision have no kernels of integers."""
        gains = self.model_copy()
        gains._keeps_half = True
        return gains

    def saved_us(self, node: Node, graph: Graph, *, writes_floats: bool = False) -> float:
        """Microseconds that ``node`` saves in integers; 0 where nothing is said of it.

        ``writes_floats``: it reads integers, but some reader of what it writes wants floats.
        """
        if self._keeps_half and _reads_half(node, graph):
            return 0.0
        activated = sum(
            each.takes_us(node, graph)
            for each in self.activated
            if each.writes == "any" or not writes_floats
        )
        return _saved_us(self.nodes, node, graph) - self.corrected.takes_us(node, graph) - activated

    def activated_tensor(self, node: Node, graph: Graph) -> str | None:
        """What an activation behind ``node`` writes, if integers there take time of their own."""
        if not any(
            one.writes == "integers" and one.takes_us(node, graph) for one in self.activated
        ):
            return None
        return _activated(node, graph)[1]

    def saved_behind_floats_us(self, node: Node, graph: Graph) -> float:
        """The same besides, where integers begin at ``node``."""
        if not node.inputs or len(graph.edges_of(node.inputs[0])) > 1:
            return 0.0
        return _saved_us(self.behind_floats, node, graph)


def _read_shape(node: Node, graph: Graph) -> Sequence[int]:
    """The shape of what ``node`` reads first; empty where it is unknown, or nothing is read."""
    return (graph.type_of(node.inputs[0]).shape or ()) if node.inputs else ()


def _reads_half(node: Node, graph: Graph) -> bool:
    return any(graph.type_of(tensor).dtype in _HALF for tensor in node.inputs[:1])


def _saved_us(gains: Sequence[Gain], node: Node, graph: Graph) -> float:
    gain = next((gain for gain in gains if _is_of(gain, node, graph)), None)
    return 0.0 if gain is None else gain.saves_us(node, graph)


def _is_of(gain: Gain, node: Node, graph: Graph) -> bool:
    if node.op not in gain.op or not node.inputs or len(_read_shape(node, graph)) < gain.rank:
        return False
    if gain.groups == "any":
        return True
    if gain.groups == "one":
        return _groups(node) == 1
    return _is_depthwise(node, graph)


def _is_padded(node: Node, graph: Graph) -> bool:
    """Whether a Conv pads what it reads, itself or by a Pad that becomes part of it."""
    if node.op != "Conv":
        return False
    writer = graph.producer.get(node.inputs[0])
    return (
        any(node.attributes.get("pads", ()))
        or str(node.attributes.get("auto_pad", "")).startswith("SAME")
        or (writer is not None and writer.op == "Pad")
    )


def _activated(node: Node, graph: Graph) -> tuple[str, str]:
    """What can be part of the kernel of a Conv of one group, and the tensor that it writes.

    The operator of the sole reader, or ``SiLU``; else empty.
    """
    if node.op != "Conv" or _groups(node) > 1:
        return "", ""
    written = node.outputs[0]
    reader = graph.sole_reader(written)
    if reader is not None:
        return reader.op, reader.outputs[0]
    edges = graph.edges_of(written)
    if len(edges) != 2 or any(edge.is_graph_output for edge in edges):
        return "", ""
    readers = [graph.by_name[edge.node] for edge in edges]
    for gate, product in (readers, readers[::-1]):
        is_gated = gate.op == "Sigmoid" and product.op == "Mul"
        if is_gated and graph.sole_reader(gate.outputs[0]) is product:
            return "SiLU", product.outputs[0]
    return "", ""


def _leaves_remainder(node: Node, graph: Graph, tile: int) -> bool:
    """Whether rows that a Conv writes are no multiple of ``tile``; without a row in 1x1 ones."""
    kernel = (graph.type_of(node.inputs[1]).shape or ())[2:]
    row = (graph.type_of(node.outputs[0]).shape or (0,))[-1]
    return math.prod(kernel) > 1 and row % tile > 0


def _groups(node: Node) -> int:
    return int(node.attributes.get("group", 1))


def _is_depthwise(node: Node, graph: Graph) -> bool:
    """Whether each channel that a Conv reads has a single one of its own that it writes."""
    shape = graph.type_of(node.inputs[1]).shape
    return _groups(node) > 1 and shape is not None and shape[:2] == (_groups(node), 1)


def _products(node: Node, graph: Graph) -> int:
    """Those that a node sums up."""
    if node.op == "ConvTranspose":  # Each element that it reads, with a kernel for each channel.
        shape = graph.type_of(node.inputs[1]).shape or (0,)
        return _elements(node.inputs[0], graph) * math.prod(shape[1:])
    return _elements(node.outputs[0], graph) * _depth(node, graph)


def _depth(node: Node, graph: Graph) -> int:
    """Products for each element that a node writes; none of one without weights."""
    if node.op in ("MatMul", "Gemm"):
        read = graph.type_of(node.inputs[0]).shape
        turned = node.attributes.get("transA", 0)
        return read[-2 if turned else -1] if read else 0
    if node.op != "Conv":
        return 0
    return math.prod((graph.type_of(node.inputs[1]).shape or (0,))[1:])


def _gathered(node: Node, graph: Graph) -> int:
    """Pixels of the windows that a Conv goes through, group by group unless it is depthwise."""
    if node.op != "Conv":
        return 0
    kernel = math.prod((graph.type_of(node.inputs[1]).shape or ())[2:])
    if kernel == 1:
        return 0
    times = 1 if _is_depthwise(node, graph) else _groups(node)
    return times * kernel * math.prod((graph.type_of(node.outputs[0]).shape or ())[2:])


def _elements(tensor: str, graph: Graph) -> int:
    """Elements of ``tensor``; none where its shape is not known."""
    shape = graph.type_of(tensor).shape
    return 0 if shape is None else math.prod(shape)
