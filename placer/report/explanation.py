"""The page of ``placer explain``: decisions as a tree, pairs that do not fuse, predicted layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from placer.common.files import write_text
from placer.prediction.explanation.conversion_text import conversion_text
from placer.prediction.explanation.decision_tree import (
    decision_tree,
    total_us,
    without_choice,
)
from placer.prediction.explanation.explain import DecisionCost, Explanation
from placer.report.page import render


@dataclass(frozen=True)
class Explained:
    """``facts``: sentences under the title. ``timed``: whether there are estimates of time."""

    title: str
    facts: Sequence[str]
    explanation: Explanation
    timed: bool


def write_explanation(explained: Explained, path: Path) -> None:
    """Write the page, one file that needs nothing else."""
    write_text(path, explanation_page(explained))


def explanation_page(explained: Explained) -> str:
    """The page as HTML."""
    explanation, timed = explained.explanation, explained.timed
    total = explanation.total_us if timed else 0.0

    def cost(costs: Sequence[DecisionCost]) -> str:
        sites = f"{len(costs)} site{'s' if len(costs) > 1 else ''}"
        us = total_us(costs)
        return f"{sites}, est. {us:.1f} µs ({us / total:.0%})" if total else sites

    return render(
        "explanation.html.j2",
        title=explained.title,
        facts=explained.facts,
        timed=timed,
        found=explanation,
        total=total,
        branches=decision_tree(explanation),
        cost=cost,
        left=without_choice(explanation, timed).replace(" us ", " µs "),
        conversions=[
            conversion_text(one, timed=timed, pairs=explanation.pairs)
            for one in explanation.conversions
        ],
        figures={},
    )
