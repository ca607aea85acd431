"""Cut a region out of an ONNX graph, by its tensors or around a node.

onnx-graphsurgeon decides which nodes lead from the inputs to the outputs. It sees the graph
without weights, and the region is made of the model's own messages: nothing is loaded that is
not written, and no type is lost that onnx-graphsurgeon does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx_graphsurgeon as gs
from onnx import FunctionProto, GraphProto, ModelProto, ValueInfoProto, helper
from onnx_graphsurgeon.logger import G_LOGGER

from placer.common.names import near
from placer.errors import InputError
from placer.graph import Graph, index_graph
from placer.graph.edit import every_node, reads, subgraphs, without_initializers


def cut_region(
    proto: ModelProto,
    types: Mapping[str, ValueInfoProto],
    inputs: Sequence[str],
    outputs: Sequence[str],
    path: Path,
) -> ModelProto:
    """Return the part of ``proto`` that computes ``outputs`` from ``inputs``.

    ``proto``: nodes named uniquely. ``types`` gives the region's inputs and outputs their types.
    Weights stay inside and external ones stay references. Raises InputError, with ``path``, for
    an unknown tensor, an input that no output depends on and an input that is missing.
    """
    _check_names(proto.graph, inputs, outputs, path)
    weights = {t.name for t in proto.graph.initializer}
    weights |= {t.values.name for t in proto.graph.sparse_initializer}
    kept = _nodes_between(proto, inputs, outputs)
    nodes = [node for node in proto.graph.node if node.name in kept]
    read = {tensor for node in nodes for tensor in reads(node) if tensor}
    made = {tensor for node in nodes for tensor in node.output}
    for name in inputs:
        if name not in read:
            raise InputError(f"{path}: no output of the region depends on '{name}'; leave it out")
    missing = sorted((read | set(outputs)) - made - weights - set(inputs))
    if missing:
        raise InputError(f"{path}: the region also reads '{missing[0]}'; add it to the inputs")
    region = without_initializers(proto, weights - read)
    graph = region.graph
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(nodes)
    graph.input.extend(_typed(name, types, path) for name in inputs)
    graph.output.extend(_typed(name, types, path) for name in outputs)
    return region


def tensors_around(proto: ModelProto, node: str, depth: int, path: Path) -> tuple[list[str], ...]:
    """Inputs and outputs of the region of the nodes at most ``depth`` edges away from ``node``.

    Nodes that compute constants, such as DequantizeLinear of a weight, belong to their readers.
    Raises InputError for an unknown node.
    """
    graph = index_graph(proto.graph, {})
    if node not in graph.by_name:
        raise InputError(f"{path} has no node '{node}'{near(node, graph.by_name)}")
    constant = _constant_tensors(graph)
    region = _neighbours(graph, node, depth, constant)
    members = [member for member in graph.nodes if member.name in region]
    made = {tensor for member in members for tensor in member.outputs}
    read = dict.fromkeys(t for member in members for t in reads(member.proto) if t)
    inputs = [tensor for tensor in read if tensor not in made and tensor not in constant]
    outputs = [
        tensor
        for member in members
        for tensor in member.outputs
        if tensor not in constant and any(e.node not in region for e in graph.edges_of(tensor))
    ]
    return inputs, outputs


def _check_names(
    graph: GraphProto, inputs: Sequence[str], outputs: Sequence[str], path: Path
) -> None:
    if not outputs:
        raise InputError(f"{path}: the region has no output; name a tensor that it computes")
    known = {value.name for value in graph.input} | {t.name for t in graph.initializer}
    known |= {tensor for node in graph.node for tensor in node.output if tensor}
    for name in (*inputs, *outputs):
        if name not in known:
            raise InputError(f"{path} has no tensor '{name}'{near(name, known)}")
    for names in (inputs, outputs):
        twice = next((name for name in names if list(names).count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{path}: tensor '{twice}' is named twice; name it once")
    both = next((name for name in outputs if name in inputs), None)
    if both is not None:
        raise InputError(f"{path}: '{both}' is an input and an output of the region; choose one")


def _nodes_between(
    proto: ModelProto, inputs: Sequence[str], outputs: Sequence[str]
) -> frozenset[str]:
    """Names of the nodes that ``outputs`` depend on, up to ``inputs``."""
    weights = {t.name for t in proto.graph.initializer}
    stub = without_initializers(proto, weights)
    for tensor in proto.graph.initializer:
        stub.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    bodies: tuple[GraphProto | FunctionProto, ...] = (stub.graph, *stub.functions)
    for attribute in (
        a for body in bodies for node in every_node(body.node) for a in node.attribute
    ):
        # No name of a tensor, and onnx-graphsurgeon takes for UTF-8 what may be any bytes.
        attribute.ClearField("s")
        attribute.ClearField("strings")
    with _quiet():
        graph = gs.import_onnx(stub)
        tensors = graph.tensors()
        graph.inputs = [tensors[name] for name in inputs]
        graph.outputs = [tensors[name] for name in outputs]
        graph.cleanup(recurse_subgraphs=False, recurse_functions=False)
    return frozenset(node.name for node in graph.nodes)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep onnx-graphsurgeon's remarks on types out of the command's output."""
    before = G_LOGGER.severity
    G_LOGGER.severity = G_LOGGER.CRITICAL
    try:
        yield
    finally:
        G_LOGGER.severity = before


def _typed(name: str, types: Mapping[str, ValueInfoProto], path: Path) -> ValueInfoProto:
    value = types.get(name)
    if value is None or not value.type.WhichOneof("value"):
        raise InputError(f"{path}: the type of '{name}' cannot be inferred; cut at another tensor")
    return value


def _constant_tensors(graph: Graph) -> frozenset[str]:
    """Initializers and what is computed from them alone."""
    constant = set(graph.initializers)
    for node in graph.nodes:
        read = [tensor for tensor in reads(node.proto) if tensor]
        if read and not any(subgraphs(node.proto)) and constant.issuperset(read):
            constant.update(tensor for tensor in node.outputs if tensor)
    return frozenset(constant)


def _beside(graph: Graph, node: str, constant: Collection[str]) -> Iterator[str]:
    """Nodes one edge from ``node``, without those that compute constants for it."""
    proto = graph.by_name[node].proto
    sources = (t for t in reads(proto) if t in graph.producer and t not in constant)
    yield from (graph.producer[tensor].name for tensor in sources)
    yield from (e.node for t in proto.output for e in graph.edges_of(t) if e.node)


def _neighbours(graph: Graph, node: str, depth: int, constant: Collection[str]) -> frozenset[str]:
    """Nodes at most ``depth`` edges from ``node``, in both directions, with their constants."""
    region, front = {node}, {node}
    for _ in range(depth):
        front = {near for name in front for near in _beside(graph, name, constant)} - region
        if not front:
            break
        region |= front
    stack = list(region)
    while stack:
        for tensor in reads(graph.by_name[stack.pop()].proto):
            made = graph.producer.get(tensor)
            if made is not None and tensor in constant and made.name not in region:
                region.add(made.name)
                stack.append(made.name)
    return frozenset(region)
