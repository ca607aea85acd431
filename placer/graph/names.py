"""Names that a graph does not have yet."""

from __future__ import annotations

from onnx import GraphProto

from placer.graph.edit import subgraphs


class UnusedNames:
    """Hands out names that are not taken."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken

    def unused(self, base: str) -> str:
        """``base``, or ``base_1`` and so on where that is taken; taken from now on."""
        name, number = base, 0
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


def unused_prefix(graph: GraphProto, base: str) -> str:
    """``base``, with dots behind until no name of a tensor in ``graph`` begins with it."""
    names, prefix = tensor_names(graph), base
    while any(name.startswith(prefix) for name in names):
        prefix += "."
    return prefix


def tensor_names(graph: GraphProto) -> set[str]:
    """Names of tensors in ``graph`` and its subgraphs, where ONNX forbids another meaning."""
    names = {value.name for value in (*graph.input, *graph.output)}
    names.update(tensor.name for tensor in graph.initializer)
    names.update(tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        names.update((*node.input, *node.output))
        for inner in subgraphs(node):
            names |= tensor_names(inner)
    return names
