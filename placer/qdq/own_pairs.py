"""Ranges and integer types of tensors, from the pairs of a quantized file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from onnx import NodeProto, TensorProto, numpy_helper

from placer.graph import Edge, Graph, Node
from placer.graph.external_data import is_external
from placer.graph.operators import OF_SHAPES, PAIR_OPS
from placer.graph.weights import BIAS_INDEX, WEIGHTED_OPS, added_bias
from placer.qdq.extract import ExtractedModel, integer_type
from placer.qdq.moved_weights import name_in_file
from placer.quantization import Format, Placement, Range, Ranges, Scheme
from placer.quantization.placement import ScaleGroup
from placer.quantization.ranges import union
from placer.quantization.scheme import INT8_OR_UINT8, INT32, MOVED_FORMATS, foreign_format

_LEVELS: Mapping[int, tuple[int, int]] = {
    TensorProto.UINT8: (0, 255),
    TensorProto.INT8: (-128, 127),
}

# What two Qs that do the same have in common: the tensor, the scale's values, the zero point.
Quantizer = tuple[object, ...]

_MATRIX = 2  # Dimensions.
_MOVERS = frozenset({"MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice"})


@dataclass(frozen=True)
class OwnPairs:
    """By float tensor: what its pairs can represent, and the type that all of them have, ONNX's
    name in lower case. Tensors with scales that are not known, or of 16 bits, are left out.

    ``nodes``: the names of the Q and the DQ of the pair at each edge, of the DQ alone where the
    file stores integers.
    """

    ranges: Ranges
    types: Mapping[str, str]
    nodes: Mapping[Edge, tuple[str, ...]] = field(default_factory=dict)

    def ranges_in(self, scheme: Scheme) -> Ranges:
        """``ranges`` of which ``scheme`` makes the scales of the pairs.

        Where that is amax / 127, -128 is none of its values, and pairs with another zero point
        than in the middle, as 0 of uint8, have scales that it does not make.
        """
        if not scheme.symmetric:
            return self.ranges
        found = {}
        for tensor, (low, high) in self.ranges.items():
            if math.isclose(low, high * -128 / 127):
                found[tensor] = Range(-high, high)
            elif scheme.activation == INT8_OR_UINT8 and low == 0:
                found[tensor] = Range(low, high)
        return found

    def without(self, nodes: Collection[str]) -> OwnPairs:
        """These, but for ``nodes``, which are not in the file."""
        left = {e: tuple(n for n in names if n not in nodes) for e, names in self.nodes.items()}
        return replace(self, nodes={edge: names for edge, names in left.items() if names})


def own_pairs(model: ExtractedModel) -> OwnPairs:
    """Read the pairs on the activations of ``model``, and on tables of which a Gather copies.

    Of pairs in a row values keep what all of them represent, which is the range of the one pair
    that ONNX Runtime makes of them (double_qdq_pairs_remover.cc).
    """
    ranges: dict[str, Range] = {}
    types: dict[str, set[int]] = {}
    tables = {node.name for node in model.nodes if node.op == "Gather"}
    written = {node.output[0]: node for node in model.proto.graph.node if node.op_type in PAIR_OPS}
    for edge, pair in model.pairs.items():
        if edge.tensor in model.constants and edge.node not in tables:
            continue
        row = [
            one for node in _row(pair, written) for one in _range(node, written, model.constants)
        ]
        for dtype, _ in row[:1]:
            found = _common([kept for _, kept in row])
            ranges[edge.tensor] = union([ranges.get(edge.tensor, found), found])
            types.setdefault(edge.tensor, set()).add(dtype)
    names = {
        tensor: str(TensorProto.DataType.Name(min(found))).lower()
        for tensor, found in types.items()
        if len(found) == 1
    }
    return OwnPairs(ranges, names, _nodes(model))


def _row(pair: NodeProto, written: Mapping[str, NodeProto]) -> Iterator[NodeProto]:
    """``pair`` and the nodes of pairs right before it, the last first; ``written``: by output."""
    node: NodeProto | None = pair
    while node is not None:
        yield node
        node = written.get(node.input[0])


def _common(ranges: Sequence[Range]) -> Range:
    """What all of ``ranges`` have, or the first of them if that is nothing."""
    low, high = max(r.low for r in ranges), min(r.high for r in ranges)
    return Range(low, high) if low < high else ranges[0]


def _nodes(model: ExtractedModel) -> dict[Edge, tuple[str, ...]]:
    quantizes = {
        node.output[0]: node for node in model.proto.graph.node if node.op_type == "QuantizeLinear"
    }
    nodes = {}
    for edge, pair in model.pairs.items():
        before = quantizes.get(pair.input[0])
        both = (pair,) if before is None else (before, pair)
        nodes[edge] = tuple(name_in_file(node) for node in both)
    return nodes


def _range(
    pair: NodeProto, written: Mapping[str, NodeProto], constants: Mapping[str, TensorProto]
) -> Iterator[tuple[int, Range]]:
    """The type and the range of a pair, of scales by channel that of all; none if not known."""
    known = [constants.get(name) for name in pair.input[1:] if name]
    if any(tensor is None or is_external(tensor) for tensor in known):
        return
    scale, *zero_point = (numpy_helper.to_array(tensor) for tensor in known if tensor is not None)
    dtype = integer_type(pair, written, constants)
    if dtype not in _LEVELS or not scale.size or not np.isfinite(scale).all():
        return
    step, zero = scale.astype(float), zero_point[0].astype(int) if zero_point else 0
    low, high = (step * (level - zero) for level in _LEVELS[dtype])
    if (low <= high).all():
        yield dtype, Range(float(low.min()), float(high.max()))


def signed_apart(
    model: ExtractedModel, pairs: OwnPairs, graph: Graph, unread: Collection[Edge]
) -> tuple[Placement, OwnPairs]:
    """The placement of ``model``, with what no kernel reads in a format of its own.

    Other int8 is converted to uint8, as the types that come back say. ONNX Runtime converts what
    one DequantizeLinear reads, after giving each reader one, and nothing at the graph's edges,
    without a zero point, nor constants: products read int8 weights and int32 biases, but no sum
    takes operands of two types.
    16 and 4 bits are in ``MOVED_FORMATS``. No kernel reads activations with a scale for each
    channel.

    ``graph``: the float graph. A MatMul and a bias become a Gemm between Reshapes; the pair that
    moves past the first of these is its own. ``unread``: further edges that no kernel reads.
    """
    quantizers = _quantizers(model)
    left = _unconverted(model, graph, quantizers)
    further = _of_further_quantizers(model, quantizers)
    added = set(_of_added_types(model, graph))
    moved = {edge: to for edge in left for to in _past_mover(edge, model, graph)}
    groups = {
        ScaleGroup(
            frozenset({to}),
            None if _has_zero_point(model.pairs[edge]) else foreign_format(model.dtypes[edge]),
        )
        for edge, to in moved.items()
    }
    for group in model.placement.groups:
        formats: dict[tuple[Format | None, object], set[Edge]] = {}
        for edge in group.edges - moved.keys():
            dtype = model.dtypes[edge]
            is_apart = edge in model.axes and edge.tensor not in model.constants
            is_apart = is_apart or edge in left or edge in unread or dtype in MOVED_FORMATS
            is_apart = is_apart or edge in added
            chosen = foreign_format(dtype) if is_apart else group.format
            formats.setdefault((chosen, further.get(edge)), set()).add(edge)
        groups.update(ScaleGroup(frozenset(edges), to) for (to, _), edges in formats.items())
    types = dict.fromkeys(pairs.types, "uint8")
    placement = Placement.of_scales(groups).with_weights(model.placement.per_tensor)
    return placement, replace(pairs, types=types)


def _of_added_types(model: ExtractedModel, graph: Graph) -> Iterator[Edge]:
    """Constants that are added, of another type than what placer writes there.

    A Gemm adds an int32 bias to its integer products, and so does one that a MatMul and an Add
    become. An Add by itself adds uint8 (optimized graphs of ONNX Runtime 1.32.0).
    """
    biases = {
        added_bias(graph, node) for node in graph.nodes if _is_bare_product(node, model, graph)
    }
    for edge, dtype in model.dtypes.items():
        node = graph.by_name.get(edge.node)
        if node is None or edge.tensor not in model.constants:
            continue
        is_of_gemm = node.op == "Gemm" and edge.input_index == BIAS_INDEX
        is_of_sum = node.op == "Add" and edge not in biases
        if (is_of_gemm or is_of_sum) if dtype == INT32 else edge in biases:
            yield edge


def _is_bare_product(node: Node, model: ExtractedModel, graph: Graph) -> bool:
    """Whether a Gemm may be made of ``node``, a MatMul without a pair behind, and its bias."""
    if node.op != "MatMul" or not model.pairs.keys().isdisjoint(graph.edges_of(node.outputs[0])):
        return False
    is_matrix = len(graph.type_of(node.inputs[0]).shape or ()) == _MATRIX
    return is_matrix or node.inputs[0] not in graph.open_tensors


def _quantizers(model: ExtractedModel) -> dict[str, Quantizer]:
    """The Q that writes each tensor of integers; equal ones are one.

    So ONNX Runtime has them, which eliminates common subexpressions.
    """
    return {
        node.output[0]: (node.input[0], _numbers(model, node.input[1]), *node.input[2:])
        for node in model.proto.graph.node
        if node.op_type == "QuantizeLinear"
    }


def _unconverted(
    model: ExtractedModel, graph: Graph, quantizers: Mapping[str, Quantizer]
) -> set[Edge]:
    """Edges of int8 that ONNX Runtime does not convert to uint8; see ``signed_apart``."""
    shapes = {node.name for node in model.nodes if node.op in OF_SHAPES}
    outputs = {value.name for value in model.proto.graph.output}
    products = {node.name for node in model.nodes if node.op in WEIGHTED_OPS}
    read = Counter(
        quantizers.get(_integers(pair))
        for edge, pair in model.pairs.items()
        if edge.node not in shapes
    )

    def is_left(edge: Edge, pair: NodeProto) -> bool:
        if edge.tensor in model.constants:
            return edge.node not in products or edge.input_index == BIAS_INDEX
        integers = _integers(pair)
        if not _has_zero_point(pair) or pair.op_type == "QuantizeLinear":
            return True
        if _is_reshaped(edge, graph, model):
            return False
        is_written = integers in quantizers and integers not in outputs
        return not is_written or read[quantizers[integers]] > 1

    return {
        edge
        for edge, pair in model.pairs.items()
        if model.dtypes[edge] == "int8" and is_left(edge, pair)
    }


def _of_further_quantizers(
    model: ExtractedModel, quantizers: Mapping[str, Quantizer]
) -> dict[Edge, Quantizer | None]:
    """Edges whose pair has another Q than that of their tensor's first edge, with that Q."""
    by_edge = {edge: quantizers.get(_integers(pair)) for edge, pair in model.pairs.items()}
    first: dict[str, Quantizer | None] = {}
    for edge in sorted(by_edge):
        first.setdefault(edge.tensor, by_edge[edge])
    return {edge: one for edge, one in by_edge.items() if one != first[edge.tensor]}


