"""The steps of the suite, in order; each says what it saw, or why the engine cannot do it."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx

from placer.checkup.networks import attention, convolutions
from placer.checkup.step import Failed, Outcome, Skipped, Step, attempt
from placer.checkup.subject import RequestedEngine, Subject, sqnr
from placer.common.statistics import paired_ratio
from placer.engines.abilities import (
    HasImplicit,
    LoadsEngines,
    SavesItself,
    abilities_of,
    target_of,
)
from placer.engines.base import Compiled, Engine
from placer.engines.conditions import conditions_of
from placer.engines.isolation import IsolatedEngine
from placer.engines.times import measured_seconds
from placer.errors import InputError, RunError
from placer.graph.shapes import ShapeRange
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.run import optimize
from placer.plan.diff import diff_plans
from placer.plan.json_format import plan_json
from placer.quantization import EMPTY
from placer.rules.pack import Pack

ROUNDS = 31
# Least SQNR in dB against ONNX Runtime on the same graph: TF32 counts as float32, and integers and
# FP8 are rounded in other places than ONNX Runtime rounds them. Garbage is at 0 dB or below.
FLOAT32_DB, FLOAT16_DB, INT8_DB, FLOAT8_DB = 40.0, 35.0, 20.0, 15.0
_SAME_ENGINE = 0.05  # How far the ratio of an engine to itself may be from 1.
_CRASH_AFTER_S = 0.2


class Suite:
    """Runs the steps on the engine that was ``asked`` for; files are written to ``folder``."""

    def __init__(self, asked: RequestedEngine, engine: Engine, pack: Pack, folder: Path) -> None:
        self._asked, self._engine, self._pack, self._folder = asked, engine, pack, folder

    def steps(self) -> Iterator[Step]:
        """Do one step after the other."""
        steps: tuple[tuple[str, Callable[[], Outcome]], ...] = (
            ("FP32", self.float32),
            ("FP16", self.float16),
            ("INT8", self.int8),
            ("INT8, attention", self.int8_attention),
            ("FP8", self.float8),
            ("the same engine twice", self.repeat),
            ("CUDA graph", self.graph_capture),
            ("times of layers", self.profile),
            ("predicted and built layers", self.compare_plans),
            ("dynamic shapes", self.dynamic_shapes),
            ("saved engine", self.saved_engine),
            ("implicit INT8", self.implicit),
            ("two processes on one device", self.two_processes),
            ("forced crash", self.crash),
            ("search with a gate", self.search),
        )
        for name, do in steps:
            yield attempt(name, do)

    @cached_property
    def _subject(self) -> Subject:
        return Subject.of(convolutions(self._folder), self._engine, self._pack)

    @cached_property
    def _float(self) -> Compiled:
        return self._subject.compile(self._subject.model.proto)

    @cached_property
    def _int8(self) -> Compiled:
        return self._subject.compile(self._subject.candidate(self._subject.placement()))

    def float32(self) -> Outcome:
        """The float model as it is."""
        return agrees(self._subject, self._subject.model.proto, FLOAT32_DB, self._float)

    def float16(self) -> Outcome:
        """The float model with FP16 tensors."""
        if self._subject.base != "float16":
            kept = "computes in the type of `base`" if self._engine.remainder == "computed" else (
                "keeps the types of the model"
            )  # fmt: skip
            raise Skipped(f"placer builds no FP16 for engine {self._engine.name}, which {kept}")
        return agrees(self._subject, self._subject.candidate(EMPTY), FLOAT16_DB)

    def int8(self) -> Outcome:
        """The pack's default placement, its outputs and its latency against the float model's."""
        subject = self._subject
        proto = subject.candidate(subject.placement())
        outcome = agrees(subject, proto, INT8_DB, self._int8)
        seconds = measured_seconds(self._engine, [self._float, self._int8], subject.inputs, ROUNDS)
        ratio = paired_ratio(seconds[:, 1], seconds[:, 0])
        low, high = ratio.low, ratio.high
        said = f"{outcome.said}; latency {ratio.median:.2f} of float ({low:.2f} to {high:.2f})"
        return Outcome(said, {"median_us": (1e6 * np.median(seconds, axis=0)).tolist()})

    def int8_attention(self) -> Outcome:
        """A transformer block with the pack's default placement."""
        subject = Subject.of(attention(self._folder), self._engine, self._pack)
        return agrees(subject, subject.candidate(subject.placement()), INT8_DB)

    def float8(self) -> Outcome:
        """The same network in the pack's FP8 scheme."""
        if "fp8" not in self._pack.manifest.alternatives:
            raise Skipped(f"pack {self._pack.manifest.name} has no FP8 scheme")
        try:
            pack = self._pack.with_scheme("fp8", target_of(self._engine))
        except InputError as error:
            raise Skipped(str(error)) from error
        subject = Subject.of(convolutions(self._folder), self._engine, pack)
        return agrees(subject, subject.candidate(subject.placement()), FLOAT8_DB)

    def repeat(self) -> Outcome:
        """One compiled model, measured twice in one series."""
        seconds = measured_seconds(
            self._engine, [self._float] * 2, self._subject.inputs, 2 * ROUNDS
        )
        ratio = paired_ratio(seconds[:, 1], seconds[:, 0])
        said = f"ratio {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
        if not ratio.low <= 1 <= ratio.high and abs(ratio.median - 1) > _SAME_ENGINE:
            raise Failed(f"{said}: latencies cannot be trusted here; is the machine busy?")
        return Outcome(f"{1e6 * float(np.median(seconds)):.1f} us, {said}")

    def graph_capture(self) -> Outcome:
        """Whether the float model was measured as a CUDA graph."""
        conditions = conditions_of(self._engine)
        if conditions is None:
            raise Skipped(f"engine {self._engine.name} measures without CUDA graphs")
        if not all(conditions.captured):
            raise Failed("the engine could not be captured; it is measured launch by launch")
        slowed = ", ".join(conditions.throttled_by) or "nothing"
        return Outcome(f"captured; the GPU was slowed by {slowed}")

    def profile(self) -> Outcome:
        """The layers of the default placement with the engine's own times."""
        plan = self._int8.plan(self._subject.inputs)
        timed = [layer for layer in plan.layers if layer.time_us is not None]
        if not plan.layers:
            raise Failed("the engine tells no layers")
        if not timed:
            raise Skipped(f"engine {self._engine.name} does not time its {len(plan.layers)} layers")
        total = sum(layer.time_us or 0.0 for layer in timed)
        said = f"{len(timed)} of {len(plan.layers)} layers timed, {total:.1f} us together"
        return Outcome(said, {"plan": plan_json(plan)})

    def compare_plans(self) -> Outcome:
        """What the pack's rules predict and what was built; a difference is no failure."""
        predicted = self._subject.predicted(self._subject.placement())
        diff = diff_plans(predicted, self._int8.plan())
        score = diff.by_nodes
        said = (
            f"{score.matched} of {score.predicted} predicted layers are among the {score.actual} "
            f"built; of the conversions, {diff.false_conversions} are predicted and not built, "
            f"{diff.missed_conversions} built and not predicted"
        )
        return Outcome(said, {"predicted": plan_json(predicted), "differences": diff.sentences})

    def dynamic_shapes(self) -> Outcome:
        """An engine for a range of batches, run at both ends of it and within."""
        path = convolutions(self._folder, "batch")
        given = ShapeRange((1, 3, 64, 64), (4, 3, 64, 64), (8, 3, 64, 64))
        engine, pack = self._asked.make({"image": given})
        ranged = "shape-ranges" in abilities_of(engine)
        subject = Subject.of(path, engine, pack)
        compiled = engine.compile(subject.model.proto, subject.model.base_dir)
        batches = (1, 4, 8) if ranged else (4,)
        for batch in batches:
            images = np.repeat(subject.inputs["image"], batch, axis=0)
            outputs = compiled.run({"image": images})
            if outputs["scores"].shape != (batch, 10) or not np.isfinite(outputs["scores"]).all():
                raise Failed(f"batch {batch} gives {outputs['scores'].shape} or is not finite")
        _close(engine)
        only = "" if ranged else f"; engine {engine.name} builds for one shape"
        return Outcome(f"runs with batch {', '.join(map(str, batches))}{only}")

    def saved_engine(self) -> Outcome:
        """Written to a file, loaded from it and run."""
        if "saved-engines" not in abilities_of(self._engine):
            raise Skipped(f"engine {self._engine.name} loads no saved engines")
        if not isinstance(self._float, SavesItself) or not isinstance(self._engine, LoadsEngines):
            raise Skipped(f"engine {self._engine.name} writes none")
        path = self._folder / "saved.engine"
        self._float.save(path)
        inputs = self._subject.inputs
        distance_db = sqnr(self._engine.load(path).run(inputs), self._float.run(inputs))
        if not distance_db >= FLOAT32_DB:
            raise Failed(
                f"the loaded engine's outputs are {distance_db:.1f} dB from the saved one's"
            )
        return Outcome(f"{path.stat().st_size} bytes, loaded and run")

    def implicit(self) -> Outcome:
        """The engine's own quantization of the float model."""
        if "implicit" not in abilities_of(self._engine) or not isinstance(
            self._engine, HasImplicit
        ):
            raise Skipped("only TensorRT up to 10 has implicit quantization")
        subject = self._subject
        samples = [sample.inputs for sample in subject.data]
        model = subject.model
        built = self._engine.compile_implicit(model.proto, model.base_dir, samples)
        distance_db = sqnr(built.run(subject.inputs), subject.on_cpu(model.proto))
        if not distance_db >= FLOAT8_DB:
            raise Failed(f"its outputs are {distance_db:.1f} dB from the float model's")
        return Outcome(f"calibrated; outputs are {distance_db:.0f} dB from the float model's")

    def two_processes(self) -> Outcome:
        """Two workers measure on the same device at the same time."""
        self._isolated()
        engines = [self._asked.make()[0] for _ in range(2)]
        subjects = [replace(self._subject, engine=engine) for engine in engines]
        failures: list[RunError] = []

        def work(subject: Subject) -> None:
            try:
                compiled = subject.compile(subject.model.proto)
                measured_seconds(subject.engine, [compiled], subject.inputs, ROUNDS)
            except RunError as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(subject,)) for subject in subjects]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for engine in engines:
            _close(engine)
        if failures:
            raise failures[0]
        return Outcome("both built and measured")

    def crash(self) -> Outcome:
        """Kill the worker as a crash would while it measures; the next call must go on."""
        engine = self._isolated()
        before = self._float.run(self._subject.inputs)
        pid = engine.worker_pid
        assert pid is not None  # It has just answered.
        timer = threading.Timer(_CRASH_AFTER_S, os.kill, (pid, signal.SIGSEGV))
        timer.start()
        try:
            engine.measure([self._float], self._subject.inputs, 100_000)
        except RunError as error:
            said = str(error).partition("; its log")[0]
        else:
            raise Failed("a crash of the worker went unnoticed")
        finally:
            timer.cancel()
        if not sqnr(self._float.run(self._subject.inputs), before) >= FLOAT32_DB:
            raise Failed("after the crash the outputs were others")
        return Outcome(f"noticed ({said}), and gone on in a new worker")

    def _isolated(self) -> IsolatedEngine:
        if not isinstance(self._engine, IsolatedEngine):
            raise Skipped(f"engine {self._engine.name} runs in placer's own process")
        return self._engine

    def search(self) -> Outcome:
        """A few trials from end to end."""
        output = self._folder / "search"
        request = Request(
            model=convolutions(self._folder),
            output=output,
            engine=self._asked.engine,
            engine_options=self._asked.extra,
            threads=self._asked.threads,
            device=self._asked.device,
            preset="quick",
            budget=4,
            gates=("sqnr>=10",),
        )
        result = optimize(request, QuietObserver())
        failed = [trial.error for trial in result.trials if trial.error]
        if len(failed) == len(result.trials):
            raise Failed(f"every trial failed: {failed[0] if failed else 'there was none'}")
        said = f"{result.verdict}, {len(result.trials)} trials, {len(failed)} failed"
        return Outcome(said, {"errors": failed})


def agrees(
    subject: Subject,
    proto: onnx.ModelProto,
    least: float,
    compiled: Compiled | None = None,
) -> Outcome:
    """Whether ``proto``'s outputs are at least ``least`` dB from ONNX Runtime's; Failed if not."""
    compiled = compiled or subject.compile(proto)
    distance_db = sqnr(compiled.run(subject.inputs), subject.on_cpu(proto))
    if math.isnan(distance_db) or distance_db < least:
        raise Failed(
            f"outputs are {distance_db:.1f} dB from ONNX Runtime's, {least:.0f} are needed"
        )
    near = "the same as" if math.isinf(distance_db) else f"{distance_db:.0f} dB from"
    return Outcome(f"outputs are {near} ONNX Runtime's")


def _close(engine: Engine) -> None:
    if isinstance(engine, IsolatedEngine):
        engine.close()
