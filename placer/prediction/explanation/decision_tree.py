"""What was decided as a tree: rules, the layouts chosen for them and the sites, costliest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from placer.prediction.explanation.explain import DecisionCost, Explanation, decision_costs
from placer.rules.schema import Rule


@dataclass(frozen=True)
class LayoutBranch:
    """One layout of a rule and the sites that take it; ``default``: the rule's own choice."""

    layout: str
    default: str
    costs: tuple[DecisionCost, ...]

    @property
    def shown(self) -> str:
        """The layout, with the default where that is another."""
        if self.layout == self.default:
            return self.layout
        return f"{self.layout} (default: {self.default})"


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
    decided: dict[str, dict[str, list[DecisionCost]]] = defaultdict(lambda: defaultdict(list))
    for cost in decision_costs(explanation):
        if len(cost.decision.site.layouts) > 1:
            decided[cost.decision.site.match.rule.id][cost.decision.layout].append(cost)
    branches = [_branch(layouts) for layouts in decided.values()]
    return tuple(sorted(branches, key=lambda branch: _order(branch.costs)))


def total_us(costs: Iterable[DecisionCost]) -> float:
    """Estimated microseconds of all sites."""
    return sum(cost.us for cost in costs)


def _branch(layouts: dict[str, list[DecisionCost]]) -> RuleBranch:
    branches = [
        LayoutBranch(
            layout,
            costs[0].decision.site.default,
            tuple(sorted(costs, key=lambda cost: -cost.us)),
        )
        for layout, costs in layouts.items()
    ]
    branches.sort(key=lambda branch: _order(branch.costs))
    return RuleBranch(branches[0].costs[0].decision.site.match.rule, tuple(branches))


def _order(costs: Sequence[DecisionCost]) -> tuple[float, int]:
    return -total_us(costs), -len(costs)
