"""The structure of a graph without its weights: what a placement file keeps of its model.

With it the nodes of a model are found again in another file of the same network that calls them
otherwise (``placer.graph.matching``). Graph inputs and outputs are vertices like nodes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import onnx.defs
from onnx import AttributeProto, helper

from placer.errors import InputError
from placer.graph.index import Graph, Node, TensorType, captured_tensors
from placer.graph.operators import STANDARD_DOMAINS

GRAPH_INPUT = "graph input"
GRAPH_OUTPUT = "graph output"
COMMUTATIVE = frozenset("Add Mul Max Min Mean Sum And Or Xor Equal BitwiseAnd BitwiseOr".split())

# What exporters write for the same layer: an edge of one is an edge of the other.
_KIN = {
    "Gemm": "MatMul",
    "Flatten": "Reshape",
    "Squeeze": "Reshape",
    "Unsqueeze": "Reshape",
    "ReduceMean": "GlobalAveragePool",
    "Sum": "Add",
}
_DIGITS = 10


def kind_of(op: str) -> str:
    """The operator that stands for all that exporters write in the place of ``op``."""
    return _KIN.get(op, op)


class Port(NamedTuple):
    """Output ``output`` of the vertex at ``vertex``."""

    vertex: int
    output: int


class Reader(NamedTuple):
    """The vertex at ``vertex`` reads, at its input ``input``, output ``output`` of another one."""

    output: int
    vertex: int
    input: int


@dataclass(frozen=True)
class Vertex:
    """A node, a graph input or a graph output.

    ``attributes``: digest of the attributes that are not at their defaults. ``types``: digest of
    the shapes of inputs and outputs, and of their types but for the precision of floats.
    ``inputs`` end with what subgraphs of the node read.
    """

    name: str
    op: str
    attributes: str
    types: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The operator, or the one that stands for all that exporters write in its place."""
        return kind_of(self.op)


