"""Casts that an engine inserts around operators for which it has no kernel in half precision."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from onnx import TensorProto, helper
from onnx.numpy_helper import to_array

from placer.graph import Edge, Graph, Node
from placer.graph.index import with_nodes
from placer.graph.neutral import is_single
from placer.prediction.layers.no_ops import WithoutNoOps

_IN_FLOAT = " in float"


def with_casts_of_half(left: WithoutNoOps, kernels: Collection[str]) -> WithoutNoOps:
    """``left`` with the operators on float16 tensors that are none of ``kernels`` in float.

    Those of ``kernels`` are, too, that would be alone among these. Constants that are read once are
    converted when the model is built (their type stays that of the file), others in every run.
    Casts that undo each other are gone. Source: ONNX Runtime's insert_cast_transformer.cc,
    fuse_initializers_transformer.cc, constant_sharing.cc.
    """
    casts = _Casts(left.graph, kernels)
    if not casts.floats:
        return left
    nodes = list(casts.nodes())
    types = dict(left.graph.types)
    for tensor in casts.twin:
        types[casts.twin[tensor]] = types[tensor]._replace(dtype=TensorProto.FLOAT)
    moved = casts.moved()
    earlier = {edge: tuple(moved.get(e, e) for e in ends) for edge, ends in left.moved.items()}
    known = {node.name for node in left.graph.nodes}
    return WithoutNoOps(
        with_nodes(left.graph, nodes, types=types),
        {**{edge: (end,) for edge, end in moved.items()}, **earlier},
        left.twins,
        frozenset(node.name for node in nodes) - known,
        casts.floats,
    )


def half_of(twin: str, graph: Graph) -> str:
    """The float16 tensor of ``graph`` of which ``twin`` is the Cast to float; empty if of none."""
    tensor = twin.removesuffix(_IN_FLOAT)
    is_twin = tensor != twin and graph.type_of(tensor).dtype == TensorProto.FLOAT16
    return tensor if is_twin else ""


@dataclass(frozen=True)
class _Casts:
    """Which nodes of ``graph`` run in float, and what stands for their float16 tensors."""

    graph: Graph
    kernels: Collection[str]

    def is_half(self, tensor: str) -> bool:
        """Whether ``tensor`` is float16 in the file."""
        return self.graph.type_of(tensor).dtype == TensorProto.FLOAT16

    @cached_property
    def _without_kernel(self) -> frozenset[str]:
        return frozenset(
            node.name
            for node in self.graph.nodes
            if node.op != "Cast"
            and node.qualified_op not in self.kernels
            and any(self.is_half(tensor) for tensor in node.inputs)
        )

    @cached_property
    def floats(self) -> frozenset[str]:
        """Names of the nodes that run in float."""
        alone = (node.name for node in self.graph.nodes if self._is_alone(node))
        return self._without_kernel.union(alone) if self._without_kernel else frozenset()

    def _is_alone(self, node: Node) -> bool:
        """Whether it reads a node, and all float16 activations around it are floats of others."""
        if node.op == "Cast" or node.name in self._without_kernel:
            return False
        writers = {t: self.graph.producer.get(t) for t in node.inputs}
        halves = [
            writer
            for tensor, writer in writers.items()
            if self.is_half(tensor) and tensor not in self.graph.initializers
        ]
        edges = [edge for tensor in node.outputs for edge in self.graph.edges_of(tensor)]
        return (
            bool(edges and any(writers.values()))
            and all(w is not None and w.name in self._without_kernel for w in halves)
            and all(e.node in self._without_kernel and not self._reshapes(e) for e in edges)
        )

    def _reshapes(self, edge: Edge) -> bool:
        """Whether a Reshape is put there before a MatMul that becomes a Gemm with its bias.

        Not in attention, whose products become Gemms when it is known who runs what.
        """
        node = self.graph.by_name[edge.node]
        shape = self.graph.type_of(edge.tensor).shape
        if node.op != "MatMul" or shape is None or len(shape) < 3:
            return False
        bias = self.graph.sole_reader(node.outputs[0])
        writer = self.graph.producer.get(edge.tensor)
        if bias is None or bias.op != "Add" or (writer is not None and writer.op == "Reshape"):
            return False
        behind = [self.graph.by_name.get(e.node) for e in self.graph.edges_of(bias.outputs[0])]
        return not any(reader is not None and reader.op == "Reshape" for reader in behind)

    @cached_property
    def twin(self) -> Mapping[str, str]:
        """By float16 tensor that a node reads or writes in float, that tensor in float."""
        tensors = (t for edge in self._edges() if self._reads_float(edge) for t in [edge.tensor])
        written = (t for n in self.graph.nodes if n.name in self.floats for t in n.outputs)
        return {t: self._source(t) for t in (*tensors, *written) if self._has_twin(t)}

    def _source(self, tensor: str) -> str:
        """What a Cast of the file to float16 reads in float, or a new tensor."""
        writer = self.graph.producer.get(tensor)
        if writer is not None and writer.op == "Cast":
            source = writer.inputs[0]
            if self.graph.type_of(source).dtype == TensorProto.FLOAT:
                return source
        return f"{self._shared.get(tensor, tensor)}{_IN_FLOAT}"

    def _has_twin(self, tensor: str) -> bool:
        is_constant = tensor in self.graph.initializers
        return self.is_half(tensor) and (not is_constant or tensor in self._shared)

    @cached_property
    def _shared(self) -> Mapping[str, str]:
        """By constant that is read in float several times, the first one with its only number."""
        equal: dict[object, list[str]] = {}
        for edge in self._edges():
            constant = self.graph.initializers.get(edge.tensor)
            if constant is not None and edge.node in self.floats and self.is_half(edge.tensor):
                key = to_array(constant).tobytes() if is_single(constant) else edge.tensor
                equal.setdefault((key, len(constant.dims)), []).append(edge.tensor)
        return {t: tensors[0] for tensors in equal.values() if len(tensors) > 1 for t in tensors}

    def _edges(self) -> Iterator[Edge]:
        for node in self.graph.nodes:
            yield from self.graph.reads.get(node.name, ())

    def _reads_float(self, edge: Edge) -> bool:
        """Whether it reads the float twin: in float, or by a Cast of what is written in float."""
        if not self._has_twin(edge.tensor) or edge.is_graph_output:
            return False
        node = self.graph.by_name[edge.node]
        writer = self.graph.producer.get(edge.tensor)
        is_cast = node.op == "Cast" and writer is not None and writer.name in self.floats
        return edge.node in self.floats or is_cast

    def moved(self) -> dict[Edge, Edge]:
        """By edge that reads a float twin, the edge that it is now."""
        return {
            edge: edge._replace(tensor=self.twin[edge.tensor])
            for edge in self._edges()
            if self._reads_float(edge)
        }

    def nodes(self) -> Iterator[Node]:
        """The nodes in order, with the Casts that are left."""
        given = (*self.graph.inputs, *dict.fromkeys(self._shared.values()))
        yield from (self._cast(t, self.twin[t]) for t in given if self._is_new(t))
        for node in self.graph.nodes:
            halves = [tensor for tensor in node.outputs if self._is_read_in_half(tensor)]
            if node.op == "Cast" and node.outputs[0] in self.twin and not halves:
                continue
            yield self._with_twins(node)
            if node.name in self.floats:
                left = (tensor for tensor in halves if tensor in self.twin)
                yield from (self._cast(self.twin[tensor], tensor) for tensor in left)
            else:
                new = (tensor for tensor in node.outputs if self._is_new(tensor))
                yield from (self._cast(tensor, self.twin[tensor]) for tensor in new)

    def _with_twins(self, node: Node) -> Node:
        """``node`` as it reads and, where it computes in float, writes the float twins."""
        in_float = node.name in self.floats
        outputs = tuple(self.twin.get(t, t) if in_float else t for t in node.outputs)
        moved = {e.input_index for e in self.graph.reads[node.name] if self._reads_float(e)}
        inputs = tuple(self.twin[t] if i in moved else t for i, t in enumerate(node.inputs))
        return replace(node, inputs=inputs, outputs=outputs)

    def _is_new(self, tensor: str) -> bool:
        return self.twin.get(tensor) == f"{tensor}{_IN_FLOAT}"

    def _is_read_in_half(self, tensor: str) -> bool:
        return any(not self._reads_float(edge) for edge in self.graph.edges_of(tensor))

    def _cast(self, source: str, target: str) -> Node:
        name = f"Cast to {target}"
        kind = TensorProto.FLOAT16 if self.is_half(target) else TensorProto.FLOAT
        proto = helper.make_node("Cast", [source], [target], name=name, to=kind)
        return Node(name, "Cast", "", (source,), (target,), 0, proto)
