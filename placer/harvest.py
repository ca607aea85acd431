"""Read the placement back from a Q/DQ model: the float graph behind it and the paired edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from placer.external import is_external
from placer.graph import Edge, Graph, Node, index_nodes, tensor_type
from placer.normalize import infer_values
from placer.placement import Placement

_PAIR = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, eq=False)
class Harvest:
    """What a Q/DQ model says once its pairs are taken as marks on edges.

    ``nodes``: the other nodes, reading what they would read without pairs. ``outputs``: the same
    of the graph outputs. ``placement``: edges whose pairs have the same scale form one group.
    """

    proto: ModelProto
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, TensorProto]
    placement: Placement

    @cached_property
    def structure(self) -> int:
        """Equal for models that differ in their pairs and constants only."""
        nodes = tuple((n.name, n.op, n.inputs, n.outputs) for n in self.nodes)
        return hash((nodes, self.outputs))

    def graph(self, shapes: Mapping[str, tuple[int, ...]], path: Path) -> Graph:
        """The float graph with types inferred for input ``shapes``; ``path`` is for messages."""
        values = infer_values(self.proto, shapes, path)
        types = {name: tensor_type(value) for name, value in values.items()}
        # A quantized constant has the type of what its DequantizeLinear gives.
        for dequantize in (n for n in self.proto.graph.node if n.op_type == _PAIR[1]):
            if dequantize.input[0] in self.constants and dequantize.output[0] in types:
                types[dequantize.input[0]] = types[dequantize.output[0]]
        inputs = tuple(v.name for v in self.proto.graph.input if v.name not in self.constants)
        return index_nodes(self.nodes, self.constants, inputs, self.outputs, types)


def harvest(proto: ModelProto) -> Harvest:
    """Take the Q/DQ pairs of ``proto`` as a placement; nodes without a name get one."""
    constants = {t.name: t for t in proto.graph.initializer}
    pairs = {n.output[0]: n for n in proto.graph.node if n.op_type in _PAIR}
    source = {tensor: _source(tensor, pairs) for tensor in pairs}
    nodes = []
    marks: dict[str, set[Edge]] = {}
    taken = {node.name for node in proto.graph.node}
    for index, node in enumerate(n for n in proto.graph.node if n.op_type not in _PAIR):
        name = node.name or _free_name(node, index, taken)
        inputs = tuple(source.get(tensor, tensor) for tensor in node.input)
        nodes.append(Node(name, node.op_type, node.domain, inputs, tuple(node.output), index, node))
        for i, tensor in enumerate(node.input):
            if tensor in pairs:
                _mark(marks, Edge(inputs[i], name, i), pairs[tensor], constants)
    outputs = tuple(source.get(o.name, o.name) for o in proto.graph.output)
    for i, output in enumerate(proto.graph.output):
        if output.name in pairs:
            _mark(marks, Edge(outputs[i], "", i), pairs[output.name], constants)
    placement = Placement(frozenset(frozenset(edges) for edges in marks.values()))
    return Harvest(proto, tuple(nodes), outputs, constants, placement)


def _source(tensor: str, pairs: Mapping[str, NodeProto]) -> str:
    """The tensor behind all pairs before ``tensor``."""
    while tensor in pairs:
        tensor = pairs[tensor].input[0]
    return tensor


def _free_name(node: NodeProto, index: int, taken: set[str]) -> str:
    name = f"{node.op_type}_{index}"
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _mark(
    marks: dict[str, set[Edge]], edge: Edge, pair: NodeProto, constants: Mapping[str, TensorProto]
) -> None:
    marks.setdefault(_scale_key(edge, pair, constants), set()).add(edge)


def _scale_key(edge: Edge, pair: NodeProto, constants: Mapping[str, TensorProto]) -> str:
    """Equal where scales are: by value of a scalar constant, else by name.

    Scales of constants are settled at build time and equal none.
    """
    if edge.tensor in constants:
        return f"constant {edge.tensor} {edge.node} {edge.input_index}"
    scale = constants.get(pair.input[1])
    if scale is None or is_external(scale):
        return f"tensor {pair.input[1]}"
    return f"value {numpy_helper.to_array(scale).tolist()}"
