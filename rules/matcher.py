"""Find the matches of rules in a graph and resolve their overlaps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from placer.common.processor import UNKNOWN_PROCESSOR, Processor
from placer.graph import Graph
from placer.rules.bind import Binder, may_match
from placer.rules.match import Match
from placer.rules.schema import Rule


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
    return match_rules_with_overlaps(Matches(graph), rules)[0]


def match_rules_with_overlaps(
    matches: Matches, rules: Iterable[Rule], counts: Callable[[Match], bool] = lambda _: True
) -> tuple[tuple[Match, ...], tuple[Overlap, ...]]:
    """As ``match_rules``, and what was dropped; matches that do not count take no node."""
    candidates = [match for rule in rules for match in matches.of(rule) if counts(match)]
    candidates.sort(key=lambda m: (-m.rule.priority, -len(m.nodes), -m.anchor.index, m.rule.id))
    taken: dict[str, Match] = {}
    kept, dropped = [], []
    for match in candidates:
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


class Matches:
    """The matches of rules in one graph; those of a rule are found once, by whoever asks first.

    ``processor``: what the conditions of rules hold on, see ``Target``.
    """

    def __init__(self, graph: Graph, processor: Processor = UNKNOWN_PROCESSOR) -> None:
        self.graph = graph
        self.processor = processor
        self._known: dict[int, tuple[Rule, tuple[Match, ...], tuple[Match, ...]]] = {}

    def of(self, rule: Rule, smaller: bool = False) -> tuple[Match, ...]:
        """See ``find_matches``; ``smaller``: also those without an optional node that is there."""
        if id(rule) not in self._known:
            self._known[id(rule)] = rule, *self._found(rule)
        _, every, largest = self._known[id(rule)]
        return every if smaller else largest

    def _found(self, rule: Rule) -> tuple[tuple[Match, ...], tuple[Match, ...]]:
        """Every match, and those that leave out no optional node that is there."""
        if not may_match(self.graph, rule):
            return (), ()
        binder = Binder(self.graph, rule, self.processor)
        complete = [binder.matches(node) for node in binder.nodes()]
        largest = tuple([match for group in complete for match in _largest(group, binder)])
        every = tuple([match for group in complete for match in group])
        return every if len(every) > len(largest) else largest, largest


def find_matches(graph: Graph, rule: Rule) -> tuple[Match, ...]:
    """Every match of ``rule`` in order of its anchor, overlaps included.

    Time is linear in the number of nodes for patterns whose inner tensors have few consumers.
    """
    return Matches(graph).of(rule)


def _largest(matches: list[Match], binder: Binder) -> list[Match]:
    """Drop matches that leave out an optional node which another one of the same nodes has."""
    if len({len(match.nodes) for match in matches}) < 2:
        return matches
    # A hundred comparisons take about as long as a binding.
    binder.count(len(matches) ** 2 // 100)
    bound = [frozenset(node.name for node in match.nodes.values()) for match in matches]
    return [m for m, nodes in zip(matches, bound, strict=True) if not any(nodes < o for o in bound)]
