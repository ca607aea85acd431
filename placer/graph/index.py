"""A read-only index over an ONNX graph: nodes, tensors, producers, consumers, types."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import onnx
from onnx import GraphProto, NodeProto, TensorProto, helper

from placer.graph.node_names import unique_names
from placer.graph.operators import STANDARD_DOMAINS
from placer.graph.scopes import Scopes

AttributeValue = Any  # int, float, str, list of those, TensorProto or GraphProto


class Edge(NamedTuple):
    """One input of one node: the place where a Q/DQ pair can sit.

    ``node`` is the consumer's name. A graph output is an edge too: its ``node`` is the empty
    string and its ``input_index`` the output's position.
    """

    tensor: str
    node: str
    input_index: int

    @property
    def is_graph_output(self) -> bool:
        """Whether the tensor leaves the graph here."""
        return self.node == ""

    def __str__(self) -> str:
        """Return ``tensor -> node[index]``."""
        return f"{self.tensor} -> {self.node or 'graph output'}[{self.input_index}]"


# Dimensions as a model file has them: sizes, names, or None where it says nothing; empty where not
# even the rank is known.
Dimensions = tuple[int | str | None, ...]


class TensorType(NamedTuple):
    """Element type (``onnx.TensorProto`` value) and shape; ``None`` where unknown."""

    dtype: int | None
    shape: tuple[int, ...] | None

    @property
    def is_float(self) -> bool:
        """Whether the tensor holds float32, float16, bfloat16 or float64 values."""
        return self.dtype in _FLOATS

    @property
    def is_quantizable(self) -> bool:
        """Whether QuantizeLinear takes the tensor: float32, float16 and bfloat16 values.

        Source: operator QuantizeLinear of ONNX opset 19, type constraint T1.
        """
        return self.dtype in _QUANTIZABLE


_QUANTIZABLE = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})
_FLOATS = _QUANTIZABLE | {TensorProto.DOUBLE}
UNKNOWN_TYPE = TensorType(None, None)
# Types of attributes; looking whether there is a tensor or a graph in each of them takes longer.
NUMBERS = frozenset(
    {
        onnx.AttributeProto.FLOAT,
        onnx.AttributeProto.INT,
        onnx.AttributeProto.STRING,
        onnx.AttributeProto.FLOATS,
        onnx.AttributeProto.INTS,
        onnx.AttributeProto.STRINGS,
    }
)
WITHOUT_GRAPHS = NUMBERS | {onnx.AttributeProto.TENSOR, onnx.AttributeProto.TENSORS}


@dataclass(frozen=True, eq=False)
class Node:
    """A node of the graph with its attributes decoded on first use."""

    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    index: int
    proto: NodeProto = field(repr=False)

    @cached_property
    def qualified_op(self) -> str:
        """The operator as rules name it: ``Conv`` of ONNX's own, ``my.ops::Swish`` of others."""
        return self.op if self.domain in STANDARD_DOMAINS else f"{self.domain}::{self.op}"

    @cached_property
    def attributes(self) -> Mapping[str, AttributeValue]:
        """Attribute values by name; strings are decoded."""
        return {a.name: _attribute(a) for a in self.proto.attribute}


