"""Nodes that a user names: by name, operator, output, or the tensors around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from placer.common.names import near, unknown
from placer.errors import InputError
from placer.graph.index import Graph, captured_tensors


def selected_nodes(graph: Graph, patterns: Sequence[str], option: str) -> frozenset[str]:
    """Names of the nodes that any of ``patterns`` selects.

    A pattern is the name of a node; a glob of names, such as ``/head/*``; ``op:Softmax``, an
    operator; ``output:boxes``, what this graph output needs and no other; or ``between:a->b``, the
    nodes on all paths from tensor ``a`` to tensor ``b``. ``option``: whose patterns these are, for
    messages. Raises InputError for a pattern that selects nothing.
    """
    selections = (_selected(graph, pattern, option) for pattern in patterns)
    return frozenset[str]().union(*selections)


def selected_where_any(graph: Graph, patterns: Sequence[str]) -> frozenset[str]:
    """As ``selected_nodes``, for patterns that are not for this model alone: none is no error."""
    selected: set[str] = set()
    for pattern in patterns:
        try:
            selected |= _selected(graph, pattern, "exclude")
        except InputError:  # This model of the family has no such node.
            continue
    return frozenset(selected)


def _selected(graph: Graph, pattern: str, option: str) -> frozenset[str]:
    if pattern in graph.by_name:
        return frozenset({pattern})
    kind, colon, value = pattern.partition(":")
    select = _SELECTORS.get(kind) if colon else None
    selected = _by_name(graph, pattern) if select is None else select(graph, value)
    if not selected:
        hint = near(pattern, graph.by_name) if select is None else ""
        hint = hint or "; placer explain MODEL --all lists the nodes"
        raise InputError(f"`{option}` '{pattern}' selects no node of the model{hint}")
    return selected


def _by_name(graph: Graph, pattern: str) -> frozenset[str]:
    return frozenset(name for name in graph.by_name if fnmatchcase(name, pattern))


def _by_op(graph: Graph, pattern: str) -> frozenset[str]:
    names = frozenset(node.name for node in graph.nodes if fnmatchcase(node.op, pattern))
    if not names:
        raise InputError(unknown("operator", pattern, sorted({node.op for node in graph.nodes})))
    return names


def _by_output(graph: Graph, output: str) -> frozenset[str]:
    if output not in graph.outputs:
        raise InputError(unknown("output", output, graph.outputs))
    others = _before(graph, [name for name in graph.outputs if name != output])
    return _before(graph, [output]) - others


def _between(graph: Graph, text: str) -> frozenset[str]:
    first, arrow, last = text.partition("->")
    if not arrow:
        raise InputError(f"'between:{text}' names one tensor; write between:FIRST->LAST")
    for tensor in (first, last):
        if tensor not in graph.producer and not graph.edges_of(tensor):
            tensors = (*graph.inputs, *graph.producer)
            raise InputError(f"the model has no tensor '{tensor}'{near(tensor, tensors)}")
    return _before(graph, [last]) & _behind(graph, first)


_SELECTORS: Mapping[str, Callable[[Graph, str], frozenset[str]]] = {
    "op": _by_op,
    "output": _by_output,
    "between": _between,
}


def _before(graph: Graph, tensors: Iterable[str]) -> frozenset[str]:
    """Nodes that ``tensors`` follow from."""
    needed, names = set(tensors), set()
    for node in reversed(graph.nodes):  # They are sorted topologically.
        if not needed.isdisjoint(node.outputs):
            names.add(node.name)
            needed.update(filter(None, (*node.inputs, *captured_tensors(node.proto))))
    return frozenset(names)


def _behind(graph: Graph, tensor: str) -> frozenset[str]:
    """Nodes that follow from ``tensor``."""
    made, names = {tensor}, set()
    for node in graph.nodes:
        if not made.isdisjoint((*node.inputs, *captured_tensors(node.proto))):
            names.add(node.name)
            made.update(filter(None, node.outputs))
    return frozenset(names)
