"""Bind the nodes of one rule's pattern to those of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from placer.common.limits import Limits, variable
from placer.common.processor import UNKNOWN_PROCESSOR, Processor
from placer.errors import InputError
from placer.graph import Graph, Node
from placer.rules.match import Match, inside_subgraph, row_name
from placer.rules.pattern_step import Step, steps_of
from placer.rules.schema import Rule

_ORDERS = (False, True)  # Of the first two inputs: as they are, swapped.
Tensors = dict[str, tuple[str, ...]]
Ports = dict[tuple[str, str], tuple[int, ...]]


class _Bound(NamedTuple):
    """What of a pattern is bound so far; see ``Match``."""

    nodes: dict[str, Node]
    tensors: Tensors
    ports: Ports


class Binder:
    """Finds the matches of one rule in a graph, by the node that its first pattern node is.

    All methods raise InputError once the rule has been tried in more ways than the limits allow.
    """

    def __init__(self, graph: Graph, rule: Rule, processor: Processor = UNKNOWN_PROCESSOR) -> None:
        self._graph = graph
        self._rule = rule
        self._steps = steps_of(rule, processor)
        references = {r for layout in rule.layouts.values() for r in layout.quantize}
        self._ports: dict[tuple[object, ...], Ports] = {}
        self._tried, self._most = 0, Limits.from_environment().bindings
        self._quantized = [reference.partition(".")[::2] for reference in sorted(references)]

    def matches(self, node: Node) -> list[Match]:
        """All that begin at ``node``, those that leave out an optional node included."""
        complete: list[Match] = []
        self._bind(0, node, _Bound({}, {}, {}), complete)
        return complete

    def count(self, tried: int) -> None:
        """Count ``tried`` bindings more; InputError where that is more than the limits allow.

        Of a tensor that very many nodes read, each that a pattern names takes a factor.
        """
        self._tried += tried
        if self._tried > self._most:
            raise InputError(
                f"rule '{self._rule.id}' fits this model in too many ways: more than "
                f"{self._most:,} bindings of nodes were tried; narrow the rule's pattern, or set "
                f"{variable('bindings')} to a larger number"
            )

    def nodes(self) -> Sequence[Node]:
        """The nodes that a match may begin at, in node order."""
        return _nodes_of(self._graph, self._steps[0].ops)

    def _bind(self, depth: int, node: Node, bound: _Bound, matches: list[Match]) -> None:
        """Bind the step at ``depth`` to ``node``, once per input order, and go on from there."""
        self.count(1)
        step = self._steps[depth]
        if node in bound.nodes.values():
            return
        if len(node.inputs) > step.most:
            return
        for swapped in _ORDERS if step.commutative and len(node.inputs) > 1 else _ORDERS[:1]:
            tensors, ports = bound.tensors.copy(), bound.ports.copy()
            if not _bind_inputs(step, node.inputs, swapped, tensors, ports):
                continue
            if not _bind_outputs(step, node.outputs, tensors):
                continue
            nodes = {**bound.nodes, step.name: node}
            if self._holds(step, nodes, tensors):
                self._extend(depth + 1, _Bound(nodes, tensors, ports), matches)
            if len(set(node.inputs)) < len(node.inputs):
                return  # Both orders bind the same tensors.

    def _extend(self, depth: int, bound: _Bound, matches: list[Match]) -> None:
        """Bind the steps from ``depth`` on in all ways; a match is found where none is left."""
        nodes, tensors, ports = bound
        if depth == len(self._steps):
            if self._is_closed(nodes, tensors) and self._is_quantizable(nodes, tensors):
                # Nearly all matches of a rule have the same ports.
                shared = self._ports.setdefault(tuple(ports.items()), ports)
                matches.append(Match(self._rule, nodes, tensors, shared))
            return
        step = self._steps[depth]
        if step.repeat:
            self._extend_row(depth, bound, matches)
            return
        for node in self._neighbours(step, tensors):
            self._bind(depth, node, bound, matches)
        if step.optional:
            extended = tensors.copy()
            source = extended.setdefault(step.near[0], tensors.get(step.first, ()))
            if extended.setdefault(step.first, source) == source and self._holds(
                step, nodes, extended
            ):
                self._extend(depth + 1, _Bound(nodes, extended, ports), matches)

    def _extend_row(self, depth: int, bound: _Bound, matches: list[Match]) -> None:
        """Bind however many nodes in a row to the step at ``depth``, and go on from each."""
        step, row = self._steps[depth], list[Node]()
        current = bound.tensors[step.near[0]]
        while True:
            nodes = bound.nodes | {row_name(step.name, i): node for i, node in enumerate(row)}
            tensors = bound.tensors.copy()
            fits = bool(row) or step.optional
            fits = fits and tensors.setdefault(step.first, current) == current
            if fits and self._holds(step, nodes, tensors):
                self._extend(depth + 1, _Bound(nodes, tensors, bound.ports), matches)
            node = self._next_in_row(step, current, nodes)
            if node is None:
                return
            row.append(node)
            current = node.outputs

    def _next_in_row(
        self, step: Step, current: tuple[str, ...], bound: Mapping[str, Node]
    ) -> Node | None:
        edge = self._graph.sole_consumer(current[0]) if current else None
        if edge is None:
            return None
        node = self._graph.by_name[edge.node]
        fits = node.qualified_op in step.ops and len(node.outputs) == 1
        if not fits or node in bound.values() or (edge.input_index and not step.commutative):
            return None
        return node if len(self._graph.edges_of(node.outputs[0])) == 1 else None

    def _holds(self, step: Step, nodes: Mapping[str, Node], tensors: Tensors) -> bool:
        return not step.checks or all(check(nodes, tensors, self._graph) for check in step.checks)

    def _neighbours(self, step: Step, tensors: Tensors) -> Iterable[Node]:
        """Graph nodes that may be the pattern node, given the tensors bound so far."""
        graph = self._graph
        bound = [tensors[name][0] for name in step.near if len(tensors.get(name, ())) == 1]
        if bound:
            edges = min(map(graph.edges_of, bound), key=len)  # It reads all of them.
            names = dict.fromkeys([edge.node for edge in edges])
            names.pop("", None)  # The graph output.
            nodes = [graph.by_name[node] for node in names]
            return [node for node in nodes if node.qualified_op in step.ops]
        if step.first in tensors:
            producer = graph.producer.get(tensors[step.first][0])
            fits = producer is not None and producer.qualified_op in step.ops
            return [producer] if producer is not None and fits else []
        return _nodes_of(graph, step.ops)

    def _is_quantizable(self, nodes: Mapping[str, Node], tensors: Tensors) -> bool:
        """Whether every tensor that a layout quantizes is known to be of a type that can be."""
        graph = self._graph
        for owner, name in self._quantized:
            if name == "*":
                for tensor in tensors.get(owner, ()):
                    if tensor not in graph.quantizable and any(
                        not inside_subgraph(edge, graph) for edge in graph.edges_of(tensor)
                    ):
                        return False
            elif owner in nodes and not graph.quantizable.issuperset(tensors[name]):
                return False
        return True

    def _is_closed(self, nodes: Mapping[str, Node], tensors: Tensors) -> bool:
        """Whether tensors between matched nodes are read inside the match only, or behind it."""
        if len(nodes) == 1:
            return True  # No node reads what it writes.
        graph = self._graph
        read = Counter([e.tensor for node in nodes.values() for e in graph.edges_into(node)])
        shared = {tensor for name in self._rule.read_behind for tensor in tensors.get(name, ())}
        for node in nodes.values():
            for tensor in node.outputs:
                if tensor not in read or read[tensor] == len(graph.edges_of(tensor)):
                    continue
                if tensor not in shared or not self._is_read_later(tensor, nodes):
                    return False
        return True

    def _is_read_later(self, tensor: str, nodes: Mapping[str, Node]) -> bool:
        """Whether all that reads ``tensor`` and is not matched comes behind what is."""
        last = max(node.index for node in nodes.values())
        matched = {node.name for node in nodes.values()}
        readers = {e.node for e in self._graph.edges_of(tensor)} - matched - {""}
        return all(self._graph.by_name[name].index > last for name in readers)


def may_match(graph: Graph, rule: Rule) -> bool:
    """Whether ``graph`` has an operator for every node that the pattern cannot do without."""
    required = [node.op for node in rule.pattern.values() if not node.optional]
    return all(not graph.by_op.keys().isdisjoint(ops) for ops in required)


def _nodes_of(graph: Graph, ops: Sequence[str]) -> Sequence[Node]:
    if len(ops) == 1:
        return graph.by_op.get(ops[0], ())
    nodes = [node for op in ops for node in graph.by_op.get(op, ())]
    return sorted(nodes, key=lambda node: node.index)


def _bind_inputs(
    step: Step, inputs: tuple[str, ...], swapped: bool, tensors: Tensors, ports: Ports
) -> bool:
    if swapped:
        inputs = (inputs[1], inputs[0], *inputs[2:])
    position, count = 0, len(inputs)
    for entry in step.inputs:
        if entry.variadic:
            present = [i for i in range(position, count) if inputs[i]]
            position = count
        elif position < count:
            present = [position] if inputs[position] else []
            position += 1
        else:
            present = []
        if not present and entry.required:
            return False
        if entry.name is None:
            continue
        bound = (inputs[present[0]],) if len(present) == 1 else tuple([inputs[i] for i in present])
        if tensors.setdefault(entry.name, bound) != bound:
            return False
        ports[entry.port] = tuple([1 - i if i < 2 else i for i in present] if swapped else present)
    return position == count


def _bind_outputs(step: Step, outputs: tuple[str, ...], tensors: Tensors) -> bool:
    """Bind the outputs; outputs beyond those that the pattern names are not looked at."""
    for position, (name, variadic) in enumerate(step.outputs):
        taken = outputs[position:] if variadic else outputs[position : position + 1]
        if not taken and not variadic:
            return False
        if name is not None:
            bound = tuple([tensor for tensor in taken if tensor])
            if tensors.setdefault(name, bound) != bound:
                return False
    return True
