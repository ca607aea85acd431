"""What a trial gives and what a study keeps of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from placer.search.space import Choices


@dataclass(frozen=True)
class Outcome:
    """What evaluating one placement gave.

    ``ratio``: latency relative to the float model, None if it was not measured.
    ``constraints``: by gate, at most 0 where it is met (Optuna's convention).
    ``details``: JSON values kept with the trial. Those that searches learn from: ``interval``, the
    95% interval of the ratio; ``noise``, error power over signal power of the outputs; ``layers``,
    mean microseconds by signature id (``placer.search.layer_signatures``).
    ``error``: why the trial failed, in one sentence.
    ``ruled_out``: why the candidate was not measured, or not judged by the gates, although the
    engine took it; None if it was both.
    """

    ratio: float | None
    constraints: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    ruled_out: str | None = None

    @property
    def violation(self) -> float:
        """By how much gates are missed in all, 0 if they are met."""
        return total_violation(self.constraints)


@dataclass(frozen=True)
class Skip:
    """A placement that was not tried, since its measured noise power misses the gates."""

    choices: Choices
    noise: float


@dataclass(frozen=True)
class TrialRecord:
    """A trial of a study: finished, or ``running`` in another worker.

    ``skipped``: what was looked at before it was proposed.
    """

    number: int
    kind: str
    choices: Choices
    placement_id: str
    ratio: float | None
    constraints: Mapping[str, float]
    details: Mapping[str, Any]
    error: str | None
    seconds: float
    ruled_out: str | None = None
    running: bool = False
    skipped: tuple[Skip, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether it was measured and meets all gates."""
        return self.ratio is not None and self.ruled_out is None and self.violation <= 0

    @property
    def violation(self) -> float:
        """By how much gates are missed in all, 0 if they are met."""
        return total_violation(self.constraints)


def total_violation(constraints: Mapping[str, float]) -> float:
    """Sum of what is above 0."""
    return sum(max(0.0, value) for value in constraints.values())


def by_latency(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Records that were measured and meet the gates, fastest first."""
    return sorted((r for r in records if r.feasible), key=lambda r: r.ratio or 0.0)
