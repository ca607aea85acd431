"""Read the placement back from a Q/DQ model: the float graph behind it and the paired edges."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from placer.graph import (
    UNKNOWN_TYPE,
    Edge,
    Graph,
    Node,
    TensorType,
    index_nodes,
    tensor_type,
)
from placer.graph.edit import reads
from placer.graph.external_data import is_external
from placer.graph.operators import PAIR_OPS
from placer.graph.qoperator import has_integers, with_integers
from placer.model.check_operators import is_plugin
from placer.model.custom_types import infer_all_values
from placer.model.normalize import infer_values
from placer.model.open_tensors import open_tensors
from placer.model.quantized.movers import MOVERS
from placer.qdq.casts import around_pairs
from placer.quantization import FLOAT8, Format, Placement, Scheme
from placer.quantization.placement import ScaleGroup

# A key that is equal where scales are, and the format where it is another than the scheme's own.
_Mark = tuple[str, Format | None]
_FLOAT8 = "float8e4m3fn"
_HAND_ON = frozenset({"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"})
_QUANTIZED = re.compile(r"/quantized(_\d+)?$")  # As placer.qdq.insert names quantized constants.


@dataclass(frozen=True, eq=False)
class ExtractedModel:
    """What a Q/DQ model says once its pairs are taken as marks on edges.

    ``nodes``: the other nodes, reading what they would read without pairs. ``outputs``: the same
    of the graph outputs. ``constants``: initializers by their name here and in the float model;
    ``dequantized``: that name by what their DequantizeLinear writes. ``placement``: edges whose
    pairs have the same scale and zero point form one group. ``axes``: where a pair has several
    scales, the axis along which they lie. ``pairs``: what dequantizes at each edge of a pair, or
    quantizes where integers leave the graph. ``dtypes``: the integers' type, ONNX's name in lower
    case.
    """

    proto: ModelProto
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, TensorProto]
    dequantized: Mapping[str, str]
    placement: Placement
    axes: Mapping[Edge, int]
    pairs: Mapping[Edge, NodeProto]
    dtypes: Mapping[Edge, str]

    @cached_property
    def structure(self) -> int:
        """Equal for models that differ in their pairs and constants only."""
        nodes = tuple((n.name, n.op, n.domain, n.inputs, n.outputs) for n in self.nodes)
        attributes = tuple(a.SerializeToString() for n in self.nodes for a in n.proto.attribute)
        inputs = tuple(v.SerializeToString() for v in self.proto.graph.input)
        return hash((nodes, attributes, inputs, self.outputs))

    def graph(self, shapes: Mapping[str, tuple[int, ...]], path: Path) -> Graph:
        """The float graph with types inferred for input ``shapes``; ``path`` is for messages."""
        values = infer_all_values(self.proto, path.parent, shapes, path)
        types = {name: tensor_type(value) for name, value in values.items()}
        # A quantized constant has the type of what its DequantizeLinear gives.
        for dequantized, constant in self.dequantized.items():
            types[constant] = types.get(dequantized, UNKNOWN_TYPE)
        for integers, dequantized in self._written_as_integers():
            types[integers] = types.get(dequantized, UNKNOWN_TYPE)
        types.update(self._written_by_plugins(types))
        types.update(self._moved_as_integers(types))
        inputs = tuple(v.name for v in self.proto.graph.input if v.name not in self.constants)
        left_open = open_tensors(self.proto, types, partial(infer_values, self.proto, {}, path))
        return index_nodes(
            self.nodes, self.constants, inputs, self.outputs, types, open_tensors=left_open
        )

    def _moved_as_integers(self, types: Mapping[str, TensorType]) -> dict[str, TensorType]:
        """Float types of what nodes between Qs and DQs hand on, as a Transpose of tf2onnx's."""
        nodes = self.proto.graph.node
        floats: dict[str, int | None] = {}  # By tensors of integers that come from a Q.
        for node in nodes:
            if node.op_type == PAIR_OPS[0]:
                dtype = types.get(node.input[0], UNKNOWN_TYPE).dtype
                floats[node.output[0]] = dtype
            elif node.op_type in MOVERS and node.input[0] in floats:
                floats.update(dict.fromkeys(node.output, floats[node.input[0]]))
        kept = {value.name for value in self.proto.graph.output}  # What others read as integers.
        for node in reversed(nodes):
            hands_on = node.op_type in MOVERS and kept.isdisjoint(node.output)
            if node.op_type != PAIR_OPS[1] and not hands_on:
                kept.update(reads(node))
        moved = (tensor for node in nodes if node.op_type in MOVERS for tensor in node.output)
        return {
            tensor: types.get(tensor, UNKNOWN_TYPE)._replace(dtype=floats[tensor])
            for tensor in moved
            if tensor in floats and tensor not in kept
        }

    def _written_by_plugins(self, types: Mapping[str, TensorType]) -> dict[str, TensorType]:
        """Types of what Qs read, there or behind nodes that hand it on, where none is known."""
        found: dict[str, TensorType] = {}
        for node in reversed(self.proto.graph.node):
            if node.op_type == PAIR_OPS[0]:
                scale = self.constants.get(node.input[1])
                dtype = None if scale is None else scale.data_type
            elif node.op_type in _HAND_ON:
                dtype = found.get(node.output[0], UNKNOWN_TYPE).dtype
            else:
                continue
            source = types.get(node.input[0], UNKNOWN_TYPE)
            if dtype is not None and source.dtype is None:
                found[node.input[0]] = source._replace(dtype=dtype)
        return found

    def _written_as_integers(self) -> Iterator[tuple[str, str]]:
        """What plugins write and a DequantizeLinear reads, and what that writes."""
        plugins = {tensor for n in self.nodes if has_integers(n.proto) for tensor in n.outputs}
        for node in self.proto.graph.node:
            if node.op_type == PAIR_OPS[1] and node.input[0] in plugins:
                yield node.input[0], node.output[0]


