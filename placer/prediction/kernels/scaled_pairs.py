"""Pairs behind which a number multiplies an operand of a product of activations.

The builder multiplies their scale by it: the product reads the integers as if the pair were its
own, and no kernel has the factor's name. So exporters scale queries and keys before they are
multiplied, and half of the operators have pairs.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of a denoiser whose queries
and keys are both scaled, and of ten small graphs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from placer.graph import Edge, Graph, Node
from placer.graph.weights import weight_input
from placer.prediction.kernels.factors import KEEPS_ALL, number
from placer.prediction.layers.motion import Scale


def scaled_pairs(graph: Graph, scales: Mapping[Edge, Scale]) -> dict[Edge, Scale]:
    """``scales``, and those of the operands that are made of a pair by a number alone."""
    found = dict(scales)
    for node in graph.nodes:
        given = _given(graph, node)
        scale = scales.get(given) if given is not None else None
        if scale is not None:
            found.update(dict.fromkeys(_behind(graph, node, scales), scale))
    return found


def is_absorbed(graph: Graph, factor: Node, scales: Mapping[Edge, Scale]) -> bool:
    """Whether the scale of a pair takes in what ``factor`` multiplies by."""
    given, made = _given(graph, factor), graph.sole_consumer(factor.outputs[0])
    scale = scales.get(given) if given is not None else None
    return scale is not None and made is not None and scales.get(made) == scale


def _given(graph: Graph, factor: Node) -> Edge | None:
    """What is multiplied by a number; None if ``factor`` does no such thing."""
    if number(graph, factor) is None:
        return None
    edges = (Edge(tensor, factor.name, index) for index, tensor in enumerate(factor.inputs))
    return next((edge for edge in edges if edge.tensor not in graph.initializers), None)


def _behind(graph: Graph, factor: Node, scales: Mapping[Edge, Scale]) -> Iterator[Edge]:
    """The operand of a product of activations that ``factor`` makes, and views on the way to it."""
    tensor, path = factor.outputs[0], list[Edge]()
    while (edge := graph.sole_consumer(tensor)) is not None and edge not in scales:
        path.append(edge)
        node = graph.by_name[edge.node]
        if node.op == "MatMul" and weight_input(graph, node) is None:
            yield from path
        if node.op not in KEEPS_ALL:
            return
        tensor = node.outputs[0]
