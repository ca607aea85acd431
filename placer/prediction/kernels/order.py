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


def depth_first_from_inputs(
    graph: Graph, cast: Iterable[str], joined: Mapping[str, Sequence[Node]]
) -> Graph:
    """``graph`` with each node behind one that it reads, and what else it reads right before it.

    ``joined``: by name, nodes that follow each other, as one kernel computes them.

    Readers of a tensor keep their order; first are those of graph inputs that are ``cast``, then
    nodes that read no other node. Nodes are numbered anew; names and edges stay.
    """
    casts = list(dict.fromkeys(cast))
    roots = [node for node in graph.nodes if not _writers(graph, node)]
    read = [reader for tensor in casts for reader in _readers(graph, (tensor,))]
    waiting, ordered, done = [*reversed([*read, *roots])], list[Node](), set[str]()
    while waiting:
        node = waiting[-1]
        if node.name in done:
            waiting.pop()
            continue
        together = joined.get(node.name, (node,))
        writers = [writer for one in together for writer in _writers(graph, one)]
        if missing := [writer for writer in writers if writer.name not in done]:
            waiting += reversed(missing)
            continue
        waiting.pop()
        done.update(one.name for one in together)
        ordered += together
        made = [tensor for one in together for tensor in one.outputs]
        waiting += reversed([n for n in _readers(graph, made) if n.name not in done])
    if [node.name for node in ordered] == [node.name for node in graph.nodes]:
        return graph
    return with_nodes(graph, ordered)


@kept
def branches_last_first(graph: Graph) -> Mapping[str, int]:
    """The place of each node and graph input, by name.

    The last of a tensor's readers, and all behind it, is first, and so is the last of the inputs.
    In other words, the reverse of the order in which a search that goes deep leaves nodes.
    """
    left: list[str] = []
    seen: set[str] = set()
    roots = [node.name for node in graph.nodes if not graph.edges_into(node)]
    waiting = [(name, False) for name in reversed([*graph.inputs, *roots])]
    while waiting:
        name, done = waiting.pop()
        if done:
            left.append(name)
        elif name not in seen:
            seen.add(name)
            waiting.append((name, True))
            node = graph.by_name.get(name)
            readers = _readers(graph, (name,) if node is None else node.outputs)
            waiting += [(reader.name, False) for reader in reversed(readers)]
    return {name: place for place, name in enumerate(reversed(left))}


def _writers(graph: Graph, node: Node) -> list[Node]:
    """The nodes that ``node`` waits for, in the order of what it reads."""
    made = (graph.producer.get(edge.tensor) for edge in graph.edges_into(node))
    return list({writer.name: writer for writer in made if writer is not None}.values())


def _readers(graph: Graph, made: Sequence[str]) -> list[Node]:
    """The nodes that read any of ``made``, as they are listed."""
    names = {edge.node for tensor in made for edge in graph.edges_of(tensor) if edge.node}
    return sorted((graph.by_name[name] for name in names), key=lambda reader: reader.index)
