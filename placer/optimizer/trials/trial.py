"""Evaluate one placement: build the candidate, check its outputs, measure it against float."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from placer.accuracy.evaluator import Evaluator
from placer.accuracy.metrics import finite
from placer.common.statistics import paired_ratio
from placer.engines.base import Compiled, Tensors
from placer.engines.conditions import conditions_of
from placer.engines.times import measured_seconds
from placer.errors import RunError
from placer.optimizer.setup.candidates import Candidates
from placer.optimizer.setup.latency_baselines import LatencyBaselines
from placer.optimizer.trials.result_parts import conditions_part, latency
from placer.quantization import FLOAT_IDS, Placement
from placer.rules.sites import Site
from placer.search.records import Judgement, Measurement, Outcome, TrialRecord, by_latency


class LayerTimes(Protocol):
    """Tells how long the layers of candidates take."""

    def known(self, placement: Placement) -> bool:
        """Whether earlier trials tell the times of all layers of ``placement``."""

    def measure(self, placement: Placement, compiled: Compiled) -> Mapping[str, float]:
        """Mean microseconds by signature id; empty if the engine does not tell."""


class TrialRunner:
    """Turns a placement into an outcome; what an engine refuses is an outcome too."""

    def __init__(
        self,
        candidates: Candidates,
        evaluator: Evaluator,
        baseline: Compiled,
        inputs: Tensors,
        rounds: int,
        sites: Sequence[Site] = (),
        latency_baselines: LatencyBaselines | None = None,
        *,
        layers: LayerTimes | None = None,
        earlier: Sequence[TrialRecord] = (),
        judge_all: bool = False,
        recoverable: float = 0.0,
    ) -> None:
        """``layers``: None if times of layers are of no use. ``earlier``: the trials of the study
        that a resumed run goes on with. ``judge_all``: judge slow candidates too, which may be more
        accurate than the fastest. ``recoverable``: noise power up to which what misses a gate is
        measured nevertheless.
        """
        self._candidates = candidates
        self._sites = sites
        self._evaluator = evaluator
        self._baseline = baseline
        self._inputs = inputs
        self._rounds = rounds
        self._latency_baselines = latency_baselines or LatencyBaselines()
        self._layers = layers
        self._judge_all = judge_all
        self._recoverable = recoverable
        quantized = (r for r in by_latency(earlier) if r.placement_id not in FLOAT_IDS)
        measured = (r.measurement for r in quantized if r.measurement is not None)
        self._best = min((measurement.ratio.high for measurement in measured), default=None)
        self._costs = _Costs()
        for record in earlier:
            if record.judgement is not None:
                self._costs.judging = record.judgement.seconds
            if record.measurement is not None:
                self._costs.measuring = record.measurement.seconds

    def __call__(
        self, placement: Placement, on_built: Callable[[], None] = lambda: None
    ) -> Outcome:
        """Compile, judge by the gates and measure in turn with the float model.

        Once a quantized placement that meets the gates is known, what is cheaper here of the two is
        done first, and the other left out where that has ruled the candidate out. What misses a
        gate is measured nevertheless if it has layers whose times are not known, or if recovery may
        make it meet the gate. ``on_built``: see ``Candidates.compile``.
        """
        try:
            compiled = self._candidates.compile(placement, on_built)
            self._candidates.verify(placement, compiled, self._inputs)
            return self._in_order(placement, compiled)
        except RunError as error:
            return Outcome(error=blame(str(error), placement, self._sites))

    def _in_order(self, placement: Placement, compiled: Compiled) -> Outcome:
        best = self._best
        judges_first = self._judge_all or self._costs.measuring >= self._costs.judging
        if best is None or judges_first:
            judged = Outcome(judgement=self._judge(placement, compiled))
            if best is not None and judged.violation > 0 and not self._is_worth(placement, judged):
                return replace(judged, ruled_out="a gate is missed, so it was not measured")
            return self._done(placement, judged, self._measure(placement, compiled))
        measurement = self._measure(placement, compiled)
        if measurement.ratio.low > best:
            reason = f"slower than the best known ({best:.3f} of float), so it was not judged"
            return Outcome(measurement, ruled_out=reason)
        return self._done(
            placement, Outcome(judgement=self._judge(placement, compiled)), measurement
        )

    def _done(self, placement: Placement, judged: Outcome, measurement: Measurement) -> Outcome:
        outcome = replace(judged, measurement=measurement)
        if outcome.feasible and placement.edges:
            high = measurement.ratio.high
            self._best = high if self._best is None else min(self._best, high)
        return outcome

    def _is_worth(self, placement: Placement, judged: Outcome) -> bool:
        """Whether a candidate that misses a gate is to be measured."""
        near = judged.noise is not None and judged.noise <= self._recoverable
        return near or not self._is_known(placement)

    def _is_known(self, placement: Placement) -> bool:
        return self._layers is None or self._layers.known(placement)

    def _judge(self, placement: Placement, compiled: Compiled) -> Judgement:
        start = time.monotonic()
        run = self._candidates.judged_run(placement, compiled)
        evaluation = self._evaluator.evaluate(run)
        self._costs.judging = time.monotonic() - start
        return Judgement(
            gates=tuple(value.result() for value in evaluation.gates),
            noise=finite(evaluation.noise),
            seconds=self._costs.judging,
        )

    def _measure(self, placement: Placement, compiled: Compiled) -> Measurement:
        engine, start = self._candidates.engine, time.monotonic()
        models = [self._baseline, compiled, *self._latency_baselines.measured]
        seconds = measured_seconds(engine, models, self._inputs, self._rounds)
        self._costs.measuring = time.monotonic() - start
        layers: Mapping[str, float] = {}
        if self._layers is not None and not self._is_known(placement):
            layers = self._layers.measure(placement, compiled)
        return Measurement(
            ratio=paired_ratio(seconds[:, 1], seconds[:, 0]),
            latency=latency(seconds[:, 1]),
            gates=tuple(value.result() for value in self._latency_baselines.gates(seconds)),
            layers=layers,
            conditions=conditions_part(conditions_of(engine)),
            seconds=self._costs.measuring,
        )


@dataclass
class _Costs:
    """Seconds that the last trial took for each."""

    judging: float = 0.0
    measuring: float = 0.0


# Names of the nodes of a pair, as placer.qdq.insert gives them.
_PAIR = re.compile(r"'(?P<tensor>[^']+)/(?:Quantize|Dequantize)Linear(?:_\d+)?'")


def blame(message: str, placement: Placement, sites: Sequence[Site]) -> str:
    """``message`` with the rules behind the pair that it names, if it names one."""
    match = _PAIR.search(message)
    if match is None:
        return message
    tensor = match["tensor"]
    edges = {edge for edge in placement.edges if edge.tensor == tensor}
    rules = {
        f"{site.match.rule.id} at '{site.match.anchor.name}'": None
        for site in sites
        if any(layout.quantize & edges for layout in site.layouts.values())
    }
    if not rules:
        return message
    return f"{message}; the pair is there by rule {' and '.join(rules)}"
