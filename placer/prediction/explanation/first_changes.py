"""The changes that would save most of a quantized file's time, each with its cause."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from placer.common.listed import MOST as MOST_NAMES
from placer.common.listed import in_quotes
from placer.prediction.explanation.conversion_text import Pairs, change_in_numbers, change_text
from placer.prediction.explanation.decision_tree import (
    LayoutBranch,
    RuleBranch,
    decision_tree,
)
from placer.prediction.explanation.explain import Explanation
from placer.prediction.explanation.remedies import Remedy

MOST = 3
_MOST_NAMED = 2  # Edges of a change that are named unless all are shown.
_LEAST_SHARE = 0.01  # Of the engine's time, for a change to be one of the first.


@dataclass(frozen=True)
class FirstChange:
    """A change that saves much, and what costs that time now.

    ``nodes``: the sites that are decided so; none where it is about one layer that only converts.
    ``because``: what costs time. ``pairs``: the nodes of the file's own pairs. ``share``: what the
    change saves of the engine's time.
    """

    nodes: tuple[str, ...]
    because: str
    remedy: Remedy
    pairs: Pairs
    share: float

    def cause(self, most: int = sys.maxsize) -> str:
        """What costs time, with the ``most`` first nodes."""
        return f"{in_quotes(self.nodes, most)}: {self.because}" if self.nodes else self.because

    def text(self, *, show_all: bool) -> str:
        """A sentence; without ``show_all`` it has but the number of pairs where they are many."""
        change = self.remedy.change
        edges = (*change.added, *change.reformatted, *change.removed)
        if show_all or len(edges) <= _MOST_NAMED:
            what = change_text(change, self.pairs, sys.maxsize)
        else:
            what = f"{change_in_numbers(change, self.pairs)} (show them with --all)"
        cause = self.cause(sys.maxsize if show_all else MOST_NAMES)
        return f"{cause}; {what}; saves est. {self.remedy.saves_us:.1f} us ({self.share:.0%})"

    @property
    def tensors(self) -> frozenset[str]:
        """Whose pairs the change is about: what gains or loses one, else what gets other scales."""
        change = self.remedy.change
        changed = {*change.added, *change.removed, *change.reformatted}
        groups = change.gone | change.come
        edges = changed or {edge for group in groups for edge in group.edges}
        return frozenset(edge.tensor for edge in edges)


def first_changes(explanation: Explanation) -> tuple[FirstChange, ...]:
    """At most ``MOST``, the change that saves most first, by estimates.

    They are the pack's defaults at sites that the file decides otherwise, and remedies of layers
    that only convert tensors. Of several that are about one tensor only the first is told.
    """
    told, changed = list[FirstChange](), set[str]()
    for one in sorted(_candidates(explanation), key=lambda one: -one.remedy.saves_us):
        if len(told) == MOST or one.share < _LEAST_SHARE:
            break
        if changed.isdisjoint(one.tensors):
            changed |= one.tensors
            told.append(one)
    return tuple(told)


def _candidates(explanation: Explanation) -> Iterator[FirstChange]:
    """Changes back to defaults before remedies, which save as much where they are the same."""
    pairs, total = explanation.pairs, explanation.total_us
    for rule in decision_tree(explanation):
        for layout in rule.layouts:
            if layout.gain is not None:
                nodes = tuple(cost.decision.site.match.anchor.name for cost in layout.costs)
                share, because = layout.gain.saves_us / total, _decided(rule, layout)
                yield FirstChange(nodes, because, layout.gain, pairs, share)
    for one in explanation.conversions:
        # A pair on an output rounds what the model returns, which nobody asked for.
        if one.remedy and not any(edge.is_graph_output for edge in one.remedy.change.added):
            share, because = one.remedy.saves_us / total, f"{one.name}: {one.because}"
            yield FirstChange((), because, one.remedy, pairs, share)


def _decided(rule: RuleBranch, layout: LayoutBranch) -> str:
    default = layout.costs[0].decision.default
    return f"{layout.layout}, where rule {rule.rule.id} has {default} by default"
