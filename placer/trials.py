"""Evaluate one placement: build the candidate, check its outputs, measure it against float."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from placer.blame import blame
from placer.engines.base import Compiled, Engine, Tensors
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.errors import RunError
from placer.gates import Evaluator
from placer.model import Model
from placer.placement import Placement
from placer.precision import Base, InputOutputTypes, convert, translate, translate_ranges
from placer.qdq import Inserter
from placer.ranges import Ranges
from placer.result import LatencyPart
from placer.rules.sites import Site
from placer.scheme import Scheme
from placer.search.race import paired_ratio
from placer.search.space import Space
from placer.search.study import Outcome
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
            own = OnnxRuntimeModel(
                self.build(placement), self.model.base_dir, threads=1, optimized=False
            )
            reference = own.run(inputs)
        except RunError as error:
            log.info("not compared with ONNX Runtime: %s", error)
            return
        problem = invalid_output(compiled.run(inputs), reference)
        if problem is not None:
            raise RunError(f"invalid output: {problem}")


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
    ) -> None:
        self._candidates = candidates
        self._sites = sites
        self._evaluator = evaluator
        self._baseline = baseline
        self._inputs = inputs
        self._rounds = rounds

    def __call__(self, placement: Placement) -> Outcome:
        """Compile, evaluate the gates, then measure in turn with the float model."""
        try:
            compiled = self._candidates.compile(placement)
            self._candidates.verify(placement, compiled, self._inputs)
            evaluation = self._evaluator.evaluate(compiled.run)
            seconds = self._candidates.engine.measure(
                [self._baseline, compiled], self._inputs, self._rounds
            )
        except RunError as error:
            return Outcome(ratio=None, error=blame(str(error), placement, self._sites))
        ratio = paired_ratio(seconds[:, 1], seconds[:, 0])
        return Outcome(
            ratio=ratio.median,
            constraints={value.gate.text(): value.violation for value in evaluation.gates},
            details={
                "gates": [value.to_json() for value in evaluation.gates],
                "interval": [ratio.low, ratio.high],
                "latency": latency(seconds[:, 1]).model_dump(),
            },
        )


def latency(seconds: np.ndarray) -> LatencyPart:
    """Median, 10th and 90th percentile of ``seconds`` in milliseconds."""
    p10, median, p90 = (float(1e3 * q) for q in np.quantile(seconds, (0.1, 0.5, 0.9)))
    return LatencyPart(median_ms=median, p10_ms=p10, p90_ms=p90, rounds=len(seconds))


class NoiseMeter:
    """Noise power that quantizing one group alone adds, relative to the outputs' power.

    Noise of groups adds up nearly linearly in power while it is small, so the order of single
    groups tells which ones to leave float when a gate is missed.
    """

    def __init__(self, space: Space, candidates: Candidates, evaluator: Evaluator) -> None:
        self._space = space
        self._candidates = candidates
        self._evaluator = evaluator

    def __call__(self) -> Mapping[str, float]:
        """Return noise by group name; groups that the engine refuses alone count as 1."""
        return {group.name: self._noise(group.name, group.default) for group in self._space.groups}

    def _noise(self, group: str, layout: str) -> float:
        placement = self._space.placement({**self._space.floats, group: layout})
        try:
            compiled = self._candidates.compile(placement)
            return self._evaluator.evaluate(compiled.run).noise
        except RunError:
            return 1.0
