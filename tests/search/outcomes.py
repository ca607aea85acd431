"""Outcomes as tests make them up: exact ratios, one gate, no times."""

from collections.abc import Mapping

from placer.accuracy.gates import GateResult
from placer.common.statistics import Ratio
from placer.results.parts import LatencyPart
from placer.search.records import Judgement, Measurement, Outcome

# Latency of the float model.
FLOAT_MS = 1.0


def measurement(ratio: float, layers: Mapping[str, float] | None = None) -> Measurement:
    """A measurement without noise; ``layers``: microseconds by signature id."""
    latency = LatencyPart(
        median_ms=ratio * FLOAT_MS, p10_ms=ratio * FLOAT_MS, p90_ms=ratio * FLOAT_MS, rounds=1
    )
    return Measurement(Ratio(ratio, ratio, ratio, 1), latency, layers=layers or {})


def judgement(violation: float = -1.0, noise: float | None = None) -> Judgement:
    """One gate, met where ``violation`` is at most 0."""
    return Judgement((GateResult("sqnr>=15", None, "logits", violation),), noise)


def outcome(ratio: float, violation: float = -1.0, noise: float | None = None) -> Outcome:
    """Measured and judged by one gate."""
    return Outcome(measurement(ratio), judgement(violation, noise))
