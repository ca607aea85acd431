"""The float graph while it is written: nodes, constants, names, and the edges that had pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from placer.graph import Edge
from placer.graph.edit import reads, rename_tensors, standard_opset
from placer.graph.external_data import read_tensor
from placer.model.quantized.arithmetic import Part
from placer.model.quantized.names import Names
from placer.model.quantized.quantized_tensors import Quantized
from placer.quantization import FLOAT8, Format, Placement
from placer.quantization.placement import ScaleGroup

_NEVER_NEGATIVE = frozenset("Relu Sigmoid HardSigmoid Softmax Softplus Abs Exp Sqrt".split())
_KEEPS_SIGN = frozenset(
    "Reshape Flatten Squeeze Unsqueeze Transpose Identity Slice Split Gather GatherElements "
    "GatherND Expand Tile Concat MaxPool Pad Resize DepthToSpace SpaceToDepth Cast Dropout "
    "AveragePool GlobalAveragePool GlobalMaxPool Add Mul Max ReduceMean ReduceMax ReduceSum "
    "Clip Min".split()
)
_FROM_MINUS_ONE = frozenset({"Erf", "Tanh", "Sin", "Cos", "Softsign"})  # To 1.


class FloatGraphBuilder:
    """What is written so far. ``never_negative``: tensors that cannot be, or inputs."""

    def __init__(self, proto: ModelProto, base_dir: Path) -> None:
        graph = proto.graph
        self._base_dir = base_dir
        self.opset = standard_opset(proto)
        self.constants = {t.name: t for t in graph.initializer}
        self.inputs = [value.name for value in graph.input]
        self.outputs = [value.name for value in graph.output]
        written = {t for node in graph.node for t in node.output}
        self.names = Names({*written, *self.constants, *self.inputs, *self.outputs})
        self.node_names = Names({node.name for node in graph.node})
        self.nodes: list[NodeProto] = []
        self.writer: dict[str, NodeProto] = {}
        self.never_negative = set(self.inputs)
        self._edges: dict[tuple[str, bool], set[Edge]] = defaultdict(set)  # Whether it is FP8.

    @property
    def placement(self) -> Placement:
        """The edges that had pairs, grouped by equal scales; FP8 beside integers is told."""
        chosen: Format | None = None if all(fp8 for _, fp8 in self._edges) else FLOAT8
        return Placement(
            frozenset(
                ScaleGroup(frozenset(edges), chosen if fp8 else None)
                for (_, fp8), edges in self._edges.items()
            )
        )

    def move_to(self, graph: GraphProto) -> None:
        """Make all nodes, and the initializers that are read, those of ``graph``; none stay."""
        read = {t for node in self.nodes for t in reads(node)} | set(self.outputs)
        graph.node.extend(self.nodes)
        constants, self.nodes, self.constants = self.constants, [], {}
        for name in [*constants]:
            tensor = constants.pop(name)  # A graph copies what it is given.
            if name in read:
                graph.initializer.append(tensor)

    def array(self, constant: str) -> np.ndarray:
        """Values of an initializer."""
        return read_tensor(self.constants[constant], self._base_dir)

    def array_or_zero(self, constant: str) -> np.ndarray:
        """Values of an initializer, 0 where there is none."""
        return self.array(constant) if constant in self.constants else np.zeros((), np.int64)

    def add_constant(self, base: str, values: np.ndarray) -> str:
        """Add an initializer; returns its name."""
        return self.set_constant(self.names.unused(base), values)

    def set_constant(self, name: str, values: np.ndarray) -> str:
        """Add an initializer of a name that is free; returns it."""
        self.constants[name] = numpy_helper.from_array(values, name)
        return name

    def mark(self, info: Quantized, node: str, index: int) -> None:
        """Remember that the edge had a pair."""
        is_float8 = info.dtype == TensorProto.FLOAT8E4M3FN
        self._edges[info.key, is_float8].add(Edge(info.tensor, node, index))

    def emit(self, op: str, name: str, inputs: list[str], output: str) -> None:
        """Append a node without attributes; its name becomes unique."""
        self.append(helper.make_node(op, inputs, [output], self.node_names.unused(name)))

    def extend(self, part: Part) -> None:
        """Append nodes with their constants."""
        nodes, constants = part
        self.constants.update({tensor.name: tensor for tensor in constants})
        for node in nodes:
            self.append(node)

    def append(self, node: NodeProto) -> None:
        """Append a node."""
        self.nodes.append(node)
        self.writer.update(dict.fromkeys(node.output, node))
        if node.op_type in _NEVER_NEGATIVE or self._keeps_sign(node):
            self.never_negative.update(t for t in node.output if t)

    def _keeps_sign(self, node: NodeProto) -> bool:
        if node.op_type not in _KEEPS_SIGN:
            return False
        if node.op_type == "Clip" and len(node.input) > 1 and node.input[1] in self.constants:
            return bool(self.array(node.input[1]).item() >= 0)
        if node.op_type == "Add" and self._adds_one(node):
            return True
        combines = node.op_type in ("Add", "Mul", "Concat", "Max", "Min")
        data = [t for t in node.input if t] if combines else list(node.input[:1])
        return all(self._is_never_negative(tensor) for tensor in data)

    def _adds_one(self, node: NodeProto) -> bool:
        """Whether a constant of at least 1 is added to what is at least -1, as a Gelu does."""
        constants = [tensor for tensor in node.input if tensor in self.constants]
        others = [self.writer[tensor] for tensor in node.input if tensor in self.writer]
        if len(constants) != 1 or len(others) != 1 or others[0].op_type not in _FROM_MINUS_ONE:
            return False
        return bool((self.array(constants[0]) >= 1).all())

    def _is_never_negative(self, tensor: str) -> bool:
        if tensor in self.constants:
            is_text = self.constants[tensor].data_type == TensorProto.STRING
            return not is_text and bool((self.array(tensor) >= 0).all())
        return tensor in self.never_negative

    def rename(self, new_name: Mapping[str, str]) -> None:
        """Rename tensors everywhere."""
        for node in self.nodes:
            rename_tensors(node, lambda tensor: new_name.get(tensor, tensor))
        for edges in self._edges.values():
            moved = {edge._replace(tensor=new_name.get(edge.tensor, edge.tensor)) for edge in edges}
            edges.clear()
            edges.update(moved)

    def rename_output(self, tensor: str, new: str) -> None:
        """Let the node that writes ``tensor`` write ``new`` instead."""
        node = self.writer.pop(tensor)
        outputs = [new if t == tensor else t for t in node.output]
        node.output[:] = outputs
        self.writer[new] = node
