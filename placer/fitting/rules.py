"""Predicted layers beside built ones, counted by the rule that predicted them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from placer.fitting.predicted import PredictedBuild
from placer.plan import Layer, Plan
from placer.plan.diff import diff_plans
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.times.fitted import RuleEvidence

NO_RULE = "no rule"
MOST_EXAMPLES = 5  # Ways in which a rule's layers came out otherwise: the most frequent ones.


@dataclass
class _Count:
    predicted: int = 0
    built: int = 0
    same_types: int = 0
    otherwise: Counter[str] = field(default_factory=Counter)


def rule_evidence(builds: Iterable[PredictedBuild]) -> tuple[RuleEvidence, ...]:
    """What became of each rule's layers in builds whose layers the engine tells."""
    counts: dict[str, _Count] = defaultdict(_Count)
    for build in builds:
        if build.built.layers:
            _count(build, counts)
    return tuple(
        RuleEvidence(
            rule=rule,
            predicted=count.predicted,
            built=count.built,
            same_types=count.same_types,
            otherwise=tuple(count.otherwise.most_common(MOST_EXAMPLES)),
        )
        for rule, count in sorted(counts.items())
    )


def _count(build: PredictedBuild, counts: dict[str, _Count]) -> None:
    predicted = Plan(tuple(layer.layer for layer in build.layers))
    diff = diff_plans(predicted, build.built)
    shared = {id(one) for conversion in diff.conversions for one, _ in conversion.shared}
    exact = shared | {id(pair.predicted) for pair in diff.matched if pair.same_types}
    # Types that differ are told apart from layers that do: a pair of the same nodes is built.
    found = shared | {id(pair.predicted) for pair in (*diff.matched, *diff.other_types)}
    written = {id(pair.predicted): pair.actual for pair in diff.other_types}
    parts = {id(split.whole): split.parts for split in diff.splits}
    for layer in build.layers:
        if layer.layer.kind == "no-op":
            continue
        count, key = counts[_rule(layer)], id(layer.layer)
        count.predicted += 1
        count.built += key in found
        count.same_types += key in exact
        if key in written:
            count.otherwise[f"{_said(layer.layer)}: writes {_types(written[key])}"] += 1
        elif key not in found:
            instead = ", ".join(map(_said, parts.get(key, ()))) or "within another layer"
            count.otherwise[f"{_said(layer.layer)}: {instead}"] += 1
    for conversion in diff.conversions:
        missed = counts[conversion.kind]
        for extra in conversion.extra:
            missed.otherwise[f"not predicted: {_said(extra)}"] += 1


def _rule(layer: PredictedLayer) -> str:
    if layer.claim is not None:
        return layer.claim.match.rule.id
    return NO_RULE if layer.nodes else layer.layer.kind


def _said(layer: Layer) -> str:
    """Operator and types; names of nodes stay with the user."""
    inputs = " and ".join(sorted(set(layer.input_types)))
    return f"{layer.op} {inputs} -> {_types(layer)}"


def _types(layer: Layer) -> str:
    return " and ".join(sorted(set(layer.output_types)))
