"""Tensors in the branches of a flat graph as outputs of the graph, empty where no branch ran."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from onnx import GraphProto, helper, numpy_helper

from placer.graph.branches import body_of
from placer.graph.names import UnusedNames, tensor_names
from placer.graph.scopes import Scope, Scopes


class Wanted(NamedTuple):
    """``tensor``, of the type ``dtype``, as it is known at ``scope``."""

    tensor: str
    scope: Scope
    dtype: int


def expose(graph: GraphProto, wanted: Sequence[Wanted]) -> list[str]:
    """Let the flat ``graph`` return ``wanted``; the names of its new outputs, in that order.

    Both bodies of an If return the same number of values of the same types: the one that does not
    have a tensor returns one of shape (0,) in its place.
    """
    names = UnusedNames(tensor_names(graph))
    owners = {node.name: node for node in graph.node if node.op_type == "If"}
    empty: dict[int, str] = {}
    found = []
    for tensor, scope, dtype in wanted:
        if dtype not in empty:
            empty[dtype] = names.unused(f"empty/{dtype}")
            values = np.empty(0, helper.tensor_dtype_to_np_dtype(dtype))
            graph.initializer.append(numpy_helper.from_array(values, empty[dtype]))
        name = tensor
        for branch in reversed(scope):
            owner = owners[branch.owner]
            for attribute in ("then_branch", "else_branch"):
                returned = name if attribute == branch.attribute else empty[dtype]
                value = helper.make_tensor_value_info(returned, dtype, None)
                body_of(owner, attribute).output.append(value)
            name = names.unused(f"{tensor}/observed")
            owner.output.append(name)
        graph.output.append(helper.make_tensor_value_info(name, dtype, None))
        found.append(name)
    return found


def expose_courses(graph: GraphProto, scopes: Scopes) -> dict[Scope, str]:
    """Let the flat ``graph`` tell which branches run: one output each, empty if not."""
    names = UnusedNames(tensor_names(graph))
    marker = names.unused("ran")
    graph.initializer.append(numpy_helper.from_array(np.ones(1, np.int64), marker))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(np.int64))
    every = list(_branches(scopes.values()))
    outputs = expose(graph, [Wanted(marker, scope, kind) for scope in every])
    return dict(zip(every, outputs, strict=True))


def _branches(scopes: Iterable[Scope]) -> dict[Scope, None]:
    """All scopes that hold one of ``scopes``, once each, in order."""
    return {scope[:depth]: None for scope in scopes for depth in range(1, len(scope) + 1)}
