"""Find the matches of rules in a graph and resolve their overlaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from placer.graph import Graph, Node
from placer.rules.match import Match
from placer.rules.predicates import holds
from placer.rules.schema import NodePattern, Rule, plain


@dataclass(frozen=True, eq=False)
class Overlap:
    """A match that gave way to another one of the same node, and why."""

    lost: Match
    won: Match
    because: str


def match_rules(graph: Graph, rules: Iterable[Rule]) -> tuple[Match, ...]:
    """Return the matches that remain after overlaps, in order of their anchors.

    Each node belongs to at most one match: higher priority first, then more nodes, then the
    later anchor (an engine fuses a residual Add into the convolution that runs last).
    """
    return match_rules_with_overlaps(graph, rules)[0]


def match_rules_with_overlaps(
    graph: Graph, rules: Iterable[Rule]
) -> tuple[tuple[Match, ...], tuple[Overlap, ...]]:
    """As ``match_rules``, and what was dropped."""
    found = [match for rule in rules for match in find_matches(graph, rule)]
    found.sort(key=lambda m: (-m.rule.priority, -len(m.nodes), -m.anchor.index, m.rule.id))
    taken: dict[str, Match] = {}
    kept, dropped = [], []
    for match in found:
        won = next((taken[n.name] for n in match.nodes.values() if n.name in taken), None)
        if won is None:
            taken.update({node.name: match for node in match.nodes.values()})
            kept.append(match)
        else:
            dropped.append(Overlap(match, won, _because(match, won)))
    return tuple(sorted(kept, key=lambda m: m.anchor.index)), tuple(dropped)


def _because(lost: Match, won: Match) -> str:
    if won.rule.priority != lost.rule.priority:
        return f"priority {won.rule.priority} against {lost.rule.priority}"
    if len(won.nodes) != len(lost.nodes):
        return f"{len(won.nodes)} nodes against {len(lost.nodes)}"
    return "its first node comes later" if won.anchor.index > lost.anchor.index else "found first"


def find_matches(graph: Graph, rule: Rule, smaller: bool = False) -> Iterator[Match]:
    """Yield every match of ``rule`` in order of its anchor, overlaps included.

    ``smaller``: also matches that leave out an optional node that is there.
    Time is linear in the number of nodes for patterns whose inner tensors have few consumers.
    """
    names = list(rule.pattern)
    start = Match(rule, {}, {}, {})
    quantized = {r for layout in rule.layouts.values() for r in layout.quantize}
    for node in _nodes_of(graph, rule.pattern[names[0]]):
        complete = [
            match
            for first in _unify(start, names[0], node)
            for match in _extend(graph, first, names[1:])
            if _is_admissible(match, graph, quantized)
        ]
        yield from complete if smaller else _largest(complete)


def _largest(matches: list[Match]) -> list[Match]:
    """Drop matches that leave out an optional node which another one of the same nodes has."""
    if len(matches) < 2:
        return matches
    bound = [frozenset(node.name for node in match.nodes.values()) for match in matches]
    return [m for m, nodes in zip(matches, bound, strict=True) if not any(nodes < o for o in bound)]


def _nodes_of(graph: Graph, pattern: NodePattern) -> list[Node]:
    found = [node for op in pattern.op for node in graph.by_op.get(op, ())]
    return found if len(pattern.op) == 1 else sorted(found, key=lambda node: node.index)


def _extend(graph: Graph, match: Match, remaining: list[str]) -> Iterator[Match]:
    if not remaining:
        yield match
        return
    name, rest = remaining[0], remaining[1:]
    pattern = match.rule.pattern[name]
    for node in _neighbours(graph, match, pattern):
        for bound in _unify(match, name, node):
            yield from _extend(graph, bound, rest)
    if pattern.optional:
        source = match.tensors[plain(pattern.inputs[0])]
        tensors = dict(match.tensors)
        if _bind(tensors, plain(pattern.output[0]), source):
            yield from _extend(graph, Match(match.rule, match.nodes, tensors, match.ports), rest)


def _neighbours(graph: Graph, match: Match, pattern: NodePattern) -> list[Node]:
    """Graph nodes that may be the pattern node, given the tensors bound so far."""
    for name in map(plain, pattern.inputs):
        if len(match.tensors.get(name, ())) == 1:
            edges = graph.edges_of(match.tensors[name][0])
            nodes = {e.node: graph.by_name[e.node] for e in edges if not e.is_graph_output}
            return [node for node in nodes.values() if node.op in pattern.op]
    written = plain(pattern.output[0])
    if written in match.tensors:
        producer = graph.producer.get(match.tensors[written][0])
        return [producer] if producer is not None and producer.op in pattern.op else []
    return _nodes_of(graph, pattern)


def _unify(match: Match, name: str, node: Node) -> Iterator[Match]:
    """Yield ``match`` with pattern node ``name`` bound to ``node``, once per input order."""
    pattern = match.rule.pattern[name]
    if node.domain not in ("", "ai.onnx") or any(n is node for n in match.nodes.values()):
        return
    orders = [tuple(range(len(node.inputs)))]
    if pattern.commutative and len(node.inputs) >= 2:
        orders.append((1, 0, *orders[0][2:]))
    for order in orders:
        tensors, ports = dict(match.tensors), dict(match.ports)
        if _bind_inputs(pattern, name, node, order, tensors, ports) and _bind_outputs(
            pattern, node, tensors
        ):
            yield Match(match.rule, {**match.nodes, name: node}, tensors, ports)
            if len(set(node.inputs)) < len(node.inputs):
                return  # Both orders bind the same tensors.


def _bind_inputs(
    pattern: NodePattern,
    name: str,
    node: Node,
    order: tuple[int, ...],
    tensors: dict[str, tuple[str, ...]],
    ports: dict[tuple[str, str], tuple[int, ...]],
) -> bool:
    position = 0
    for written in pattern.inputs:
        taken = order[position:] if written.endswith("*") else order[position : position + 1]
        position += len(taken)
        present = tuple(i for i in taken if node.inputs[i])
        if not present and not written.endswith(("?", "*")):
            return False
        tensor = plain(written)
        if tensor == "_":
            continue
        if not _bind(tensors, tensor, tuple(node.inputs[i] for i in present)):
            return False
        ports[name, tensor] = present
    return position == len(order)


def _bind_outputs(pattern: NodePattern, node: Node, tensors: dict[str, tuple[str, ...]]) -> bool:
    """Bind the outputs; outputs beyond those that the pattern names are not looked at."""
    for position, written in enumerate(pattern.output):
        taken = node.outputs[position:] if written.endswith("*") else node.outputs[position:][:1]
        if not taken:
            return False
        if written != "_" and not _bind(tensors, plain(written), tuple(t for t in taken if t)):
            return False
    return True


def _bind(tensors: dict[str, tuple[str, ...]], name: str, bound: tuple[str, ...]) -> bool:
    return tensors.setdefault(name, bound) == bound


def _is_admissible(match: Match, graph: Graph, quantized: Set[str]) -> bool:
    """``quantized``: references to the edges that layouts quantize."""
    return (
        _is_closed(match, graph)
        and all(holds(predicate, match, graph) for predicate in match.rule.where)
        and _is_quantizable(match, graph, quantized)
    )


def _is_quantizable(match: Match, graph: Graph, references: Set[str]) -> bool:
    """Whether every tensor that ``references`` name is known to be of a type that can be."""
    edges = (edge for reference in references for edge in match.edges(reference, graph))
    return all(graph.type_of(edge.tensor).is_quantizable for edge in edges)


def _is_closed(match: Match, graph: Graph) -> bool:
    """Whether tensors between matched nodes are read inside the match only."""
    if len(match.nodes) == 1:
        return True  # No node reads what it writes.
    inside = {node.name for node in match.nodes.values()}
    written = (t for node in match.nodes.values() for t in node.outputs)
    for tensor in written:
        readers = [edge.node for edge in graph.edges_of(tensor)]
        if any(r in inside for r in readers) and not all(r in inside for r in readers):
            return False
    return True