def extract_placement(proto: ModelProto, scheme: Scheme | None = None) -> ExtractedModel:
    """Take the Q/DQ pairs of ``proto`` as a placement; nodes without a name get one.

    ``scheme``: by it, pairs in another format than its own are told; without it, none are.
    """
    constants = {t.name: t for t in proto.graph.initializer}
    pairs = {n.output[0]: n for n in proto.graph.node if n.op_type in PAIR_OPS}
    names = _float_names(proto, pairs, constants)
    casts = around_pairs(proto, pairs)
    constants |= {new: constants[old] for old, new in names.items() if old in constants}
    marks = _Marks(constants, {**pairs, **casts}, casts, names, scheme)
    nodes = tuple(_float_nodes(proto, marks))
    outputs = tuple(marks.source(o.name) for o in proto.graph.output)
    for i, output in enumerate(proto.graph.output):
        marks.add(Edge(outputs[i], "", i), output.name)
    return ExtractedModel(
        proto,
        nodes,
        outputs,
        constants,
        marks.dequantized(),
        marks.placement(),
        marks.axes,
        marks.at,
        marks.dtypes,
    )


def _float_nodes(proto: ModelProto, marks: _Marks) -> Iterator[Node]:
    """The nodes of no pair, reading what they would read without pairs; pairs are marked."""
    taken = {node.name for node in proto.graph.node}
    seen: set[str] = set()
    others = (n for n in proto.graph.node if not n.output or n.output[0] not in marks.pairs)
    for index, node in enumerate(others):
        is_free = node.name and node.name not in seen
        name = node.name if is_free else _free_name(node, index, taken)
        seen.add(name)
        inputs = tuple(map(marks.source, node.input))
        outputs = tuple(map(marks.source, node.output))
        for i, tensor in enumerate(node.input):
            marks.add(Edge(inputs[i], name, i), tensor)
        found = with_integers(node) if _reads_integers(node, marks) else node
        yield Node(name, node.op_type, node.domain, inputs, outputs, index, found)


def _reads_integers(node: NodeProto, marks: _Marks) -> bool:
    """Whether a Q stands right before ``node``, which only a plugin may compute."""
    pairs = [marks.pairs[tensor] for tensor in node.input if tensor in marks.pairs]
    return any(pair.op_type == PAIR_OPS[0] for pair in pairs) and is_plugin(node)


