"""Edit ONNX graphs: copies without weights, renamed tensors, sorted nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
)

from placer.graph.external_data import is_external, tensor_bytes
from placer.graph.index import NUMBERS, WITHOUT_GRAPHS, captured_tensors
from placer.graph.operators import STANDARD_DOMAINS

# Above this size a tensor holds weights, not shapes: passes in C++ see its type only.
LARGE_BYTES = 4096


def is_large(tensor: TensorProto) -> bool:
    """Whether the tensor is external or larger than ``LARGE_BYTES``."""
    return is_external(tensor) or tensor_bytes(tensor) > LARGE_BYTES


def standard_opset(proto: ModelProto | FunctionProto) -> int:
    """Version of ONNX's own operators, 0 if the model or function imports none."""
    return max((e.version for e in proto.opset_import if e.domain in STANDARD_DOMAINS), default=0)


def all_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Initializers and tensor attributes, those of subgraphs included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type in NUMBERS:
                continue
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for subgraph in _graphs(attribute):
                yield from all_tensors(subgraph)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Graphs among the node's attributes (If, Loop, Scan)."""
    for attribute in node.attribute:
        yield from _graphs(attribute)


def _graphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    if attribute.type not in WITHOUT_GRAPHS:
        yield from attribute.graphs
        if attribute.HasField("g"):
            yield attribute.g


def every_node(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """``nodes`` and those of their subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from every_node(graph.node)


def without_large_tensors(proto: ModelProto) -> ModelProto:
    """Copy ``proto`` with large and external initializers as graph inputs of the same type.

    What C++ passes need not see they need not copy, and no message outgrows 2 GiB.
    """
    large = [t for t in proto.graph.initializer if is_large(t)]
    stub = without_initializers(proto, {t.name for t in large})
    for tensor in large:
        stub.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    return stub


def without_initializers(proto: ModelProto, names: Collection[str]) -> ModelProto:
    """Copy ``proto`` without the initializers called ``names``, whose values are not copied.

    Inferred types (``value_info``) are left out too.
    """
    copy = ModelProto(
        ir_version=proto.ir_version,
        producer_name=proto.producer_name,
        producer_version=proto.producer_version,
        domain=proto.domain,
        model_version=proto.model_version,
        doc_string=proto.doc_string,
    )
    copy.opset_import.extend(proto.opset_import)
    copy.functions.extend(proto.functions)
    copy.metadata_props.extend(proto.metadata_props)
    source, graph = proto.graph, copy.graph
    graph.name = source.name
    graph.doc_string = source.doc_string
    graph.metadata_props.extend(source.metadata_props)
    graph.node.extend(source.node)
    graph.input.extend(source.input)
    graph.output.extend(source.output)
    graph.sparse_initializer.extend(source.sparse_initializer)
    graph.initializer.extend(t for t in source.initializer if t.name not in names)
    return copy


def fix_input_shapes(proto: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Write concrete shapes into the graph inputs that ``shapes`` names."""
    for value in proto.graph.input:
        if value.name in shapes:
            shape = value.type.tensor_type.shape
            shape.ClearField("dim")
            for size in shapes[value.name]:
                shape.dim.add(dim_value=size)


def adopt(proto: ModelProto, changed: ModelProto) -> None:
    """Take over what a pass made of the nodes of ``without_large_tensors(proto)``.

    Large initializers, inputs, outputs and metadata of ``proto`` stay.
    """
    small = [i for i, tensor in enumerate(proto.graph.initializer) if not is_large(tensor)]
    for index in reversed(small):
        del proto.graph.initializer[index]
    proto.graph.initializer.extend(changed.graph.initializer)
    del proto.graph.node[:], proto.opset_import[:], proto.functions[:]
    proto.graph.node.extend(changed.graph.node)
    proto.opset_import.extend(changed.opset_import)
    proto.functions.extend(changed.functions)


def replace_nodes(graph: GraphProto, nodes: list[NodeProto]) -> None:
    """Make ``nodes``, some of which may belong to ``graph``, its nodes."""
    # Nodes of a list that is deleted may not be added to it again.
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def rename_tensors(node: NodeProto, resolve: Callable[[str], str]) -> None:
    """Rename tensors in ``node`` and its subgraphs; ONNX forbids shadowing, so names suffice."""
    for names in (node.input, node.output):
        for i, name in enumerate(names):
            names[i] = resolve(name)
    for graph in subgraphs(node):
        for inner in graph.node:
            rename_tensors(inner, resolve)
        for value in graph.output:
            value.name = resolve(value.name)


def reads(node: NodeProto) -> tuple[str, ...]:
    """Tensors that ``node`` or a subgraph of it reads from the graph it is in."""
    return (*node.input, *captured_tensors(node))


def readers_by_tensor(nodes: Iterable[NodeProto]) -> defaultdict[str, list[NodeProto]]:
    """The nodes that read each tensor in their order, once for each input that does."""
    readers = defaultdict[str, list[NodeProto]](list)
    for node in nodes:
        for tensor in reads(node):
            readers[tensor].append(node)
    return readers


def remove_dead_nodes(graph: GraphProto) -> int:
    """Remove nodes that no graph output depends on; the nodes must be sorted."""
    needed = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(tensor for tensor in reads(node) if tensor)
    count = len(graph.node) - len(kept)
    if count:
        replace_nodes(graph, kept[::-1])
    return count


def sort_nodes(graph: GraphProto) -> None:
    """Put each node behind those it reads from; sorted nodes keep their order.

    Nodes on a cycle keep some order: the checker refuses them.
    """
    producer = {tensor: i for i, node in enumerate(graph.node) for tensor in node.output if tensor}
    before = [[producer[t] for t in reads(node) if t in producer] for node in graph.node]
    if all(source < index for index, sources in enumerate(before) for source in sources):
        return
    order: dict[int, None] = {}
    entered: set[int] = set()
    for start in range(len(before)):
        stack = [start]
        while stack:
            index = stack[-1]
            waiting = [source for source in before[index] if source not in entered]
            entered.add(index)
            if waiting:
                stack.append(waiting[0])
            else:
                order.setdefault(stack.pop())
    replace_nodes(graph, [graph.node[index] for index in order])
