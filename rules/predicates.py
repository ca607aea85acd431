"""The closed list of conditions that a rule may put on a match (see ``schema.Predicate``)."""

from __future__ import annotations

import math

from onnx import numpy_helper

from placer.graph import Graph
from placer.graph.external_data import is_external
from placer.rules.match import Match
from placer.rules.schema import AttributeIs, ConsumersAre, DimIs, Predicate, RankIs, ValuesAre

MAX_VALUES = 64  # Larger constants are weights; no condition needs their values.


def holds(predicate: Predicate, match: Match, graph: Graph) -> bool:
    """Whether ``predicate`` holds; what is said of an absent tensor or node does not."""
    if predicate.never is not None:
        return not holds(predicate.never, match, graph)
    if predicate.any_of is not None:
        return any(holds(nested, match, graph) for nested in predicate.any_of)
    if predicate.attribute is not None:
        return _attribute_is(predicate.attribute, match)
    if predicate.rank is not None:
        return _rank_is(predicate.rank, match, graph)
    if predicate.dim is not None:
        return _dim_is(predicate.dim, match, graph)
    if predicate.same_shape is not None:
        return _same_shape(predicate.same_shape, match, graph)
    if predicate.depthwise is not None:
        return _depthwise(predicate.depthwise, match, graph)
    if predicate.consumers is not None:
        return _consumers_are(predicate.consumers, match, graph)
    if predicate.values is not None:
        return _values_are(predicate.values, match, graph)
    return _tensor_is(predicate, match, graph)


def _tensor_is(predicate: Predicate, match: Match, graph: Graph) -> bool:
    if predicate.is_initializer is not None:
        tensors = match.tensors.get(predicate.is_initializer, ())
        return bool(tensors) and all(t in graph.initializers for t in tensors)
    if predicate.is_activation is not None:
        tensors = match.tensors.get(predicate.is_activation, ())
        return bool(tensors) and not any(t in graph.initializers for t in tensors)
    if predicate.is_graph_input is not None:
        tensors = match.tensors.get(predicate.is_graph_input, ())
        return bool(tensors) and all(t in graph.inputs for t in tensors)
    if predicate.is_graph_output is not None:
        tensors = match.tensors.get(predicate.is_graph_output, ())
        return bool(tensors) and all(t in graph.outputs for t in tensors)
    if predicate.scalar is not None:
        shapes = [graph.type_of(t).shape for t in match.tensors.get(predicate.scalar, ())]
        return bool(shapes) and all(s is not None and all(d == 1 for d in s) for s in shapes)
    tensors = match.tensors.get(predicate.sole_consumer or "", ())
    edges = [edge for t in tensors for edge in graph.edges_of(t)]
    return len(edges) == 1 and not edges[0].is_graph_output


def _attribute_is(condition: AttributeIs, match: Match) -> bool:
    node = match.nodes.get(condition.node)
    if node is None:
        return False
    value = node.attributes.get(condition.name, condition.default)
    if condition.equals is not None and value != condition.equals:
        return False
    if condition.at_least is None and condition.at_most is None:
        return True
    values = value if isinstance(value, list) else [value]
    return all(
        isinstance(v, int | float) and _within(v, condition.at_least, condition.at_most)
        for v in values
    )


def _consumers_are(condition: ConsumersAre, match: Match, graph: Graph) -> bool:
    count = sum(len(graph.edges_of(t)) for t in match.tensors.get(condition.tensor, ()))
    return _within(count, condition.at_least, condition.at_most)


def _values_are(condition: ValuesAre, match: Match, graph: Graph) -> bool:
    found = [graph.initializers.get(t) for t in match.tensors.get(condition.tensor, ())]
    constants = [t for t in found if t is not None and math.prod(t.dims) <= MAX_VALUES]
    # A constant this small is never in another file, which only the model could read.
    if not found or len(constants) < len(found) or any(map(is_external, constants)):
        return False
    values = [v for t in constants for v in numpy_helper.to_array(t).ravel().tolist()]
    return all(_within(v, condition.at_least, condition.at_most) for v in values)


def _within(value: float, at_least: float | None, at_most: float | None) -> bool:
    return (at_least is None or value >= at_least) and (at_most is None or value <= at_most)


def _rank_is(condition: RankIs, match: Match, graph: Graph) -> bool:
    shapes = [graph.type_of(t).shape for t in match.tensors.get(condition.tensor, ())]
    return bool(shapes) and all(s is not None and len(s) in condition.one_of for s in shapes)


def _dim_is(condition: DimIs, match: Match, graph: Graph) -> bool:
    shapes = [graph.type_of(t).shape for t in match.tensors.get(condition.tensor, ())]
    return bool(shapes) and all(_dim_within(condition, shape) for shape in shapes)


def _dim_within(condition: DimIs, shape: tuple[int, ...] | None) -> bool:
    if shape is None or not -len(shape) <= condition.axis < len(shape):
        return False
    dim = shape[condition.axis]
    if not _within(dim, condition.at_least, condition.at_most):
        return False
    return condition.multiple_of is None or dim % condition.multiple_of == 0


def _same_shape(names: list[str], match: Match, graph: Graph) -> bool:
    shapes = {graph.type_of(t).shape for name in names for t in match.tensors.get(name, ())}
    return len(shapes) == 1 and None not in shapes


def _depthwise(name: str, match: Match, graph: Graph) -> bool:
    node = match.nodes.get(name)
    if node is None:
        return False
    groups = node.attributes.get("group", 1)
    shape = graph.type_of(node.inputs[0]).shape
    return groups > 1 and shape is not None and len(shape) > 1 and shape[1] == groups