@dataclass(frozen=True, eq=False)
class _Marks:
    """The pairs of a model as marks on edges.

    ``pairs``: nodes of pairs and the ``casts`` around them, by what they write. ``names``: of
    quantized constants in the float model. ``at``, ``axes``, ``dtypes``: see ``ExtractedModel``.
    """

    constants: Mapping[str, TensorProto]
    pairs: Mapping[str, NodeProto]
    casts: Mapping[str, NodeProto]
    names: Mapping[str, str]
    scheme: Scheme | None
    axes: dict[Edge, int] = field(default_factory=dict)
    at: dict[Edge, NodeProto] = field(default_factory=dict)
    dtypes: dict[Edge, str] = field(default_factory=dict)
    _edges: dict[_Mark, set[Edge]] = field(default_factory=dict)

    def source(self, tensor: str) -> str:
        """The tensor behind all pairs before ``tensor``, as the float model calls it."""
        behind = _source(tensor, self.pairs)
        return self.names.get(behind, behind)

    def add(self, edge: Edge, tensor: str) -> None:
        """Mark ``edge``, which reads ``tensor``, if a pair writes that."""
        if tensor not in self.pairs:
            return
        while tensor in self.casts:
            tensor = self.casts[tensor].input[0]
        pair = self.at[edge] = self.pairs[tensor]
        made = integer_type(pair, self.pairs, self.constants)
        dtype = self.dtypes[edge] = str(TensorProto.DataType.Name(made)).lower()
        is_of_scheme = self.scheme is None or self.scheme.is_float8 or dtype != _FLOAT8
        chosen: Format | None = None if is_of_scheme else FLOAT8
        mark = _scale_key(edge, pair, self.constants), chosen
        self._edges.setdefault(mark, set()).add(edge)
        scale = self.constants.get(pair.input[1])
        if scale is not None and math.prod(scale.dims) > 1:
            self.axes[edge] = next((a.i for a in pair.attribute if a.name == "axis"), 1)

    def placement(self) -> Placement:
        """The marked edges, those of one scale in one group."""
        return Placement.of_scales(
            ScaleGroup(frozenset(edges), chosen) for (_, chosen), edges in self._edges.items()
        )

    def dequantized(self) -> dict[str, str]:
        """Constants by what their DequantizeLinear, or the Cast behind it, writes."""
        writers = (t for t, p in self.pairs.items() if p.op_type in (PAIR_OPS[1], "Cast"))
        return {t: self.source(t) for t in writers if self.source(t) in self.constants}


def _source(tensor: str, pairs: Mapping[str, NodeProto]) -> str:
    """The tensor behind all pairs before ``tensor``."""
    while tensor in pairs:
        tensor = pairs[tensor].input[0]
    return tensor


def _float_names(
    proto: ModelProto, pairs: Mapping[str, NodeProto], constants: Mapping[str, TensorProto]
) -> dict[str, str]:
    """Names in the float model of tensors that have another one here.

    What a pair before a graph output reads is that output; a constant that placer quantized,
    ``w/quantized``, is ``w``.
    """
    graph = proto.graph
    written = {tensor for node in graph.node for tensor in node.output}
    fixed = {value.name for value in (*graph.input, *graph.output)}
    names: dict[str, str] = {}
    for output in graph.output:
        behind = _source(output.name, pairs)
        if behind in written and behind not in fixed:
            names.setdefault(behind, output.name)
    for behind in {_source(tensor, pairs) for tensor in pairs} & constants.keys():
        name = _QUANTIZED.sub("", behind)
        same = constants.get(name, constants[behind])
        if name not in written | fixed and same.dims == constants[behind].dims:
            names[behind] = name
    return names


def _free_name(node: NodeProto, index: int, taken: set[str]) -> str:
    name = f"{node.op_type}_{index}"
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def integer_type(
    pair: NodeProto, pairs: Mapping[str, NodeProto], constants: Mapping[str, TensorProto]
) -> int:
    """The type of the integers of ``pair``, a Q, a DQ or a Cast behind one.

    By its zero point, what it dequantizes if that is a constant, or its Q's ``output_dtype``; else
    uint8, as ONNX defines. ``pairs``: nodes of pairs by what they write.
    """
    is_quantize = pair.op_type == PAIR_OPS[0]
    sources = pair.input[2:] if is_quantize else (*pair.input[2:], pair.input[0])
    known = [constants[name] for name in sources if name in constants]
    quantize = pair if is_quantize else pairs.get(pair.input[0])
    given = () if quantize is None else quantize.attribute
    types = [known[0].data_type] if known else [a.i for a in given if a.name == "output_dtype"]
    return next(iter(types), 0) or int(TensorProto.UINT8)


def _scale_key(edge: Edge, pair: NodeProto, constants: Mapping[str, TensorProto]) -> str:
    """Equal where scales are: by value of constants, else by name.

    Scales of constants are settled at build time and equal none.
    """
    if edge.tensor in constants:
        return f"constant {edge.tensor}"
    initializers = [constants.get(name) for name in pair.input[1:] if name]
    known = [t for t in initializers if t is not None and not is_external(t)]
    if not initializers or len(known) < len(initializers):
        return f"tensors {pair.input[1:]}"
    scale, *zero_point = (numpy_helper.to_array(t).ravel().tolist() for t in known)
    # No zero point means zero.
    return f"value {scale} {[int(z) for z in zero_point[0] if z] if zero_point else []}"
