"""Evaluate one placement: build the candidate, check its outputs, measure it against float."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import onnx

from placer.accuracy import finite
from placer.beat import Rivals
from placer.blame import blame
from placer.conditions import conditions_part
from placer.engines.base import Compiled, Engine, Tensors
from placer.engines.conditions import conditions_of
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.errors import RunError
from placer.gates import Evaluator, Run
from placer.model import Model
from placer.placement import EMPTY, Placement
from placer.precision import Base, InputOutputTypes, convert, translate, translate_ranges
from placer.qdq import Inserter
from placer.ranges import Ranges
from placer.result import LatencyPart
from placer.rules.sites import Site
from placer.scheme import Scheme
from placer.search.race import paired_ratio
from placer.search.records import Outcome, TrialRecord, by_latency
from placer.search.space import Choices, Space
from placer.validity import invalid_output

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Remainder:
    """The float model with what is not quantized in another type; see ``placer.precision``."""

    model: Model
    inserter: Inserter
    ranges: Ranges

    @staticmethod
    def of(
        model: Model, base: Base, io: InputOutputTypes, scheme: Scheme, ranges: Ranges
    ) -> Remainder:
        """Convert ``model`` to ``base``; raises InputError if it cannot be."""
        converted = convert(model, base, io, ranges=ranges)
        translated = translate_ranges(ranges, converted.graph)
        return Remainder(converted, Inserter(converted, scheme), translated)

    def insert(self, placement: Placement) -> onnx.ModelProto:
        """The candidate of ``placement``, which is one of the float model."""
        return self.inserter.insert(translate(placement, self.model.graph), self.ranges)


class Candidates:
    """Builds candidates of one model with fixed ranges and compiles them on one engine.

    ``remainder`` is what the engine's attribute of that name says is built, or only written.
    """

    def __init__(
        self,
        model: Model,
        engine: Engine,
        inserter: Inserter,
        ranges: Ranges,
        remainder: Remainder | None = None,
    ) -> None:
        self.model = model
        self.engine = engine
        self._inserter = inserter
        self._ranges = ranges
        self._remainder = remainder

    def build(self, placement: Placement) -> onnx.ModelProto:
        """Return the Q/DQ model of ``placement`` for the engine; the float model if it is empty."""
        if self._remainder is not None and self.engine.remainder == "built":
            return self._remainder.insert(placement)
        return self._inserter.insert(placement, self._ranges)

    def result(self, placement: Placement) -> onnx.ModelProto:
        """Return the model of ``placement`` as it is written."""
        if self._remainder is not None:
            return self._remainder.insert(placement)
        return self.build(placement)

    def compile(self, placement: Placement) -> Compiled:
        """Build and compile; raises RunError if the engine refuses the candidate."""
        return self.engine.compile(self.build(placement), self.model.base_dir)

    def verify(self, placement: Placement, compiled: Compiled, inputs: Tensors) -> None:
        """Raise RunError if ``compiled`` gives garbage on ``inputs``, by ONNX Runtime's results.

        Engines that run on ONNX Runtime are not compared with themselves, and a candidate that it
        does not run cannot be compared.
        """
        if not self.engine.verified:
            return
        try:
            reference = self._on_cpu(placement).run(inputs)
        except RunError as error:
            log.info("not compared with ONNX Runtime: %s", error)
            return
        problem = invalid_output(compiled.run(inputs), reference)
        if problem is not None:
            raise RunError(f"invalid output: {problem}")

    def runner(self, placement: Placement) -> Run:
        """What runs the candidate to judge its outputs only: no build of an engine is spent on it.

        Raises RunError if the candidate is refused.
        """
        return (self._on_cpu if self.engine.verified else self.compile)(placement).run

    def _on_cpu(self, placement: Placement) -> OnnxRuntimeModel:
        candidate = self.build(placement)
        return OnnxRuntimeModel(candidate, self.model.base_dir, threads=1, optimized=False)


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
        rivals: Rivals | None = None,
        *,
        layers: LayerTimes | None = None,
        earlier: Sequence[TrialRecord] = (),
        judge_all: bool = False,
    ) -> None:
        """``layers``: None if times of layers are of no use. ``earlier``: the trials of the study
        that a resumed run goes on with. ``judge_all``: judge slow candidates too, which may be more
        accurate than the fastest.
        """
        self._candidates = candidates
        self._sites = sites
        self._evaluator = evaluator
        self._baseline = baseline
        self._inputs = inputs
        self._rounds = rounds
        self._rivals = rivals or Rivals()
        self._layers = layers
        self._judge_all = judge_all
        quantized = (r for r in by_latency(earlier) if r.placement_id != EMPTY.id)
        self._best = min((r.details["interval"][1] for r in quantized), default=None)
        self._costs = _Costs()
        for record in earlier:
            self._costs.judging = record.details.get("judging_s", self._costs.judging)
            self._costs.measuring = record.details.get("measuring_s", self._costs.measuring)

    def __call__(self, placement: Placement) -> Outcome:
        """Compile, judge by the gates and measure in turn with the float model.

        Once a quantized placement that meets the gates is known, what is cheaper here of the two is
        done first, and the other left out where that has ruled the candidate out. What misses a
        gate is measured nevertheless if it has layers whose times are not known.
        """
        try:
            compiled = self._candidates.compile(placement)
            self._candidates.verify(placement, compiled, self._inputs)
            return self._in_order(placement, compiled)
        except RunError as error:
            return Outcome(ratio=None, error=blame(str(error), placement, self._sites))

    def _in_order(self, placement: Placement, compiled: Compiled) -> Outcome:
        best = self._best
        judges_first = self._judge_all or self._costs.measuring >= self._costs.judging
        if best is None or judges_first:
            judged = self._judge(compiled)
            if best is not None and judged.violation > 0 and self._is_known(placement):
                return replace(judged, ruled_out="a gate is missed, so it was not measured")
            return self._done(placement, judged, self._measure(placement, compiled))
        measured = self._measure(placement, compiled)
        if measured.details["interval"][0] > best:
            return replace(
                measured,
                ruled_out=f"slower than the best known ({best:.3f} of float), so it was not judged",
            )
        return self._done(placement, self._judge(compiled), measured)

    def _done(self, placement: Placement, judged: Outcome, measured: Outcome) -> Outcome:
        gates = [*judged.details["gates"], *measured.details["gates"]]
        outcome = Outcome(
            ratio=measured.ratio,
            constraints={**judged.constraints, **measured.constraints},
            details={**measured.details, **judged.details, "gates": gates},
        )
        if outcome.violation <= 0 and placement != EMPTY:
            high = measured.details["interval"][1]
            self._best = high if self._best is None else min(self._best, high)
        return outcome

    def _is_known(self, placement: Placement) -> bool:
        return self._layers is None or self._layers.known(placement)

    def _judge(self, compiled: Compiled) -> Outcome:
        start = time.monotonic()
        evaluation = self._evaluator.evaluate(compiled.run)
        self._costs.judging = time.monotonic() - start
        return Outcome(
            ratio=None,
            constraints={value.gate.text(): value.violation for value in evaluation.gates},
            details={
                "gates": [value.to_json() for value in evaluation.gates],
                "noise": finite(evaluation.noise),
                "judging_s": self._costs.judging,
            },
        )

    def _measure(self, placement: Placement, compiled: Compiled) -> Outcome:
        engine, start = self._candidates.engine, time.monotonic()
        models = [self._baseline, compiled, *self._rivals.measured]
        seconds = engine.measure(models, self._inputs, self._rounds)
        self._costs.measuring = time.monotonic() - start
        layers: Mapping[str, float] = {}
        if self._layers is not None and not self._is_known(placement):
            layers = self._layers.measure(placement, compiled)
        conditions = conditions_part(conditions_of(engine))
        ratio = paired_ratio(seconds[:, 1], seconds[:, 0])
        gates = self._rivals.gates(seconds)
        return Outcome(
            ratio=ratio.median,
            constraints={value.gate.text(): value.violation for value in gates},
            details={
                "gates": [value.to_json() for value in gates],
                "interval": [ratio.low, ratio.high],
                "latency": latency(seconds[:, 1]).model_dump(),
                "layers": dict(layers),
                "measuring_s": self._costs.measuring,
                "conditions": conditions and conditions.model_dump(),
            },
        )


@dataclass
class _Costs:
    """Seconds that the last trial took for each."""

    judging: float = 0.0
    measuring: float = 0.0


def latency(seconds: np.ndarray) -> LatencyPart:
    """Median, 10th and 90th percentile of ``seconds`` in milliseconds."""
    p10, median, p90 = (float(1e3 * q) for q in np.quantile(seconds, (0.1, 0.5, 0.9)))
    return LatencyPart(median_ms=median, p10_ms=p10, p90_ms=p90, rounds=len(seconds))


class NoiseMeter:
    """Noise power of a placement on a few samples, relative to the outputs' power."""

    def __init__(self, space: Space, candidates: Candidates, evaluator: Evaluator) -> None:
        self._space = space
        self._candidates = candidates
        self._evaluator = evaluator

    def __call__(self, choices: Choices) -> float:
        """Return the noise of ``choices``; 1, as much as signal, where the engine refuses them."""
        try:
            run = self._candidates.runner(self._space.placement(choices))
            noise = self._evaluator.evaluate(run).noise
        except RunError:
            return 1.0
        return noise if math.isfinite(noise) else 1.0
