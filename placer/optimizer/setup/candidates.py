"""Candidates of placements: built, compiled, checked, and their noise."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import onnx

from placer.accuracy.evaluation import Run
from placer.accuracy.sanity import invalid_output, least_sqnr
from placer.common.freed_memory import give_back_freed
from placer.engines.abilities import abilities_of
from placer.engines.base import Compiled, CompilesWritten, Engine, Tensors
from placer.engines.execution_paths import each_path
from placer.engines.half_precision import HalfPrecisionModel
from placer.errors import RunError
from placer.graph.edit import standard_opset
from placer.model import Model
from placer.model.judged import Judged
from placer.optimizer.setup.reference_choices import ReferenceChoices
from placer.qdq import Inserter
from placer.qdq.base_property import name_base
from placer.qdq.mixed_precision import MixedPrecision
from placer.qdq.opset import with_opset
from placer.quantization import Placement, Ranges

log = logging.getLogger(__name__)

# Of a model whose constants take more bytes no second candidate is held in memory.
KEPT_BYTES = 1 << 26


class Candidates:
    """Builds candidates of one model with fixed ranges and compiles them on one engine.

    ``remainder`` is what the engine's attribute of that name says is built, or only written.
    ``judged``: what accuracy is judged by where the model's own outputs do not tell; its candidates
    have further outputs.
    """

    def __init__(
        self,
        model: Model,
        engine: Engine,
        inserter: Inserter,
        ranges: Ranges,
        remainder: MixedPrecision | None = None,
        judged: JudgedCandidates | None = None,
    ) -> None:
        self.model = model
        self.engine = engine
        self._inserter = inserter
        self._ranges = ranges
        self._remainder = remainder
        self._judged = judged
        # What was built last: a placement whose noise was measured is often tried next.
        self._latest: tuple[Placement, onnx.ModelProto] | None = None
        self._keeps_latest = model.weight_bytes <= KEPT_BYTES

    @property
    def kept_float(self) -> Mapping[str, str]:
        """Nodes that stay float32 since FP16 cannot hold one of their scales, and why."""
        return {} if self._remainder is None else self._remainder.kept

    def build(self, placement: Placement) -> onnx.ModelProto:
        """Return the Q/DQ model of ``placement`` for the engine; the float model if it is empty."""
        if self._remainder is not None and self.engine.remainder == "built":
            return self._remainder.insert(placement)
        candidate = self._inserter.insert(placement, self._ranges)
        # The model may be an earlier result, which says what that one was computed in.
        name_base(candidate, placement.base)
        return candidate

    def _built(self, placement: Placement) -> onnx.ModelProto:
        """What ``build`` returns, for those who leave it as it is."""
        latest = self._latest
        if latest is not None and latest[0] == placement:
            return latest[1]
        self._latest = None  # Its memory is freed first.
        candidate = self.build(placement)
        if self._keeps_latest:
            self._latest = placement, candidate
        return candidate

    def result(self, placement: Placement) -> onnx.ModelProto:
        """Return the model of ``placement`` as it is written."""
        if self._remainder is not None:
            return self._remainder.insert(placement)
        return self.build(placement)

    def judged_run(self, placement: Placement, compiled: Compiled) -> Run:
        """What runs ``compiled`` of ``placement``, with all outputs that accuracy is judged by.

        Raises RunError if the engine refuses it with those that it has not itself.
        """
        if self._judged is None:
            return compiled.run
        return _with_further_outputs(compiled.run, self._judged.run_of(placement))

    def run_written(self, path: Path) -> Run:
        """What runs the model that ``result`` made and that was written to ``path``.

        With all outputs that accuracy is judged by. Raises RunError if it is refused.
        """
        written, base_dir = onnx.load(path, load_external_data=False), path.parent
        run = self._run_written(written, base_dir)
        if self._judged is None:
            return run
        self._judged.add_to(written)
        choices = self._judged.reference_choices
        if choices is not None:
            return _with_further_outputs(run, choices.run_of(written, self.engine, base_dir))
        return _with_further_outputs(run, self._run_written(written, base_dir))

    def _run_written(self, written: onnx.ModelProto, base_dir: Path) -> Run:
        if self._remainder is not None and isinstance(self.engine, CompilesWritten):
            return HalfPrecisionModel(written, base_dir, threads=1).run
        return self.engine.compile(written, base_dir).run

    def compile(
        self, placement: Placement, on_built: Callable[[], None] = lambda: None
    ) -> Compiled:
        """Build and compile; raises RunError if the engine refuses the candidate.

        ``on_built``: called in between.
        """
        (compiled,) = self.compile_copies(placement, 1, on_built)
        return compiled

    def compile_copies(
        self, placement: Placement, copies: int, on_built: Callable[[], None] = lambda: None
    ) -> list[Compiled]:
        """As ``compile``, so many times; what runs is the model as it is written."""
        engine, base_dir = self.engine, self.model.base_dir
        candidate = self._built(placement)
        if self._remainder is not None and isinstance(engine, CompilesWritten):
            written = self.result(placement)
            make = partial(engine.compile_written, candidate, written, base_dir)
        else:
            make = partial(engine.compile, candidate, base_dir)
        on_built()
        made = [make() for _ in range(copies)]
        del candidate, make
        give_back_freed(self.model.weight_bytes)
        return made

    def verify(self, placement: Placement, compiled: Compiled, inputs: Tensors) -> None:
        """Raise RunError if ``compiled`` gives garbage on ``inputs``, by ONNX Runtime's results.

        Each of several execution paths is looked at: other branches of an If have other kernels.
        Engines that run on ONNX Runtime are not compared with themselves, and a candidate that it
        does not run cannot be compared.
        """
        if not self.engine.verified:
            return
        outputs_of_model = frozenset(self.model.graph.outputs)
        if self._judged is None:
            self._compare(placement, compiled.run, inputs, outputs_of_model)
            return
        outputs = self._judged.outputs
        self._compare(placement, compiled.run, inputs, outputs_of_model & outputs)
        twin = self._judged.candidates
        twin._compare(placement, self._judged.run_of(placement), inputs, outputs)

    def _compare(
        self, placement: Placement, run: Run, inputs: Tensors, outputs: frozenset[str]
    ) -> None:
        try:
            on_cpu = self._on_cpu(placement)
            references = [on_cpu.run(sample) for sample in each_path(inputs)]
        except RunError as error:
            log.info("not compared with ONNX Runtime: %s", error)
            return
        for sample, reference in zip(each_path(inputs), references, strict=True):
            compared = {name: reference[name] for name in reference if name in outputs}
            problem = invalid_output(run(sample), compared)
            if problem is not None:
                raise RunError(f"invalid output: {problem}")

    def agreement(
        self, placement: Placement, compiled: Compiled, inputs: Tensors
    ) -> tuple[float, str]:
        """How well ``compiled`` agrees with ONNX Runtime, in dB, and its worst output.

        Infinity for engines that are not compared. Raises RunError if one of the two refuses it.
        """
        if not self.engine.verified:
            return math.inf, ""
        on_cpu = self._on_cpu(placement)
        return min(least_sqnr(compiled.run(x), on_cpu.run(x)) for x in each_path(inputs))

    def runner(self, placement: Placement) -> Run:
        """What runs the candidate to judge its outputs only: no build of an engine is spent on it.

        Raises RunError if the candidate is refused.
        """
        if self._judged is not None:
            return self._judged.candidates.runner(placement)
        on_cpu = self.engine.verified or "cpu-outputs" in abilities_of(self.engine)
        return (self._on_cpu if on_cpu else self.compile)(placement).run

    def _on_cpu(self, placement: Placement) -> HalfPrecisionModel:
        return HalfPrecisionModel(self._built(placement), self.model.base_dir, threads=1)


def _with_further_outputs(candidate: Run, twin: Run) -> Run:
    """All outputs of ``candidate``, which is measured or written, and those that ``twin`` adds."""

    def run(inputs: Tensors) -> Tensors:
        return {**twin(inputs), **candidate(inputs)}

    return run


class JudgedCandidates:
    """Candidates with the ``outputs`` that accuracy is judged by beside their own.

    ``judged``: of the task's model; that of ``candidates`` may have other constants.
    """

    def __init__(
        self, candidates: Candidates, judged: Judged, choices: ReferenceChoices | None = None
    ) -> None:
        """``choices``: what gives engines the float model's choices that ONNX Runtime is not."""
        self.candidates = candidates
        self.outputs = frozenset(judged.graph.outputs)
        self.reference_choices = choices
        self._judged = judged
        self._latest: tuple[str, Run] | None = None

    def run_of(self, placement: Placement) -> Run:
        """What runs a candidate; the latest is kept, as it is compared and then judged."""
        if self._latest is None or self._latest[0] != placement.id:
            self._latest = None  # Its memory is freed first.
            self._latest = placement.id, self._built(placement)
        return self._latest[1]

    def _built(self, placement: Placement) -> Run:
        made, choices = self.candidates, self.reference_choices
        if choices is None:
            return made.compile(placement).run
        return choices.run_of(made.build(placement), made.engine, made.model.base_dir)

    def add_to(self, written: onnx.ModelProto) -> None:
        """Add what is judged to a candidate as it was written, in its base precision."""
        self._judged.add_to(written, with_opset(self._judged.model, standard_opset(written)))