def _past_mover(edge: Edge, model: ExtractedModel, graph: Graph) -> Iterator[Edge]:
    """Where the pair at ``edge`` is once its DQ moved past what reads it, if it does.

    Behind that, pairs are new and are converted, and what is between the two computes in float.
    Source: ONNX Runtime's qdq_propagation.cc.
    """
    node = graph.by_name.get(edge.node)
    if node is None or node.op not in _MOVERS or edge.tensor in model.constants:
        return
    reader = graph.sole_consumer(node.outputs[0])
    if reader is not None and reader not in model.pairs:
        yield reader


def _is_reshaped(edge: Edge, graph: Graph, model: ExtractedModel) -> bool:
    """Whether the MatMul that reads ``edge`` becomes a Gemm with its bias, behind a Reshape of it.

    That is so for a first operand of more than two dimensions, where no pair is before the bias.
    Source: ONNX Runtime's matmul_add_fusion.cc.
    """
    product = graph.by_name.get(edge.node)
    if product is None or product.op != "MatMul" or edge.input_index:
        return False
    if product.inputs[0] in graph.open_tensors:
        return False
    reader = graph.sole_consumer(product.outputs[0])
    if reader is None or reader in model.pairs or graph.by_name[reader.node].op != "Add":
        return False
    data, weight = (graph.type_of(tensor).shape or () for tensor in product.inputs)
    others = [t for t in graph.by_name[reader.node].inputs if t in graph.initializers]
    bias = graph.type_of(others[0]).shape if others else None
    return len(data) > _MATRIX == len(weight) and bias == (weight[-1],)


def _numbers(model: ExtractedModel, name: str) -> tuple[object, ...]:
    """What is equal where the scale ``name`` is: its type and values if known.

    Only floats of equal value are made one constant, not zero points (constant_sharing.cc).
    """
    tensor = model.constants.get(name)
    if tensor is None or is_external(tensor):
        return (name,)
    return (tensor.data_type, *numpy_helper.to_array(tensor).ravel().tolist())


def _integers(pair: NodeProto) -> str:
    """The tensor of integers beside a Q or DQ."""
    return str(pair.output[0] if pair.op_type == "QuantizeLinear" else pair.input[0])


def _has_zero_point(pair: NodeProto) -> bool:
    return len(pair.input) > 2 and bool(pair.input[2])
