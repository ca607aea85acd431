"""Tensors in bodies of a flat graph as outputs of the graph, empty where a body did not run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from onnx import GraphProto, NodeProto, ValueInfoProto, helper, numpy_helper

from placer.graph.additions import Additions
from placer.graph.edit import replace_nodes
from placer.graph.flat import body_of, entered_bodies, states
from placer.graph.names import UnusedNames, tensor_names
from placer.graph.scan_loops import scans_to_loops
from placer.graph.scopes import Body, Scope, Scopes


class Wanted(NamedTuple):
    """``tensor``, of the type ``dtype``, as it is known at ``scope``."""

    tensor: str
    scope: Scope
    dtype: int


class Exposed(NamedTuple):
    """``outputs`` of a graph for what was wanted, and its ``scopes`` with those of added nodes."""

    outputs: list[str]
    scopes: Scopes


def expose(graph: GraphProto, scopes: Scopes, wanted: Sequence[Wanted]) -> Exposed:
    """Let the flat ``graph`` return ``wanted``, in that order.

    Both bodies of an If return the same number of values of the same types: the one that does not
    have a tensor returns one of shape (0,) in its place. What is in the body of a Loop or Scan is
    returned as the values of all its trips, flat and one after another; a Scan becomes a Loop.
    """
    return _Exposing(graph, scopes).run(wanted)


def expose_runs(graph: GraphProto, scopes: Scopes) -> tuple[dict[Scope, str], Scopes]:
    """Let the flat ``graph`` tell how often each body runs: an output each, of that many values.

    Returns them with the scopes of the graph; see ``expose``.
    """
    names = UnusedNames(tensor_names(graph))
    marker = names.unused("ran")
    graph.initializer.append(numpy_helper.from_array(np.ones(1, np.int64), marker))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(np.int64))
    every = list(_bodies(scopes.values()))
    outputs, known = expose(graph, scopes, [Wanted(marker, scope, kind) for scope in every])
    return dict(zip(every, outputs, strict=True)), known


class _Exposing:
    """One call of ``expose``."""

    def __init__(self, graph: GraphProto, scopes: Scopes) -> None:
        self._graph = graph
        self._added = Additions(graph, scans_to_loops(graph, scopes))
        self._owners = {node.name: node for node in graph.node if entered_bodies(node)}
        self._before: dict[str, list[NodeProto]] = defaultdict(list)
        self._behind: dict[str, list[NodeProto]] = defaultdict(list)

    def run(self, wanted: Sequence[Wanted]) -> Exposed:
        """See ``expose``."""
        outputs = [self._returned(*one) for one in wanted]
        for name, (_, _, dtype) in zip(outputs, wanted, strict=True):
            self._graph.output.append(helper.make_tensor_value_info(name, dtype, None))
        nodes: list[NodeProto] = []
        for node in self._graph.node:
            nodes += [*self._before[node.name], node, *self._behind[node.name]]
        replace_nodes(self._graph, nodes)
        return Exposed(outputs, self._added.scopes)

    def _returned(self, tensor: str, scope: Scope, dtype: int) -> str:
        name = tensor
        if any(body.repeats for body in scope):
            name = self._flat(tensor, scope)
        for depth in reversed(range(len(scope))):
            body, owner = scope[depth], self._owners[scope[depth].owner]
            new = self._added.tensor(f"{tensor}/observed")
            if not body.repeats:
                self._return_from_if(owner, body, name, new, dtype)
            else:
                self._return_from_loop(owner, scope[: depth + 1], name, new, dtype)
            name = new
        return name

    def _return_from_if(
        self, owner: NodeProto, body: Body, name: str, new: str, dtype: int
    ) -> None:
        for attribute in entered_bodies(owner):
            returned = name if attribute == body.attribute else self._empty(dtype)
            value = helper.make_tensor_value_info(returned, dtype, None)
            body_of(owner, attribute).output.append(value)
        owner.output.append(new)

    def _return_from_loop(
        self, owner: NodeProto, scope: Scope, name: str, new: str, dtype: int
    ) -> None:
        """Collect ``name``, whose length may differ from trip to trip, in a sequence."""
        start, state, after, end = (
            self._added.tensor(f"{name}/{part}") for part in ("start", "so_far", "with", "all")
        )
        graph = body_of(owner, "body")
        count = len(owner.input[states(owner)])
        while len(owner.output) < count:
            owner.output.append("")
        owner.input.append(start)
        graph.input.append(_sequence(state, dtype))
        _insert(graph, 1 + count, _sequence(after, dtype))
        owner.output.insert(count, end)
        outside = scope[:-1]
        self._before[owner.name] += [
            self._added.node(outside, "SequenceConstruct", [self._empty(dtype)], start),
            self._added.node(scope, "SequenceInsert", [state, name], after),
        ]
        joined = self._added.node(outside, "ConcatFromSequence", [end], new, {"axis": 0})
        self._behind[owner.name].append(joined)

    def _flat(self, tensor: str, scope: Scope) -> str:
        """``tensor`` in one dimension, made at ``scope``."""
        name = self._added.tensor(f"{tensor}/flat")
        self._before[scope[-1].owner].append(self._reshape(tensor, name, scope))
        return name

    def _reshape(self, tensor: str, name: str, scope: Scope) -> NodeProto:
        shape = self._added.constant(np.array([-1], np.int64))
        return self._added.node(scope, "Reshape", [tensor, shape], name)

    def _empty(self, dtype: int) -> str:
        return self._added.constant(np.empty(0, helper.tensor_dtype_to_np_dtype(dtype)))


def _sequence(name: str, dtype: int) -> ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, dtype, None)


def _insert(graph: GraphProto, position: int, value: ValueInfoProto) -> None:
    """Make ``value`` the output of ``graph`` at ``position``."""
    later = [ValueInfoProto.FromString(v.SerializeToString()) for v in graph.output[position:]]
    del graph.output[position:]
    graph.output.extend([value, *later])


def _bodies(scopes: Iterable[Scope]) -> dict[Scope, None]:
    """All scopes that hold one of ``scopes``, once each, in order."""
    return {scope[:depth]: None for scope in scopes for depth in range(1, len(scope) + 1)}
