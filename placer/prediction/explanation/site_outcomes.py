"""Compare the predicted layers of each site with those that an engine built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placer.plan import Layer, Plan
from placer.plan.dtypes import is_quantized
from placer.prediction.explanation.default_gains import Decision


@dataclass(frozen=True)
class SiteOutcome:
    """The layers of a site as predicted and as the engine built them.

    ``agrees``: the same nodes fused, written in the same class of type (quantized or float).
    """

    decision: Decision
    predicted: tuple[Layer, ...]
    actual: tuple[Layer, ...]
    agrees: bool


def compare_sites(
    decisions: Sequence[Decision], predicted: Plan, actual: Plan
) -> tuple[SiteOutcome, ...]:
    """Hold the predicted layers of every site against an engine's.

    Only nodes that compute layers of both plans name count; sites without any are left out.
    """
    mine, theirs = _by_node(predicted), _by_node(actual)
    outcomes = []
    for decision in decisions:
        names = [n.name for n in decision.site.match.nodes.values()]
        known = [name for name in names if name in mine and name in theirs]
        if known:
            left = tuple(dict.fromkeys(mine[name] for name in known))
            right = tuple(dict.fromkeys(theirs[name] for name in known))
            agrees = _shape_of(left, set(known)) == _shape_of(right, set(known))
            outcomes.append(SiteOutcome(decision, left, right, agrees))
    return tuple(outcomes)


def _by_node(plan: Plan) -> dict[str, Layer]:
    return {node: layer for layer in plan.of_kind("compute") for node in layer.nodes}


def _shape_of(layers: Sequence[Layer], known: set[str]) -> set[tuple[frozenset[str], bool]]:
    return {
        (frozenset(layer.nodes) & known, any(map(is_quantized, layer.output_types)))
        for layer in layers
    }
