"""What a comparison of two plans found: in figures, as JSON, and in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from placer.plan.plan import Kind, Layer

CONVERSIONS: tuple[Kind, ...] = ("quantize", "dequantize", "requantize", "reformat")


@dataclass(frozen=True)
class Score:
    """How many of the predicted and of the actual compute layers found a partner."""

    matched: int
    predicted: int
    actual: int

    @property
    def precision(self) -> float:
        """Share of the predicted layers that are actual; 1 where none is predicted."""
        return self.matched / self.predicted if self.predicted else 1.0

    @property
    def recall(self) -> float:
        """Share of the actual layers that were predicted; 1 where there is none."""
        return self.matched / self.actual if self.actual else 1.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 1 where both plans are empty."""
        total = self.predicted + self.actual
        return 2 * self.matched / total if total else 1.0


@dataclass(frozen=True)
class Pair:
    """A predicted and an actual layer of the same ``nodes`` (those that both plans know).

    ``same_types``: the output types agree exactly; ``same_class``: as far as quantized against
    float goes. A type that a plan does not tell agrees with none.
    """

    predicted: Layer
    actual: Layer
    nodes: tuple[str, ...]
    same_types: bool
    same_class: bool


@dataclass(frozen=True)
class Regrouping:
    """Nodes that one plan runs in ``whole`` and the other in ``parts``."""

    whole: Layer
    parts: tuple[Layer, ...]


@dataclass(frozen=True)
class ConversionDiff:
    """Conversion layers of one kind: counts, and those without a partner in the other plan.

    ``shared``: predicted and actual layers of the same name or in the same place.
    """

    kind: Kind
    predicted: int
    actual: int
    missing: tuple[Layer, ...]
    extra: tuple[Layer, ...]
    shared: tuple[tuple[Layer, Layer], ...] = ()


@dataclass(frozen=True)
class PlanDiff:
    """What ``diff_plans`` finds.

    ``matched``: layers of the same nodes and class of output types; ``other_types``: layers of the
    same nodes whose output types differ at all; ``splits``: predicted fusions that did not happen;
    ``fusions``: actual ones that were not predicted; ``conversions``: one entry per kind.
    The scores count all compute layers, by nodes and types, by nodes and class, and by nodes alone.
    ``only_predicted`` and ``only_actual`` name the compute layers of which the other plan knows no
    node; the scores count them as layers without a partner. ``names_only``: the actual plan names
    no tensors.
    """

    predicted_source: str
    actual_source: str
    matched: tuple[Pair, ...]
    other_types: tuple[Pair, ...]
    splits: tuple[Regrouping, ...]
    fusions: tuple[Regrouping, ...]
    conversions: tuple[ConversionDiff, ...]
    exact: Score
    by_class: Score
    by_nodes: Score
    only_predicted: tuple[str, ...]
    only_actual: tuple[str, ...]
    names_only: bool = False

    @property
    def false_conversions(self) -> int:
        """Predicted conversions that do not run, of all kinds."""
        return sum(len(conversion.missing) for conversion in self.conversions)

    @property
    def missed_conversions(self) -> int:
        """Conversions that run but were not predicted, of all kinds."""
        return sum(len(conversion.extra) for conversion in self.conversions)

    @property
    def agrees(self) -> bool:
        """Whether layers, output types and conversions are the same."""
        converted = not (self.false_conversions or self.missed_conversions)
        return converted and self.exact.f1 == 1.0

    @property
    def scores(self) -> tuple[tuple[str, Score], ...]:
        """The scores by what counts as the same layer, the strictest first."""
        return (("exact", self.exact), ("by class", self.by_class), ("by nodes", self.by_nodes))

    @property
    def sentences(self) -> tuple[str, ...]:
        """What differs, in words."""
        return tuple(sentences(self))

    def to_json(self) -> dict[str, Any]:
        """For ``json.dumps``: scores, and layers by name; times in microseconds."""
        return {
            "agrees": self.agrees,
            "predicted": self.predicted_source,
            "actual": self.actual_source,
            "scores": {name: _score_json(score) for name, score in self.scores},
            "matched": [
                {
                    "predicted": pair.predicted.name,
                    "actual": pair.actual.name,
                    "nodes": list(pair.nodes),
                    "time_us": pair.actual.time_us,
                }
                for pair in self.matched
            ],
            "types": [
                {
                    "predicted": pair.predicted.name,
                    "actual": pair.actual.name,
                    "predicted_types": list(pair.predicted.output_types),
                    "actual_types": list(pair.actual.output_types),
                    "same_class": pair.same_class,
                }
                for pair in self.other_types
            ],
            "splits": [
                {"predicted": split.whole.name, "actual": _names(split.parts)}
                for split in self.splits
            ],
            "fusions": [
                {"actual": fusion.whole.name, "predicted": _names(fusion.parts)}
                for fusion in self.fusions
            ],
            "conversions": {
                c.kind: {
                    "predicted": c.predicted,
                    "actual": c.actual,
                    "missing": _names(c.missing),
                    "extra": _names(c.extra),
                }
                for c in self.conversions
            },
            "only": {"predicted": list(self.only_predicted), "actual": list(self.only_actual)},
            "sentences": list(self.sentences),
        }


def sentences(diff: PlanDiff) -> Iterator[str]:
    """One sentence per difference, with measured times where the actual plan has them."""
    for split in diff.splits:
        yield f"{_named_layer(split.whole)} was predicted as one layer but runs as {_list(split)}."
    for fusion in diff.fusions:
        yield f"{_named_layer(fusion.whole)} is one layer but was predicted as {_list(fusion)}."
    if diff.names_only:
        yield (
            f"{diff.actual_source or 'The actual plan'} tells names only, so types and the places "
            "of conversions cannot be compared; build with --profilingVerbosity=detailed."
        )
        return
    for pair in diff.other_types:
        wanted, got = (_types(layer) for layer in (pair.predicted, pair.actual))
        yield f"{_named_layer(pair.actual)} writes {got} but was predicted to write {wanted}."
    for conversion in diff.conversions:
        for layer in conversion.missing:
            yield f"Predicted {conversion.kind} layer {_named_layer(layer)} does not run."
        for layer in conversion.extra:
            yield f"{conversion.kind.capitalize()} layer {_named_layer(layer)} was not predicted."


def _list(regrouping: Regrouping) -> str:
    parts = ", ".join(_named_layer(part) for part in regrouping.parts)
    return f"{len(regrouping.parts)}: {parts}"


def _named_layer(layer: Layer) -> str:
    time = "" if layer.time_us is None else f" ({layer.time_us:.1f} us)"
    return f"'{layer.name}'{time}"


def _types(layer: Layer) -> str:
    return " and ".join(sorted(set(layer.output_types)))


def _names(layers: tuple[Layer, ...]) -> list[str]:
    return [layer.name for layer in layers]


def _score_json(score: Score) -> dict[str, float]:
    return {
        "matched": score.matched,
        "predicted": score.predicted,
        "actual": score.actual,
        "precision": score.precision,
        "recall": score.recall,
        "f1": score.f1,
    }
