"""Latency observations of trials, and trials as if they had turned out as predicted."""

from __future__ import annotations

from placer.common.statistics import Ratio
from placer.results.parts import LatencyPart
from placer.search.landscape.landscape import Landscape
from placer.search.models.latency_model import Observation
from placer.search.records import Measurement, TrialRecord
from placer.search.samplers import Proposal
from placer.search.space import Choices, Space


def observe(landscape: Landscape, choices: Choices, measurement: Measurement) -> Observation:
    """What measuring the placement of ``choices`` tells of latency."""
    state, ratio, times = landscape.state(choices), measurement.ratio, measurement.layers
    counts = landscape.counts(state)
    signatures = landscape.layers.signatures
    time_of = {n: times[signatures[n].id] for n in counts if signatures[n].id in times}
    total = sum(time * counts[n] for n, time in time_of.items())
    # Profiling slows layers down, so only what part a layer takes is believed.
    shares = {n: time / total * ratio.median for n, time in time_of.items()} if total else {}
    return Observation(state, ratio.median, (ratio.high - ratio.low) / 4, shares)


def measured_as(ratio: float, number: int, proposal: Proposal, space: Space) -> TrialRecord:
    """A trial of ``proposal`` whose latency is ``ratio`` of the float model's."""
    return TrialRecord(
        number=number,
        kind=proposal.kind,
        choices=proposal.choices,
        placement_id=space.placement(proposal.choices).id,
        measurement=exactly(ratio),
        skipped=proposal.skipped,
    )


def exactly(ratio: float) -> Measurement:
    """That a latency is ``ratio`` of the float model's, without error."""
    part = LatencyPart(median_ms=ratio, p10_ms=ratio, p90_ms=ratio, rounds=1)
    return Measurement(Ratio(ratio, ratio, ratio, 1), part)