def _attribute(proto: onnx.AttributeProto) -> AttributeValue:
    value = helper.get_attribute_value(proto)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """Index of a graph whose nodes are named uniquely and topologically sorted.

    ``types`` covers graph inputs, initializers and node outputs as far as they are known.
    Subgraphs (If, Loop, Scan) are opaque: what they read from outside counts as a consumer edge
    of the node that holds them, with an index beyond that node's own inputs. ``consumers`` has the
    edges by tensor, ``reads`` by node. ``scopes``: of the nodes that stand in the bodies
    of others where the graph is a flat one (``placer.graph.flat``): what a body returns is read by
    the node that has it, and what it is given no node writes. ``open_tensors``: those of which the
    file leaves dimensions open, whatever shapes were given for the inputs, with their dimensions.
    ``normalized``: what weighted nodes write into which a BatchNormalization was folded that is a
    node of the file.
    """

    nodes: tuple[Node, ...]
    by_name: Mapping[str, Node]
    producer: Mapping[str, Node]
    consumers: Mapping[str, tuple[Edge, ...]]
    reads: Mapping[str, tuple[Edge, ...]]
    initializers: Mapping[str, TensorProto]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: Mapping[str, TensorType]
    scopes: Scopes = field(default_factory=dict)
    open_tensors: Mapping[str, Dimensions] = field(default_factory=dict)
    normalized: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        """Without weights, which would fill the screens of a notebook."""
        return f"Graph({len(self.nodes)} nodes, inputs={self.inputs}, outputs={self.outputs})"

    @cached_property
    def by_op(self) -> Mapping[str, tuple[Node, ...]]:
        """Nodes by ``Node.qualified_op``, in node order."""
        nodes_of: dict[str, list[Node]] = {}
        for node in self.nodes:
            nodes_of.setdefault(node.qualified_op, []).append(node)
        return {op: tuple(nodes) for op, nodes in nodes_of.items()}

    @cached_property
    def kept(self) -> dict[object, Any]:
        """What ``placer.graph.kept`` keeps."""
        return {}

    @cached_property
    def quantizable(self) -> frozenset[str]:
        """The tensors that QuantizeLinear takes."""
        return frozenset([name for name, known in self.types.items() if known.is_quantizable])

    def type_of(self, tensor: str) -> TensorType:
        """Type of ``tensor``, ``UNKNOWN_TYPE`` where inference found none."""
        return self.types.get(tensor, UNKNOWN_TYPE)

    def dimensions_of(self, tensor: str) -> Dimensions:
        """Those of ``tensor`` that the file itself tells, whatever shapes were given for inputs."""
        if tensor in self.open_tensors:
            return self.open_tensors[tensor]
        return self.type_of(tensor).shape or ()

    def edges_of(self, tensor: str) -> tuple[Edge, ...]:
        """All consumer edges of ``tensor`` in node order, graph outputs last."""
        return self.consumers.get(tensor, ())

    def sole_consumer(self, tensor: str) -> Edge | None:
        """The edge of ``tensor`` if one node reads it, and once, and it is no graph output."""
        edges = self.edges_of(tensor)
        return edges[0] if len(edges) == 1 and not edges[0].is_graph_output else None

    def sole_reader(self, tensor: str) -> Node | None:
        """The node of that edge."""
        edge = self.sole_consumer(tensor)
        return None if edge is None else self.by_name[edge.node]

    def edges_into(self, node: Node) -> tuple[Edge, ...]:
        """All edges of ``node`` in order of its inputs, omitted ones left out."""
        return self.reads[node.name]

    def edge_at(self, node: Node, index: int) -> Edge:
        """The edge of ``node`` at an input that is not omitted."""
        edges = self.reads[node.name]
        if index < len(edges) and edges[index].input_index == index:
            return edges[index]
        return next(edge for edge in edges if edge.input_index == index)


def index_graph(
    graph: GraphProto,
    types: Mapping[str, TensorType],
    scopes: Scopes | None = None,
    open_tensors: Mapping[str, Dimensions] | None = None,
) -> Graph:
    """Build the index of ``graph``; ``types`` overrides and completes what the graph declares.

    Nodes without a name, or with that of an earlier one, have ``unique_names``.
    ``scopes``: of a flat graph. ``open_tensors``: see ``Graph``.
    """
    initializers = {t.name: t for t in graph.initializer}
    names = unique_names(graph.node)
    nodes = tuple(
        _node(proto, i, name) for i, (proto, name) in enumerate(zip(graph.node, names, strict=True))
    )
    inputs = tuple(i.name for i in graph.input if i.name not in initializers)
    outputs = tuple(o.name for o in graph.output)
    return index_nodes(nodes, initializers, inputs, outputs, types, scopes, open_tensors)


def index_nodes(
    nodes: Sequence[Node],
    initializers: Mapping[str, TensorProto],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    types: Mapping[str, TensorType],
    scopes: Scopes | None = None,
    open_tensors: Mapping[str, Dimensions] | None = None,
) -> Graph:
    """Build the index of ``nodes``, topologically sorted and named uniquely."""
    declared = {t.name: TensorType(t.data_type, tuple(t.dims)) for t in initializers.values()}
    reads = [_reads(node) for node in nodes]
    return Graph(
        nodes=tuple(nodes),
        by_name={node.name: node for node in nodes},
        producer={name: node for node in nodes for name in node.outputs if name},
        consumers=_consumers(reads, outputs),
        reads={node.name: edges for node, edges in zip(nodes, reads, strict=True)},
        initializers=initializers,
        inputs=inputs,
        outputs=outputs,
        types={**declared, **types},
        scopes=scopes or {},
        open_tensors=open_tensors or {},
    )


