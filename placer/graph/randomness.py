"""Which outputs of a graph are drawn at random."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import NodeProto

from placer.graph.edit import reads, subgraphs
from placer.graph.index import Graph
from placer.graph.training import is_training

# https://onnx.ai/onnx/operators: those whose outputs differ from run to run. With the attribute
# `seed` each session of ONNX Runtime draws the same in the same order.
RANDOM_OPS = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)


def random_outputs(graph: Graph, *, seeded: bool = True) -> dict[str, str]:
    """Name of the random node that a graph output depends on, by output; others are left out.

    ``seeded``: whether nodes with a seed count as random.
    """
    source: dict[str, str] = {}
    for node in graph.nodes:
        cause = next((source[t] for t in reads(node.proto) if t in source), None)
        if cause is None and any(
            _draws(inner, graph) and (seeded or not _has_seed(inner))
            for inner in _nested(node.proto)
        ):
            cause = node.name
        if cause is not None:
            source.update((tensor, cause) for tensor in node.outputs if tensor)
    return {output: source[output] for output in graph.outputs if output in source}


def _draws(node: NodeProto, graph: Graph) -> bool:
    return node.op_type in RANDOM_OPS or (
        node.op_type == "Dropout" and is_training(node, graph.initializers)
    )


def _has_seed(node: NodeProto) -> bool:
    return any(attribute.name == "seed" for attribute in node.attribute)


def _nested(node: NodeProto) -> Iterator[NodeProto]:
    """``node`` and the nodes of its subgraphs."""
    yield node
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from _nested(inner)