@dataclass(frozen=True, eq=False)
class Structure:
    """Vertices in topological order: graph inputs, nodes, graph outputs."""

    vertices: tuple[Vertex, ...]

    @cached_property
    def ports(self) -> Mapping[str, Port]:
        """What writes a tensor; constants are not among them."""
        return {
            tensor: Port(i, k)
            for i, vertex in enumerate(self.vertices)
            for k, tensor in enumerate(vertex.outputs)
            if tensor
        }

    @cached_property
    def sources(self) -> tuple[tuple[Port | None, ...], ...]:
        """By vertex, what writes each input; None for a constant or an omitted input."""
        return tuple(tuple(self.ports.get(t) for t in v.inputs) for v in self.vertices)

    @cached_property
    def readers(self) -> tuple[tuple[Reader, ...], ...]:
        """By vertex, what reads its outputs."""
        reading: list[list[Reader]] = [[] for _ in self.vertices]
        for i, sources in enumerate(self.sources):
            for index, port in enumerate(sources):
                if port is not None:
                    reading[port.vertex].append(Reader(port.output, i, index))
        return tuple(map(tuple, reading))

    @cached_property
    def nodes(self) -> Mapping[str, int]:
        """Positions of nodes by name."""
        outer = (GRAPH_INPUT, GRAPH_OUTPUT)
        return {v.name: i for i, v in enumerate(self.vertices) if v.op not in outer}

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Positions of the graph outputs, in their order."""
        return tuple(i for i, v in enumerate(self.vertices) if v.op == GRAPH_OUTPUT)

    @cached_property
    def digest(self) -> str:
        """The same for files of the network that list its nodes in one order, whatever their names.

        Floats of all precisions count as one type. Parallel branches in another order differ.
        """
        both = zip(self.vertices, self.sources, strict=True)
        return _digest([(v.op, v.attributes, v.types, sources) for v, sources in both])

    def is_constant(self, vertex: int, index: int) -> bool:
        """Whether input ``index`` of the vertex is a constant."""
        return self.sources[vertex][index] is None and self.vertices[vertex].inputs[index] != ""

    def text(self) -> str:
        """One line of JSON per vertex."""
        return "".join(
            json.dumps([v.name, v.op, v.attributes, v.types, v.inputs, v.outputs]) + "\n"
            for v in self.vertices
        )


def parse_structure(text: str, where: str) -> Structure:
    """Read what ``Structure.text`` wrote; ``where`` names the file and field.

    Raises InputError for anything else.
    """
    return Structure(tuple(_vertices(text, where)))


def _vertices(text: str, where: str) -> Iterator[Vertex]:
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            name, op, attributes, types, inputs, outputs = json.loads(line)
            strings = [name, op, attributes, types, *inputs, *outputs]
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{where}, line {number} is not a vertex; let placer write the file"
            ) from error
        if not all(isinstance(string, str) for string in strings):
            raise InputError(f"{where}, line {number} is not a vertex; let placer write the file")
        yield Vertex(name, op, attributes, types, tuple(inputs), tuple(outputs))


def structure_of(graph: Graph) -> Structure:
    """The structure of ``graph``; values of initializers are no part of it."""
    inputs = [
        Vertex(name, GRAPH_INPUT, "", _types(graph, (), (name,)), (), (name,))
        for name in graph.inputs
    ]
    nodes = [_vertex(node, graph) for node in graph.nodes]
    outputs = [
        Vertex(name, GRAPH_OUTPUT, "", _types(graph, (name,), ()), (name,), ())
        for name in graph.outputs
    ]
    return Structure((*inputs, *nodes, *outputs))


def _vertex(node: Node, graph: Graph) -> Vertex:
    inputs = (*node.inputs, *captured_tensors(node.proto))
    operator = f"{node.domain}.{node.op}" if node.domain not in STANDARD_DOMAINS else node.op
    types = _types(graph, inputs, node.outputs)
    return Vertex(node.name, operator, _attributes(node, graph), types, inputs, node.outputs)


def _types(graph: Graph, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> str:
    return _digest([[_type(graph.type_of(t)) for t in tensors] for tensors in (inputs, outputs)])


def _type(tensor_type: TensorType) -> object:
    return ["float" if tensor_type.is_float else tensor_type.dtype, tensor_type.shape]


def _attributes(node: Node, graph: Graph) -> str:
    shown = {a.name: _value(a) for a in node.proto.attribute}
    defaults = _defaults(node.op, node.domain)
    # The shape of a constant weight says it; some exporters leave it out.
    if len(node.inputs) > 1 and node.inputs[1] in graph.initializers and "Conv" in node.op:
        shown.pop("kernel_shape", None)
    kept = {k: v for k, v in shown.items() if v != defaults.get(k) and not _is_neutral(k, v)}
    return _digest(sorted(kept.items()))


def _is_neutral(name: str, value: object) -> bool:
    """Whether a list is at the default that ONNX gives in words: its length is the rank's."""
    if not isinstance(value, list):
        return False
    neutral = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}.get(name)
    return neutral is not None and all(number == neutral for number in value)


@lru_cache(maxsize=1024)
def _defaults(op: str, domain: str) -> Mapping[str, object]:
    try:
        schema = onnx.defs.get_schema(op, "" if domain == "ai.onnx" else domain)
    except onnx.defs.SchemaError:
        return {}
    return {
        name: _value(attribute.default_value)
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }


def _value(attribute: AttributeProto) -> object:
    """What of an attribute is structure: of tensors their shapes, of graphs their operators."""
    if attribute.type == AttributeProto.TENSOR:
        return list(attribute.t.dims)
    if attribute.type == AttributeProto.GRAPH:
        return [node.op_type for node in attribute.g.node]
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, (int, float)) else [_text(v) for v in value]


def _text(value: object) -> object:
    if isinstance(value, (int, float)):
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else type(value).__name__


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:_DIGITS]
