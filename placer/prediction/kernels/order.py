"""The order in which a compiler that generates kernels meets nodes.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 25 small graphs in which
two Convs of one tensor, at other depths, are added: the one that comes later in this order adds.
"""

from __future__ import annotations

from dataclasses import replace

from placer.graph import Graph, Node
from placer.graph.index import index_nodes


def depth_first(graph: Graph) -> Graph:
    """``graph`` with each node as soon behind the one that it reads as its other inputs allow.

    Nodes that read no other node are first. Readers of one tensor keep their order. Nodes are
    numbered anew; names and edges stay.
    """
    missing = {
        node.name: len({graph.producer[t].name for t in _read(graph, node)}) for node in graph.nodes
    }
    ordered = [node for node in graph.nodes if not missing[node.name]]
    waiting = [node for first in reversed(ordered) for node in _made_ready(graph, first, missing)]
    while waiting:
        node = waiting.pop()
        ordered.append(node)
        waiting += _made_ready(graph, node, missing)
    nodes = [replace(node, index=index) for index, node in enumerate(ordered)]
    if [node.name for node in nodes] == [node.name for node in graph.nodes]:
        return graph
    return index_nodes(
        nodes,
        graph.initializers,
        graph.inputs,
        graph.outputs,
        graph.types,
        graph.scopes,
        graph.open_tensors,
    )


def _read(graph: Graph, node: Node) -> list[str]:
    return [edge.tensor for edge in graph.edges_into(node) if edge.tensor in graph.producer]


def _made_ready(graph: Graph, node: Node, missing: dict[str, int]) -> list[Node]:
    """The readers that wait for ``node`` only, the last one first; counts it as there."""
    names = {edge.node for t in node.outputs for edge in graph.edges_of(t) if edge.node}
    for name in names:
        missing[name] -= 1
    readers = [graph.by_name[name] for name in names if not missing[name]]
    return sorted(readers, key=lambda reader: -reader.index)
