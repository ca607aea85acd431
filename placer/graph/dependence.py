"""Which tensors hold something new in every run."""

from __future__ import annotations

from placer.graph.edit import subgraphs
from placer.graph.index import Graph
from placer.graph.kept import kept
from placer.graph.operators import OF_SHAPES
from placer.graph.randomness import RANDOM_OPS


@kept
def data_tensors(graph: Graph) -> frozenset[str]:
    """The tensors that depend on values of the graph's inputs, of bodies' inputs, or on chance.

    The others depend on constants and on shapes alone, as the anchors of a detector do: they are
    the same for all inputs of a shape. What a node with subgraphs makes is taken to be new.
    """
    written = graph.producer.keys() | graph.initializers.keys()
    tensors = {*graph.inputs, *(tensor for tensor in graph.consumers if tensor not in written)}
    for node in graph.nodes:
        # Not the proto's inputs: where pairs are taken out of a graph, nodes read what is left.
        depends = node.op not in OF_SHAPES and not tensors.isdisjoint(node.inputs)
        if depends or node.op in RANDOM_OPS or any(subgraphs(node.proto)):
            tensors.update(node.outputs)
    return frozenset(tensors)
