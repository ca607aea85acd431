"""What was decided as a tree: rules, the layouts chosen for them and the sites, costliest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from placer.graph import Edge
from placer.graph.weights import WEIGHTED_OPS
from placer.plan import Plan
from placer.plan.dtypes import is_quantized
from placer.prediction.explanation.conversion_text import (
    Pairs,
    change_text,
    edges_text,
    removed_text,
)
from placer.prediction.explanation.default_gains import Decision
from placer.prediction.explanation.explain import DecisionCost, Explanation, decision_costs
from placer.prediction.explanation.remedies import Remedy
from placer.rules.schema import Rule

_BY_TIMES = "by default: integers here are not expected to save more than their conversions cost"


@dataclass(frozen=True)
class LayoutBranch:
    """What was decided alike at some sites of a rule.

    ``gain``: the pack's default there, where it saves time by an estimate.
    ``pairs``: the nodes of the file's own pairs. ``in_float``: the layout quantizes what the site's
    layers, as predicted, compute in float all the same. ``splits``: pairs inside the layout that
    part its layers; the others inside it only round.
    """

    costs: tuple[DecisionCost, ...]
    gain: Remedy | None
    pairs: Pairs
    in_float: bool
    splits: Sequence[Edge]

    @property
    def layout(self) -> str:
        """The layout, and what differs from it."""
        first = self.costs[0].decision
        inside = ", with pairs inside" if first.inside else ""
        return f"{first.layout}{inside}{', but computed in float' * self.in_float}"

    @property
    def shown(self) -> str:
        """The layout, with the default where that is another."""
        default = self.costs[0].decision.default
        return default if self.layout == default else f"{self.layout} (default: {default})"

    @property
    def saves_us(self) -> float:
        """What the pack's default there saves, by an estimate; 0 where it saves nothing."""
        return 0.0 if self.gain is None else self.gain.saves_us

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the default is float where the rule's own is not, what splits the layout or is
        missing for one, what the default saves.
        """
        inside = [edge for cost in self.costs for edge in cost.decision.inside]
        rounds = [edge for edge in inside if edge not in self.splits]
        split = f"split by pairs: {' and '.join(removed_text(self.splits, self.pairs))}"
        rounded = f"pairs that only round: {' and '.join(removed_text(rounds, self.pairs))}"
        missing = [edge for cost in self.costs for edge in cost.decision.missing]
        nearest = sorted({cost.decision.nearest for cost in self.costs} - {""})
        lacking = f"for {' or '.join(nearest)} it lacks pairs on {edges_text(missing)}"
        saves = ""
        if self.gain is not None:
            change = change_text(self.gain.change, self.pairs)
            saves = f"the default here saves est. {self.saves_us:.1f} us: {change}"
        site = self.costs[0].decision.site
        is_float = not site.layouts[site.default].quantize
        by_times = is_float and site.default != site.match.rule.default_layout
        notes = (
            (f"{site.default} {_BY_TIMES}", by_times),
            (split, self.splits),
            (rounded, rounds),
            (lacking, missing),
            (saves, saves),
        )
        return tuple(note for note, applies in notes if applies)


@dataclass(frozen=True)
class RuleBranch:
    """One rule and what was decided at its sites."""

    rule: Rule
    layouts: tuple[LayoutBranch, ...]

    @property
    def costs(self) -> tuple[DecisionCost, ...]:
        """Of all sites."""
        return tuple(cost for layout in self.layouts for cost in layout.costs)


def decision_tree(explanation: Explanation) -> tuple[RuleBranch, ...]:
    """The decisions where there is a choice; on each level the costliest, then those of most sites.

    Without estimates all costs are 0, and numbers of sites decide.
    """
    floats = _in_float(explanation.plan)
    decided: dict[str, dict[tuple[object, ...], list[DecisionCost]]] = {}
    for cost in decision_costs(explanation):
        if len(cost.decision.site.layouts) > 1:
            of_rule = decided.setdefault(cost.decision.site.match.rule.id, {})
            key = (*cost.decision.kind, _is_in_float(cost.decision, floats))
            of_rule.setdefault(key, []).append(cost)
    branches = [_branch(alike.values(), explanation, floats) for alike in decided.values()]
    return tuple(sorted(branches, key=lambda branch: _order(branch.costs)))


def without_choice(explanation: Explanation, timed: bool) -> str:
    """A sentence on the time of computing layers where no rule has a choice; empty without any."""
    decided = {
        node.name
        for decision in explanation.decisions
        if len(decision.site.layouts) > 1
        for node in decision.site.match.nodes.values()
    }
    layers = explanation.plan.of_kind("compute")
    left = [layer for layer in layers if decided.isdisjoint(layer.nodes)]
    us = sum(layer.time_us or 0.0 for layer in left)
    if not timed or not us:
        return ""
    count = f"{len(left)} layer{'s' if len(left) > 1 else ''}"
    share = us / explanation.total_us
    return f"where no rule has a choice: {count}, est. {us:.1f} us ({share:.0%})"


def total_us(costs: Iterable[DecisionCost]) -> float:
    """Estimated microseconds of all sites."""
    return sum(cost.us for cost in costs)


def _branch(
    alike: Iterable[Sequence[DecisionCost]], explanation: Explanation, floats: Set[str]
) -> RuleBranch:
    branches = []
    for costs in alike:
        gain = explanation.gains.get(costs[0].decision.kind)
        dearest = tuple(sorted(costs, key=lambda cost: -cost.us))
        in_float = _is_in_float(costs[0].decision, floats)
        splits = [edge for cost in dearest for edge in explanation.split_by(cost.decision)]
        branches.append(LayoutBranch(dearest, gain, explanation.pairs, in_float, splits))
    branches.sort(key=lambda branch: _order(branch.costs))
    return RuleBranch(branches[0].costs[0].decision.site.match.rule, tuple(branches))


def _in_float(plan: Plan) -> frozenset[str]:
    """Nodes in layers that compute, none of which reads integers."""
    layers = plan.of_kind("compute")
    on_integers = {
        node
        for layer in layers
        if any(map(is_quantized, layer.input_types))
        for node in layer.nodes
    }
    return frozenset(node for layer in layers for node in layer.nodes) - on_integers


def _is_in_float(decision: Decision, floats: Set[str]) -> bool:
    """Whether a product whose layout quantizes what it reads is one of ``floats``."""
    product = decision.site.match.anchor
    layout = decision.site.layouts.get(decision.layout)
    if layout is None or product.op not in WEIGHTED_OPS:
        return False
    reads_pairs = any(edge.node == product.name for edge in layout.quantize)
    return reads_pairs and product.name in floats


def _order(costs: Sequence[DecisionCost]) -> tuple[float, int]:
    return -total_us(costs), -len(costs)
