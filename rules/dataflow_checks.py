"""Predicates on which nodes write and read tensors."""

from __future__ import annotations

from collections.abc import Sequence

from placer.graph import Edge, Graph, Node
from placer.rules.check import Check, Nodes, Tensors, within
from placer.rules.memory import written_with
from placer.rules.predicate_schema import ConsumersAre, ReadBefore, ReadBy, WrittenBy

_MOVES = frozenset(
    {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Concat"}
)


def is_read_once(tensor: str, graph: Graph) -> bool:
    """Whether one node reads the tensor, and once; it is no graph output."""
    return graph.sole_consumer(tensor) is not None


def consumers_are(condition: ConsumersAre) -> Check:
    """The check on how often tensors are read, graph outputs included."""

    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        count = sum(len(graph.edges_of(t)) for t in tensors.get(condition.tensor, ()))
        return within(count, condition.at_least, condition.at_most)

    return check


def written_by(condition: WrittenBy) -> Check:
    """The check that nodes of certain operators write all tensors, or one of them."""
    enough = any if condition.among_others else all

    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        names = tensors.get(condition.tensor, ())
        writers = [_writer(tensor, condition, graph) for tensor in names]
        return bool(writers) and enough(w is not None and is_one(w, graph) for w in writers)

    def is_one(writer: Node, graph: Graph) -> bool:
        if writer.qualified_op not in condition.op:
            return False
        operands = writer.inputs[1:2] if writer.op not in ("Add", "Mul") else writer.inputs
        return not condition.with_constant or not graph.initializers.keys().isdisjoint(operands)

    return check


def _writer(tensor: str, condition: WrittenBy, graph: Graph) -> Node | None:
    """The node that writes ``tensor``, or what is in front of operators that may follow it."""
    writer = graph.producer.get(tensor)
    while writer is not None and writer.qualified_op in condition.past:
        writer = graph.producer.get(writer.inputs[0])
    return writer


def read_by(condition: ReadBy) -> Check:
    """The check that nodes of certain operators read the tensors, and nothing else does."""
    enough = any if condition.among_others else all

    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        edges = [e for tensor in tensors.get(condition.tensor, ()) for e in graph.edges_of(tensor)]
        return bool(edges) and enough(is_one(edge, graph) for edge in edges)

    def is_one(edge: Edge, graph: Graph) -> bool:
        reader = graph.by_name.get(edge.node)
        if reader is None or reader.qualified_op not in condition.op:
            return False
        if condition.changes_rank and _keeps_rank(reader, edge.tensor, graph):
            return False
        return condition.input in (None, edge.input_index)

    return check


def _keeps_rank(node: Node, tensor: str, graph: Graph) -> bool:
    read, written = (graph.type_of(t).shape for t in (tensor, node.outputs[0]))
    return read is not None and written is not None and len(read) == len(written)


def repeats(name: str) -> Check:
    """The check that an earlier node does the same with the same tensor, but for other inputs."""

    def check(nodes: Nodes, _: Tensors, graph: Graph) -> bool:
        node = nodes.get(name)
        readers = [] if node is None else graph.edges_of(node.inputs[0])
        others = [graph.by_name[e.node] for e in readers if e.node and e.input_index == 0]
        return node is not None and any(
            (other.qualified_op, other.attributes) == (node.qualified_op, node.attributes)
            and other.index < node.index
            for other in others
        )

    return check


def read_before(condition: ReadBefore) -> Check:
    """The check that all other readers of a tensor lead to a node, so that they run before it."""

    def check(nodes: Nodes, tensors: Tensors, graph: Graph) -> bool:
        node = nodes.get(condition.node)
        read = tensors.get(condition.tensor, ())
        if condition.with_parts:
            read = tuple([part for tensor in read for part in written_with(tensor, graph)])
        edges = [edge for tensor in read for edge in graph.edges_of(tensor)]
        if node is None or any(edge.is_graph_output for edge in edges):
            return False
        readers = {graph.by_name[edge.node].index for edge in edges} - {node.index}
        return readers <= _ancestors(node, min(readers, default=node.index), graph)

    return check


def _ancestors(node: Node, first: int, graph: Graph) -> set[int]:
    """The indices of the nodes that lead to ``node``, from the index ``first`` on."""
    ancestors: set[int] = set()
    waiting = [node]
    while waiting:
        for tensor in waiting.pop().inputs:
            writer = graph.producer.get(tensor)
            if writer is not None and writer.index >= first and writer.index not in ancestors:
                ancestors.add(writer.index)
                waiting.append(writer)
    return ancestors


def different(names: Sequence[str]) -> Check:
    """The check that no two names are bound to one tensor."""

    def check(_: Nodes, tensors: Tensors, __: Graph) -> bool:
        bound = [tensor for name in names for tensor in tensors.get(name, ())]
        return len(bound) >= len(names) and len(set(bound)) == len(bound)

    return check


def written_apart(names: Sequence[str]) -> Check:
    """The check that no node writes two of the tensors."""

    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        bound = [tensor for name in names for tensor in tensors.get(name, ())]
        written = [set(written_with(tensor, graph)) for tensor in bound]
        return len(bound) >= len(names) and len(set[str]().union(*written)) == sum(
            map(len, written)
        )

    return check


def is_moved_to_output(tensor: str, graph: Graph) -> bool:
    """Whether the tensor is a graph output, or becomes one where elements are only moved."""
    waiting, seen = [tensor], {tensor}
    while waiting:
        moved = waiting.pop()
        if moved in graph.outputs:
            return True
        for reader in (graph.by_name[edge.node] for edge in graph.edges_of(moved)):
            if reader.op in _MOVES and (reader.op == "Concat" or reader.inputs[0] == moved):
                waiting += [output for output in reader.outputs if output not in seen]
                seen.update(reader.outputs)
    return False
