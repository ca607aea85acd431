"""The changes that would save most of a quantized file's time, each with its cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from placer.common.listed import in_quotes
from placer.prediction.explanation.conversion_text import change_text
from placer.prediction.explanation.decision_tree import (
    LayoutBranch,
    RuleBranch,
    decision_tree,
)
from placer.prediction.explanation.explain import Explanation
from placer.prediction.explanation.remedies import Remedy

MOST = 3
_LEAST_SHARE = 0.01  # Of the engine's time, for a change to be one of the first.


@dataclass(frozen=True)
class _Candidate:
    cause: str
    remedy: Remedy

    @property
    def tensors(self) -> frozenset[str]:
        """Whose pairs the change is about: what gains or loses one, else what gets other scales."""
        change = self.remedy.change
        changed = {*change.added, *change.removed, *change.reformatted}
        groups = change.gone | change.come
        edges = changed or {edge for group in groups for edge in group.edges}
        return frozenset(edge.tensor for edge in edges)


def first_changes(explanation: Explanation) -> tuple[str, ...]:
    """At most ``MOST`` sentences, the change that saves most first, by estimates.

    They are the pack's defaults at sites that the file decides otherwise, and remedies of layers
    that only convert tensors. Of several that are about one tensor only the first is told.
    """
    told, changed = list[str](), set[str]()
    least = _LEAST_SHARE * explanation.total_us
    for one in sorted(_candidates(explanation), key=lambda one: -one.remedy.saves_us):
        if len(told) == MOST or one.remedy.saves_us < least:
            break
        if changed.isdisjoint(one.tensors):
            changed |= one.tensors
            change = change_text(one.remedy.change, explanation.pairs)
            share = one.remedy.saves_us / explanation.total_us
            saved = f"{one.remedy.saves_us:.1f} us ({share:.0%})"
            told.append(f"{one.cause}; {change}; saves est. {saved}")
    return tuple(told)


def _candidates(explanation: Explanation) -> Iterator[_Candidate]:
    """Changes back to defaults before remedies, which save as much where they are the same."""
    for rule in decision_tree(explanation):
        for layout in rule.layouts:
            if layout.gain is not None:
                yield _Candidate(_decided(rule, layout), layout.gain)
    for one in explanation.conversions:
        # A pair on an output rounds what the model returns, which nobody asked for.
        if one.remedy and not any(edge.is_graph_output for edge in one.remedy.change.added):
            yield _Candidate(f"{one.name}: {one.because}", one.remedy)


def _decided(rule: RuleBranch, layout: LayoutBranch) -> str:
    sites = in_quotes([cost.decision.site.match.anchor.name for cost in layout.costs])
    default = layout.costs[0].decision.default
    return f"{sites}: {layout.layout}, where rule {rule.rule.id} has {default} by default"
