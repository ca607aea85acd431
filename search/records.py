"""What a trial gives and what a study keeps of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from placer.accuracy.gates import GateResult
from placer.common.statistics import Ratio
from placer.results.parts import ConditionsPart, LatencyPart
from placer.search.space import BASE, Choices


@dataclass(frozen=True)
class Measurement:
    """What measuring a candidate in turn with the float model gave.

    ``ratio``: its latency over the float model's. ``gates``: those on latency. ``layers``: mean
    microseconds by signature id (``placer.search.landscape.layer_signatures``), empty if they were
    not profiled. ``conditions``: None on engines that do not tell. ``seconds``: what it took.
    """

    ratio: Ratio
    latency: LatencyPart
    gates: tuple[GateResult, ...] = ()
    layers: Mapping[str, float] = field(default_factory=dict)
    conditions: ConditionsPart | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Judgement:
    """What comparing a candidate's outputs with the float model's gave.

    ``gates``: those on accuracy. ``noise``: error power over signal power of the outputs, None if
    it is not finite. ``seconds``: what judging took.
    """

    gates: tuple[GateResult, ...] = ()
    noise: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What evaluating one placement gave; either part is None if it was not done.

    ``error``: why the trial failed, in one sentence. ``ruled_out``: why the candidate was not
    measured, or not judged, although the engine took it; None if it was both. ``seconds``: what
    the whole trial took.
    """

    measurement: Measurement | None = None
    judgement: Judgement | None = None
    error: str | None = None
    ruled_out: str | None = None
    seconds: float = 0.0

    @property
    def ratio(self) -> float | None:
        """Latency relative to the float model, None if it was not measured."""
        return None if self.measurement is None else self.measurement.ratio.median

    @property
    def noise(self) -> float | None:
        """Error power over signal power of the outputs; None if not judged, or not finite."""
        return None if self.judgement is None else self.judgement.noise

    @property
    def gates(self) -> tuple[GateResult, ...]:
        """All gates that it was judged by, those on accuracy first."""
        parts = (self.judgement, self.measurement)
        return tuple(gate for part in parts if part is not None for gate in part.gates)

    @property
    def constraints(self) -> dict[str, float]:
        """By gate, at most 0 where it is met (Optuna's convention)."""
        return {result.gate: result.violation for result in self.gates}

    @property
    def violation(self) -> float:
        """By how much gates are missed in all, 0 if they are met."""
        return sum(max(0.0, value) for value in self.constraints.values())

    @property
    def feasible(self) -> bool:
        """Whether it was measured and meets all gates."""
        return self.measurement is not None and self.ruled_out is None and self.violation <= 0


@dataclass(frozen=True)
class Skip:
    """A placement that was not tried, since its measured noise power misses the gates."""

    choices: Choices
    noise: float


@dataclass(frozen=True, kw_only=True)
class TrialRecord(Outcome):
    """A trial of a study: finished with its outcome, or ``running`` in another worker without one.

    ``skipped``: what was looked at before it was proposed.
    """

    number: int
    kind: str
    choices: Choices
    placement_id: str
    running: bool = False

    @property
    def base(self) -> str | None:
        """The base precision where the search decides on it."""
        return self.choices.get(BASE)

    skipped: tuple[Skip, ...] = ()


def by_latency(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Records that were measured and meet the gates, fastest first."""
    return sorted((r for r in records if r.feasible), key=lambda r: r.ratio or 0.0)
