"""Outputs whose rows the data choose, such as the boxes that a detector's NonMaxSuppression keeps.

The smallest change of a score adds, drops or swaps rows of such an output, so two of them cannot be
compared by position. What the rows are chosen from can be: it has the same shape for all inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from placer.graph.dependence import OF_SHAPES, data_tensors
from placer.graph.index import Graph, Node
from placer.graph.weights import WEIGHTED_OPS

# Their outputs have the rows, the order or the number of rows that values decide (ONNX opset 24).
_CHOOSING = frozenset({"NonMaxSuppression", "NonZero", "TopK", "Unique", "Compress"})
# What moves values and changes none: the tensor before says the same.
MOVING = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})

# Of chosen indices they make values, at the positions that they are for.
_TO_VALUES = frozenset({"OneHot", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})


@dataclass(frozen=True)
class ChosenRows:
    """``outputs`` of a model that ``operators`` choose, and the float tensors they choose from.

    ``sources`` are empty where layers with weights work on what was chosen, as the second stage of
    a two-stage detector does: what the rows are chosen from says nothing of those layers.
    """

    outputs: tuple[str, ...]
    operators: tuple[str, ...]
    sources: tuple[str, ...]


def chosen_rows(graph: Graph) -> ChosenRows | None:
    """What ``graph`` chooses by value on the way to its outputs, None if nothing."""
    data = data_tensors(graph)
    choosing = [n for n in graph.nodes if _chooses(n, data) and n.name not in graph.scopes]
    behind = _behind(graph, choosing)
    placed = _placed(graph, choosing, data)
    outputs = tuple(name for name in graph.outputs if name in behind and name in placed)
    leading = _leading(graph, outputs)
    chosen = [n for n in graph.nodes if n.name in leading and not behind.isdisjoint(n.outputs)]
    operators = dict.fromkeys(node.op for node in choosing if node.name in leading)
    if not outputs:
        return None
    if any(_has_layer(node, data) for node in chosen if node not in choosing):
        return ChosenRows(outputs, tuple(operators), ())
    read = (name for node in chosen for name in node.inputs if name not in behind)
    sources = dict.fromkeys(floats_before(graph, read))
    if any(graph.producer[name].name in graph.scopes for name in sources):
        return ChosenRows(outputs, tuple(operators), ())
    return ChosenRows(outputs, tuple(operators), tuple(sources))


def _chooses(node: Node, data: frozenset[str]) -> bool:
    is_standard = node.domain in ("", "ai.onnx")
    return is_standard and node.op in _CHOOSING and not data.isdisjoint(node.inputs)


def _has_layer(node: Node, data: frozenset[str]) -> bool:
    return node.op in WEIGHTED_OPS and not data.isdisjoint(node.inputs)


def _behind(graph: Graph, choosing: Sequence[Node]) -> frozenset[str]:
    """Tensors that hold values, not just shapes, of what ``choosing`` chose."""
    names = {node.name for node in choosing}
    found: set[str] = set()
    for node in graph.nodes:
        reads = {edge.tensor for edge in graph.reads[node.name]}
        if node.name in names or (node.op not in OF_SHAPES and not found.isdisjoint(reads)):
            found.update(name for name in node.outputs if name)
    return frozenset(found)


def _placed(graph: Graph, choosing: Sequence[Node], data: frozenset[str]) -> frozenset[str]:
    """Tensors in which the position of a value is chosen, not only what the value is.

    A router that sends tokens to experts chooses what is computed of a token, and the token stays
    where it is: another choice is an error of the output. Chosen indices say where what they gather
    goes; scattered by them it is where it was. The values that TopK finds are sorted, so a small
    change of its input changes them little.
    """
    names = {node.name for node in choosing}
    indices, placed = set[str](), set[str]()
    for node in graph.nodes:
        reads = {edge.tensor for edge in graph.reads[node.name]}
        written = {name for name in node.outputs if name}
        looked_up = set(node.inputs[1:2])
        if node.op in OF_SHAPES:
            continue
        if node.op.startswith("Scatter") and not looked_up.isdisjoint(indices | placed):
            if node.inputs[0] in placed:
                placed |= written
        elif not reads.isdisjoint(placed):
            placed |= written
        elif node.name in names:
            indices |= written if node.op != "TopK" else set(node.outputs[1:])
        elif node.op.startswith("Gather") and not looked_up.isdisjoint(indices):
            placed |= written if node.inputs[0] in data else set()
        elif not reads.isdisjoint(indices) and node.op not in _TO_VALUES:
            indices |= written
    return frozenset(indices | placed)


def _leading(graph: Graph, outputs: Iterable[str]) -> frozenset[str]:
    """Nodes that ``outputs`` depend on."""
    pending, found = list(outputs), set[str]()
    while pending:
        node = graph.producer.get(pending.pop())
        if node is not None and node.name not in found:
            found.add(node.name)
            pending.extend(edge.tensor for edge in graph.reads[node.name])
    return frozenset(found)


def floats_before(
    graph: Graph, tensors: Iterable[str], through: frozenset[str] = MOVING
) -> list[str]:
    """The last float tensors computed from the inputs on the way to ``tensors``.

    ``through``: operators before which the values are as good as behind them.
    """
    data = data_tensors(graph)
    pending, seen, found = list(tensors)[::-1], set[str](), list[str]()
    while pending:
        tensor = pending.pop()
        node = graph.producer.get(tensor)
        if tensor in seen or tensor not in data or node is None:
            continue
        seen.add(tensor)
        if graph.type_of(tensor).is_float and node.op not in through:
            found.append(tensor)
        else:  # A comparison, an index of the largest value, or the same values elsewhere.
            pending.extend(edge.tensor for edge in reversed(graph.reads[node.name]))
    return found