def with_nodes(
    graph: Graph,
    nodes: Iterable[Node],
    *,
    initializers: Mapping[str, TensorProto] | None = None,
    outputs: tuple[str, ...] | None = None,
    types: Mapping[str, TensorType] | None = None,
) -> Graph:
    """``graph`` with ``nodes``, sorted and numbered anew, for its own.

    ``initializers`` and ``types`` complete its own, ``outputs`` replace them.
    """
    numbered = [
        node if node.index == index else replace(node, index=index)
        for index, node in enumerate(nodes)
    ]
    present = {node.name for node in numbered}
    indexed = index_nodes(
        numbered,
        {**graph.initializers, **(initializers or {})},
        graph.inputs,
        graph.outputs if outputs is None else outputs,
        {**graph.types, **(types or {})},
        {name: scope for name, scope in graph.scopes.items() if name in present},
        graph.open_tensors,
    )
    return replace(indexed, normalized=graph.normalized)


def tensor_type(value: onnx.ValueInfoProto) -> TensorType:
    """Element type and, if every dimension is known, shape of a declared value."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return TensorType(tensor.elem_type or None, None)
    dims = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    known = tuple(d for d in dims if d is not None)
    return TensorType(tensor.elem_type or None, known if len(known) == len(dims) else None)


def dimensions(value: onnx.ValueInfoProto, names: Container[str]) -> Dimensions:
    """The dimensions of an inferred value.

    ``names``: those that the file gives dimensions; others are made up by ONNX's inference.
    """
    return tuple(
        d.dim_value if d.HasField("dim_value") else d.dim_param if d.dim_param in names else None
        for d in value.type.tensor_type.shape.dim
    )


def names_of_dimensions(graph: GraphProto) -> frozenset[str]:
    """The names that a graph gives dimensions of its inputs and of the tensors it declares."""
    values = (*graph.input, *graph.value_info)
    dims = (d for value in values for d in value.type.tensor_type.shape.dim)
    return frozenset([d.dim_param for d in dims if d.dim_param])


def _node(proto: NodeProto, index: int, name: str) -> Node:
    return Node(
        name=name,
        op=proto.op_type,
        domain=proto.domain,
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        index=index,
        proto=proto,
    )


def _reads(node: Node) -> tuple[Edge, ...]:
    tensors = (*node.inputs, *captured_tensors(node.proto))
    return tuple([Edge(tensor, node.name, i) for i, tensor in enumerate(tensors) if tensor])


def _consumers(
    reads: Iterable[tuple[Edge, ...]], outputs: Sequence[str]
) -> dict[str, tuple[Edge, ...]]:
    edges_of: dict[str, list[Edge]] = {}
    for edges in reads:
        for edge in edges:
            edges_of.setdefault(edge.tensor, []).append(edge)
    for i, tensor in enumerate(outputs):
        edges_of.setdefault(tensor, []).append(Edge(tensor, "", i))
    return {tensor: tuple(edges) for tensor, edges in edges_of.items()}


def captured_tensors(node: NodeProto) -> tuple[str, ...]:
    """Outer tensors that the subgraphs of ``node`` read, in order of first use."""
    captured: dict[str, None] = {}
    for attribute in node.attribute:
        if attribute.type in WITHOUT_GRAPHS:
            continue
        graphs = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
        for graph in graphs:
            captured.update(dict.fromkeys(_free_tensors(graph)))
    return tuple(captured)


def _free_tensors(graph: GraphProto) -> list[str]:
    bound = {t.name for t in graph.initializer} | {i.name for i in graph.input}
    free: list[str] = []
    for node in graph.node:
        free += [t for t in (*node.input, *captured_tensors(node)) if t and t not in bound]
        bound.update(node.output)
    free += [o.name for o in graph.output if o.name not in bound]
    return free
