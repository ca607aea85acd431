"""The order in which OpenVINO runs nodes, which it sorts from the outputs back."""

from __future__ import annotations

from placer.graph.index import Graph, Node, with_nodes


def depth_first_from_outputs(graph: Graph) -> Graph:
    """``graph`` with its nodes in the order of OpenVINO's ``topological_sort``.

    What the last output needs comes first, then what the one before it needs. What a node reads
    comes in the order of its inputs, right before the node unless something needed it earlier.
    What no output needs stays at the end, in its own order.
    """
    done: dict[str, Node] = {}
    for tensor in reversed(graph.outputs):
        if tensor in graph.producer:
            _add(graph.producer[tensor], graph, done)
    done |= {node.name: node for node in graph.nodes if node.name not in done}
    nodes = list(done.values())
    return graph if nodes == list(graph.nodes) else with_nodes(graph, nodes)


def _add(last: Node, graph: Graph, done: dict[str, Node]) -> None:
    """Add ``last`` to ``done``, by name, behind all that it needs."""
    waiting = [last]
    while waiting:
        node = waiting[-1]
        writers = [graph.producer.get(edge.tensor) for edge in graph.edges_into(node)]
        needed = [one for one in writers if one is not None and one.name not in done]
        if needed and node.name not in done:
            waiting += reversed(needed)
        else:
            done.setdefault(node.name, node)
            waiting.pop()
