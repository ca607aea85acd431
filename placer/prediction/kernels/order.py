"""The order in which a compiler that generates kernels visits nodes.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 25 small graphs in which
two Convs of one tensor, at other depths, are added: the one that comes later in this order adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from placer.graph import Graph, Node
from placer.graph.index import with_nodes
from placer.graph.kept import kept


def depth_first_from_inputs(graph: Graph, cast: Iterable[str]) -> Graph:
    """``graph`` with each node as soon behind the one that it reads as its other inputs allow.

    Nodes that read no other node are first, and so are the casts of those graph inputs that are
    ``cast``. Readers of one tensor keep their order. Nodes are numbered anew; names and edges stay.
    """
    casts = sorted(set(cast), key=lambda tensor: _first_reader(graph, tensor))
    missing = {node.name: len(set(_read(graph, node, casts))) for node in graph.nodes}
    ordered = [node for node in graph.nodes if not missing[node.name]]
    roots = [tuple(node.outputs) for node in ordered]
    roots = [*((tensor,) for tensor in casts), *roots]
    waiting = [node for made in reversed(roots) for node in _made_ready(graph, made, missing)]
    while waiting:
        node = waiting.pop()
        ordered.append(node)
        waiting += _made_ready(graph, node.outputs, missing)
    if [node.name for node in ordered] == [node.name for node in graph.nodes]:
        return graph
    return with_nodes(graph, ordered)


@kept
def branches_last_first(graph: Graph) -> Mapping[str, int]:
    """The place of each node where the last of a tensor's readers, and all behind it, is first.

    In other words, the reverse of the order in which a search that goes deep leaves nodes.
    """
    left: list[str] = []
    seen: set[str] = set()
    roots = [node for node in graph.nodes if all(t not in graph.producer for t in node.inputs)]
    waiting = [(node, False) for node in reversed(roots)]
    while waiting:
        node, done = waiting.pop()
        if done:
            left.append(node.name)
        elif node.name not in seen:
            seen.add(node.name)
            waiting.append((node, True))
            names = {e.node for tensor in node.outputs for e in graph.edges_of(tensor) if e.node}
            readers = sorted((graph.by_name[name] for name in names), key=lambda n: -n.index)
            waiting += [(reader, False) for reader in readers if reader.name not in seen]
    return {name: place for place, name in enumerate(reversed(left))}


def _first_reader(graph: Graph, tensor: str) -> int:
    return min((graph.by_name[e.node].index for e in graph.edges_of(tensor) if e.node), default=0)


def _read(graph: Graph, node: Node, casts: Sequence[str]) -> Iterator[str]:
    """What a node waits for: names of nodes, and of graph inputs that are cast."""
    for edge in graph.edges_into(node):
        writer = graph.producer.get(edge.tensor)
        if writer is not None:
            yield writer.name
        elif edge.tensor in casts:
            yield f"input {edge.tensor}"


def _made_ready(graph: Graph, made: Sequence[str], missing: dict[str, int]) -> list[Node]:
    """The readers that wait for what writes ``made`` only, the last one first; it is there then."""
    names = {edge.node for tensor in made for edge in graph.edges_of(tensor) if edge.node}
    for name in names:
        missing[name] -= 1
    readers = [graph.by_name[name] for name in names if not missing[name]]
    return sorted(readers, key=lambda reader: -reader.index)
