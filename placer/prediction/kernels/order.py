"""The order in which a compiler that generates kernels visits nodes.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 43 small graphs in which
two Convs are added, of one tensor at other depths or of several, some of which wait for a third
branch: the one that comes later in this order adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from placer.graph import Graph, Node
from placer.graph.index import with_nodes
from placer.graph.kept import kept


def depth_first_from_inputs(graph: Graph, cast: Iterable[str]) -> Graph:
    """``graph`` with each node behind one that it reads, and what else it reads right before it.

    Readers of a tensor keep their order; first are those of graph inputs that are ``cast``, then
    nodes that read no other node. Nodes are numbered anew; names and edges stay.
    """
    casts = list(dict.fromkeys(cast))
    roots = [node for node in graph.nodes if not _writers(graph, node)]
    read = [reader for tensor in casts for reader in _readers(graph, (tensor,))]
    waiting, ordered, done = [*reversed([*read, *roots])], list[Node](), set[str]()
    while waiting:
        node = waiting[-1]
        missing = [n for n in _writers(graph, node) if n.name not in done]
        if node.name in done or not missing:
            waiting.pop()
        if node.name in done:
            continue
        if missing:
            waiting += reversed(missing)
            continue
        done.add(node.name)
        ordered.append(node)
        waiting += reversed([n for n in _readers(graph, node.outputs) if n.name not in done])
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


def _writers(graph: Graph, node: Node) -> list[Node]:
    """The nodes that ``node`` waits for, in the order of what it reads."""
    made = (graph.producer.get(edge.tensor) for edge in graph.edges_into(node))
    return list({writer.name: writer for writer in made if writer is not None}.values())


def _readers(graph: Graph, made: Sequence[str]) -> list[Node]:
    """The nodes that read any of ``made``, as they are listed."""
    names = {edge.node for tensor in made for edge in graph.edges_of(tensor) if edge.node}
    return sorted((graph.by_name[name] for name in names), key=lambda reader: reader.index)
