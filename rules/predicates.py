"""The closed list of conditions that a rule may put on a match (see ``schema.Predicate``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from onnx import numpy_helper

from placer.graph import Graph, Node
from placer.graph.external_data import is_external
from placer.rules.memory import (
    is_channels_last,
    is_one_piece,
    is_sliced_apart,
    written_with,
)
from placer.rules.predicate_schema import (
    AttributeIs,
    ConsumersAre,
    DimIs,
    ElementsAre,
    PadsOnly,
    Predicate,
    RankIs,
    ReadBefore,
    ReadBy,
    ValuesAre,
    WrittenBy,
)

MAX_VALUES = 1024  # Larger constants are weights; no condition needs their values.

Nodes = Mapping[str, Node]  # By pattern node.
Tensors = Mapping[str, tuple[str, ...]]  # By tensor name of the pattern.
Shape = tuple[int, ...] | None
# Whether a condition holds of what is bound; what is said of an absent tensor or node does not.
Check = Callable[[Nodes, Tensors, Graph], bool]


def check_of(predicate: Predicate) -> Check:
    """What tells whether ``predicate`` holds."""
    (field,) = predicate.model_fields_set
    check: Check = _MAKERS[field](getattr(predicate, field))
    return check


def _never(predicate: Predicate) -> Check:
    check = check_of(predicate)
    return lambda nodes, tensors, graph: not check(nodes, tensors, graph)


def _any_of(predicates: Sequence[Predicate]) -> Check:
    checks = tuple(map(check_of, predicates))
    return lambda nodes, tensors, graph: any(check(nodes, tensors, graph) for check in checks)


def _of_each(holds: Callable[[str, Graph], bool]) -> Callable[[str], Check]:
    """Makes the condition that ``holds`` is true of every tensor of a name, and there are some."""

    def of(name: str) -> Check:
        def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
            found = tensors.get(name, ())
            if len(found) == 1:
                return holds(found[0], graph)
            return bool(found) and all(holds(tensor, graph) for tensor in found)

        return check

    return of


def _is_scalar(tensor: str, graph: Graph) -> bool:
    shape = graph.type_of(tensor).shape
    return shape is not None and all(dim == 1 for dim in shape)


# What computes nothing below zero, and what hands on values of its first input or between them.
_NEVER_NEGATIVE = frozenset(
    {"Relu", "Sigmoid", "HardSigmoid", "Softmax", "Softplus", "Abs", "Exp", "Sqrt"}
)
_HANDS_ON = frozenset(
    {"MaxPool", "GlobalMaxPool", "AveragePool", "GlobalAveragePool", "Resize", "Identity"}
    | {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "Split"}
)

_MOVES = frozenset(
    {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Concat"}
)


def is_non_negative(tensor: str, graph: Graph) -> bool:
    """Whether the operators that lead to ``tensor`` write nothing below zero."""
    node = graph.producer.get(tensor)
    while node is not None and node.op in _HANDS_ON:
        if node.attributes.get("mode") == "cubic":  # Overshoots.
            return False
        node = graph.producer.get(node.inputs[0])
    if node is None or node.op != "Clip":
        return node is not None and node.op in _NEVER_NEGATIVE
    low = graph.initializers.get(node.inputs[1]) if len(node.inputs) > 1 else None
    least = node.attributes.get("min") if low is None else numpy_helper.to_array(low).item()
    return least is not None and float(least) >= 0


def _is_read_once(tensor: str, graph: Graph) -> bool:
    edges = graph.edges_of(tensor)
    return len(edges) == 1 and not edges[0].is_graph_output


def _attribute_is(condition: AttributeIs) -> Check:
    def check(nodes: Nodes, _: Tensors, __: Graph) -> bool:
        node = nodes.get(condition.node)
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

    return check


def _consumers_are(condition: ConsumersAre) -> Check:
    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        count = sum(len(graph.edges_of(t)) for t in tensors.get(condition.tensor, ()))
        return _within(count, condition.at_least, condition.at_most)

    return check


def _values_are(condition: ValuesAre) -> Check:
    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        constants = _small_constants(condition.tensor, tensors, graph)
        values = [v for constant in constants or () for v in constant]
        limits = condition.at_least, condition.at_most
        return constants is not None and all(_within(v, *limits) for v in values)

    return check


def _pads_only(condition: PadsOnly) -> Check:
    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        constants = _small_constants(condition.tensor, tensors, graph)
        return constants is not None and not any(
            pad for pads in constants for pad in _pads_before(pads, condition.last)
        )

    return check


def _pads_before(pads: Sequence[float], last: int) -> Sequence[float]:
    """Of ``pads`` at the start of all axes, then at their end: those of all but the last axes."""
    rank = len(pads) // 2
    other = max(rank - last, 0)
    return [*pads[:other], *pads[rank : rank + other]]


def _small_constants(name: str, tensors: Tensors, graph: Graph) -> list[list[float]] | None:
    """The values of the tensors of a name; None if there is none or one is no small constant."""
    found = [graph.initializers.get(t) for t in tensors.get(name, ())]
    constants = [t for t in found if t is not None and math.prod(t.dims) <= MAX_VALUES]
    # A constant this small is never in another file, which only the model could read.
    if not found or len(constants) < len(found) or any(map(is_external, constants)):
        return None
    return [numpy_helper.to_array(t).ravel().tolist() for t in constants]


def _written_by(condition: WrittenBy) -> Check:
    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        writers = [graph.producer.get(tensor) for tensor in tensors.get(condition.tensor, ())]
        return bool(writers) and all(w is not None and w.op in condition.op for w in writers)

    return check


def _read_by(condition: ReadBy) -> Check:
    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        edges = [e for tensor in tensors.get(condition.tensor, ()) for e in graph.edges_of(tensor)]
        readers = [graph.by_name.get(edge.node) for edge in edges]
        return bool(readers) and all(r is not None and r.op in condition.op for r in readers)

    return check


def _read_before(condition: ReadBefore) -> Check:
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
    found: set[int] = set()
    waiting = [node]
    while waiting:
        for tensor in waiting.pop().inputs:
            writer = graph.producer.get(tensor)
            if writer is not None and writer.index >= first and writer.index not in found:
                found.add(writer.index)
                waiting.append(writer)
    return found


def _different(names: Sequence[str]) -> Check:
    def check(_: Nodes, tensors: Tensors, __: Graph) -> bool:
        found = [tensor for name in names for tensor in tensors.get(name, ())]
        return len(found) >= len(names) and len(set(found)) == len(found)

    return check


def _written_apart(names: Sequence[str]) -> Check:
    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        found = [tensor for name in names for tensor in tensors.get(name, ())]
        written = [set(written_with(tensor, graph)) for tensor in found]
        return len(found) >= len(names) and len(set[str]().union(*written)) == sum(
            map(len, written)
        )

    return check


def _within(value: float, at_least: float | None, at_most: float | None) -> bool:
    return (at_least is None or value >= at_least) and (at_most is None or value <= at_most)


def _rank_is(condition: RankIs) -> Check:
    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        shapes = list(_shapes(condition.tensor, tensors, graph))
        return bool(shapes) and all(s is not None and len(s) in condition.one_of for s in shapes)

    return check


def _dim_is(condition: DimIs) -> Check:
    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        shapes = list(_shapes(condition.tensor, tensors, graph))
        return bool(shapes) and all(_dim_within(condition, shape) for shape in shapes)

    return check


def _dim_within(condition: DimIs, shape: Shape) -> bool:
    if shape is None or not -len(shape) <= condition.axis < len(shape):
        return False
    dim = shape[condition.axis]
    if not _within(dim, condition.at_least, condition.at_most):
        return False
    return condition.multiple_of is None or dim % condition.multiple_of == 0


def _elements_are(condition: ElementsAre) -> Check:
    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        shapes = list(_shapes(condition.tensor, tensors, graph))
        return bool(shapes) and all(_elements_within(condition, shape) for shape in shapes)

    return check


def _elements_within(condition: ElementsAre, shape: Shape) -> bool:
    # A scalar has an element, though no axis to count from.
    if shape is None or condition.from_axis >= max(len(shape), 1):
        return False
    count = math.prod(shape[condition.from_axis :])
    return _within(count, condition.at_least, condition.at_most)


def _same_shape(names: Sequence[str]) -> Check:
    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        shapes = {shape for name in names for shape in _shapes(name, tensors, graph)}
        return len(shapes) == 1 and None not in shapes

    return check


def _shapes(name: str, tensors: Tensors, graph: Graph) -> Iterator[Shape]:
    return (graph.type_of(tensor).shape for tensor in tensors.get(name, ()))


def _depthwise(name: str) -> Check:
    def check(nodes: Nodes, _: Tensors, graph: Graph) -> bool:
        node = nodes.get(name)
        if node is None:
            return False
        groups: int = node.attributes.get("group", 1)
        shape = graph.type_of(node.inputs[0]).shape
        return groups > 1 and shape is not None and len(shape) > 1 and shape[1] == groups

    return check


def _keeps_order(name: str) -> Check:
    def check(nodes: Nodes, _: Tensors, graph: Graph) -> bool:
        node = nodes.get(name)
        if node is None or node.op != "Transpose":
            return False
        shape = graph.type_of(node.inputs[0]).shape
        if shape is None:
            return False
        axes = node.attributes.get("perm", list(reversed(range(len(shape)))))
        moved = [axis for axis in axes if shape[axis] != 1]
        return moved == sorted(moved)

    return check


def _leaves(tensor: str, graph: Graph) -> bool:
    waiting, seen = [tensor], {tensor}
    while waiting:
        own = waiting.pop()
        if own in graph.outputs:
            return True
        for reader in (graph.by_name[edge.node] for edge in graph.edges_of(own)):
            if reader.op in _MOVES and (reader.op == "Concat" or reader.inputs[0] == own):
                waiting += [output for output in reader.outputs if output not in seen]
                seen.update(reader.outputs)
    return False


def _is_square(tensor: str, graph: Graph) -> bool:
    shape = graph.type_of(tensor).shape
    return shape is not None and len(shape) > 1 and shape[-1] == shape[-2]


def _is_turned(tensor: str, graph: Graph) -> bool:
    node = graph.producer.get(tensor)
    shape = graph.type_of(tensor).shape
    if node is None or node.op != "Transpose" or shape is None or len(shape) < 2:
        return False
    axes = list(range(len(shape)))
    turned = [*axes[:-2], axes[-1], axes[-2]]
    return list(node.attributes.get("perm", axes[::-1])) == turned


def _over_last_axis(name: str) -> Check:
    def check(nodes: Nodes, _: Tensors, graph: Graph) -> bool:
        node = nodes.get(name)
        shape = None if node is None else graph.type_of(node.inputs[0]).shape
        if node is None or not shape:
            return False
        return [axis % len(shape) for axis in _axes(node, graph)] == [len(shape) - 1]

    return check


def _axes(node: Node, graph: Graph) -> list[int]:
    """The axes of a Softmax or Reduce operator; [] where none are given, as for all of them."""
    if node.op in ("Softmax", "LogSoftmax"):
        return [int(node.attributes.get("axis", -1))]
    given = graph.initializers.get(node.inputs[1]) if len(node.inputs) > 1 else None
    if given is not None and not is_external(given):
        return [int(axis) for axis in numpy_helper.to_array(given).ravel()]
    return [int(axis) for axis in node.attributes.get("axes", ())]


_MAKERS: Mapping[str, Callable[..., Check]] = {
    "never": _never,
    "any_of": _any_of,
    "is_initializer": _of_each(lambda tensor, graph: tensor in graph.initializers),
    "is_activation": _of_each(lambda tensor, graph: tensor not in graph.initializers),
    "is_graph_input": _of_each(lambda tensor, graph: tensor in graph.inputs),
    "is_graph_output": _of_each(lambda tensor, graph: tensor in graph.outputs),
    "scalar": _of_each(_is_scalar),
    "non_negative": _of_each(is_non_negative),
    "sole_consumer": _of_each(_is_read_once),
    "attribute": _attribute_is,
    "consumers": _consumers_are,
    "values": _values_are,
    "pads_only": _pads_only,
    "written_by": _written_by,
    "read_by": _read_by,
    "read_before": _read_before,
    "different": _different,
    "keeps_order": _keeps_order,
    "leaves": _of_each(_leaves),
    "square": _of_each(_is_square),
    "turned": _of_each(_is_turned),
    "over_last_axis": _over_last_axis,
    "sliced_apart": _of_each(is_sliced_apart),
    "one_piece": _of_each(is_one_piece),
    "channels_last": _of_each(is_channels_last),
    "written_apart": _written_apart,
    "rank": _rank_is,
    "dim": _dim_is,
    "elements": _elements_are,
    "same_shape": _same_shape,
    "depthwise": _depthwise,
}
