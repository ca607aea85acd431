"""The onboarding itself: models one after another or several at once, until all have ended."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType

from filelock import FileLock, Timeout

from placer.common.files import make_output_folder, write_bytes
from placer.errors import InputError, PlacerError
from placer.model import check_file
from placer.onboarding.executors import Begun, Executor
from placer.onboarding.junit import junit_xml
from placer.onboarding.manifest import Onboarding
from placer.onboarding.planning import Planned, clean_up, make_ready, plan, settle
from placer.onboarding.process import Outcome
from placer.report import write_report
from placer.results.folder import OnboardingFolder, OutputFolder
from placer.results.onboarding import (
    WITHOUT_RESULT,
    ModelSummary,
    Record,
    State,
    Summary,
    exit_code_of,
)
from placer.results.parts import GatePart
from placer.results.result import Result, versions

_POLL_S = 0.05
_LOCK = ".onboarding.lock"
Tell = Callable[[str], None]


@dataclass
class _Progress:
    """How one model stands; ``result`` is that of its state, not what an earlier run left."""

    planned: Planned
    folder: Path
    state: State = "waiting"
    reason: str = ""
    seconds: float | None = None
    result: Result | None = None
    ran: bool = False
    device: str | None = None


@dataclass
class _Signals:
    """How often the user has asked to stop."""

    count: int = 0

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


class Run:
    """One run over the models of a manifest; ``summary.json`` and ``junit.xml`` follow it."""

    def __init__(
        self, onboarding: Onboarding, planned: Sequence[Planned], executor: Executor
    ) -> None:
        self._onboarding = onboarding
        self._executor = executor
        self._files = OnboardingFolder(onboarding.output)
        self._progress = [_progress(one) for one in planned]
        self._begin = time.monotonic()
        self._started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._warnings = _warnings(onboarding, planned)

    def summary(self) -> Summary:
        """How all models stand now."""
        states = [one.state for one in self._progress]
        ended = not {"waiting", "running"} & set(states)
        return Summary(
            manifest=str(self._onboarding.manifest),
            exit_code=exit_code_of(states) if ended else None,
            started=self._started,
            seconds=round(time.monotonic() - self._begin, 3),
            versions=dict(versions()),
            warnings=self._warnings,
            models=[_model_summary(one, self._onboarding.output) for one in self._progress],
        )

    def go(self, tell: Tell) -> Summary:
        """Run what is to be run; InputError if the output folder cannot be written.

        SIGINT and SIGTERM let the models that are running end with the best so far, another one
        kills them; both leave a summary.
        """
        for warning in self._warnings:
            tell(f"warning: {warning}")
        waiting = deque(one for one in self._progress if one.planned.action != "nothing")
        running: list[tuple[_Progress, Begun]] = []
        heard = 0
        self._write()
        with _listening() as asked:
            while running or (waiting and not asked.count):
                if asked.count > heard:
                    heard = asked.count
                    _stop([process for _, process in running], heard, tell)
                if not heard:
                    running += self._begun(waiting, len(running), tell)
                time.sleep(_POLL_S)
                running = [pair for pair in running if not self._has_ended(*pair, tell)]
            for one in waiting:
                one.state, one.reason = "interrupted", "not begun; the same command goes on with it"
                one.ran = True
        summary = self._write()
        self._write_report(tell)
        return summary

    def _begun(
        self, waiting: deque[_Progress], count: int, tell: Tell
    ) -> list[tuple[_Progress, Begun]]:
        """Those of ``waiting`` for which there is room beside ``count`` that run, begun."""
        begun: list[tuple[_Progress, Begun]] = []
        while waiting and self._executor.has_room(count + len(begun)):
            one = waiting.popleft()
            if not self._refused(one, tell):
                begun.append((one, self._start(one, tell)))
        return begun

    def _write_report(self, tell: Tell) -> None:
        try:
            write_report(self._onboarding.output)
        except PlacerError as error:  # Everything else is written; it can be drawn again.
            tell(f"warning: no {self._files.report.name}: {error}")

    def _start(self, one: _Progress, tell: Tell) -> Begun:
        planned = one.planned
        make_ready(planned)
        process = self._executor.start(planned, self._onboarding.folder)
        one.state, one.folder, one.device, one.ran = "running", planned.folder, process.device, True
        on = f" on device {process.device}" if process.device is not None else ""
        tell(f"{planned.job.name}: {planned.action}{on}: {planned.why}")
        self._write()
        return process

    def _refused(self, one: _Progress, tell: Tell) -> bool:
        """Whether the file is no model at all: that is known without a process of its own."""
        folder, begin = self._onboarding.folder, time.monotonic()
        try:
            check_file(folder / one.planned.job.model)
        except InputError as error:
            make_ready(one.planned)
            one.ran = True
            seconds = round(time.monotonic() - begin, 3)
            reason = str(error).replace(f"{folder}{os.sep}", "")  # As a process there says it.
            self._settle(one, Outcome("bad input", reason, seconds=seconds), tell)
            return True
        return False

    def _has_ended(self, one: _Progress, process: Begun, tell: Tell) -> bool:
        outcome = process.poll()
        if outcome is None:
            return False
        self._executor.ended(process)
        self._settle(one, outcome, tell)
        return True

    def _settle(self, one: _Progress, outcome: Outcome, tell: Tell) -> None:
        record = Record(
            state=outcome.state,
            reason=outcome.reason,
            inputs=dict(one.planned.inputs),
            seconds=outcome.seconds,
        )
        one.folder = settle(one.planned, record)
        one.state, one.reason, one.seconds = outcome.state, outcome.reason, outcome.seconds
        one.result, one.device = outcome.result, outcome.where or one.device
        on = f" on {outcome.where}" if outcome.where else ""
        tell(f"{one.planned.job.name}: {one.state}, {one.seconds:.1f} s{on}: {one.reason}")
        self._write()

    def _write(self) -> Summary:
        summary = self.summary()
        summary.write(self._files.summary)
        write_bytes(self._files.junit, junit_xml(summary))
        return summary


def onboard(
    onboarding: Onboarding, redo: frozenset[str] | None, tell: Tell, executor: Executor
) -> Summary:
    """Optimize what has changed on ``executor``; ``redo``: what to begin anew, None for all.

    Raises InputError if the output folder cannot be written or another run uses it; what goes
    wrong with a model is its state.
    """
    folder = onboarding.output
    make_output_folder(folder)
    lock = FileLock(folder / _LOCK)
    try:
        with lock.acquire(timeout=0):
            for job in onboarding.jobs:
                clean_up(folder / job.name)
            planned = plan(onboarding, redo, executor.describe)
            return Run(onboarding, planned, executor).go(tell)
    except Timeout as error:
        raise InputError(
            f"another placer onboard works in {folder}; wait for it or choose another `output`"
        ) from error


def _progress(planned: Planned) -> _Progress:
    progress = _Progress(planned, planned.folder)
    kept = planned.kept
    if planned.action == "nothing" and kept is not None:
        progress.state, progress.reason, progress.seconds = kept.state, kept.reason, kept.seconds
        progress.result = None if kept.state in WITHOUT_RESULT else Result.read(planned.folder)
    return progress


def _warnings(onboarding: Onboarding, planned: Sequence[Planned]) -> list[str]:
    if onboarding.executor is not None:  # A worker each; what they share is for the user to know.
        return []
    sharing = sum(one.described.shares_cpu and one.action != "nothing" for one in planned)
    if sharing < 2 or len(onboarding.slots) < 2:
        return []
    return [
        f"up to {len(onboarding.slots)} models at once are measured on this machine's CPU and "
        "disturb one another; use one job for latencies to rely on"
    ]


def _stop(running: Sequence[Begun], asked: int, tell: Tell) -> None:
    if asked == 1:
        tell("interrupted: models that are running end with the best so far (again to quit)")
    for one in running:
        if asked == 1:
            one.interrupt()
        else:
            one.kill()


@contextmanager
def _listening() -> Iterator[_Signals]:
    """Count SIGINT and SIGTERM meanwhile, instead of dying of them."""
    asked = _Signals()
    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _model_summary(one: _Progress, out: Path) -> ModelSummary:
    planned, result, files = one.planned, one.result, OutputFolder(one.folder)
    engine = None if result is None else f"{result.engine.name} {result.engine.version}"
    best = None if result is None else result.best
    return ModelSummary(
        name=planned.job.name,
        model=planned.job.model,
        state=one.state,
        ran=one.ran,
        why=planned.why,
        reason=one.reason,
        folder=os.path.relpath(one.folder, out),
        result=None if result is None else os.path.relpath(files.result, out),
        engine=None if result is None else f"{engine}, {result.engine.device}",
        pack=None if result is None else f"{result.pack.name} {result.pack.version}",
        device=one.device,
        target=planned.job.target or None,
        of=planned.job.of or None,
        estimated=None if result is None else result.engine.estimated,
        float_ms=_float_ms(result),
        best_ms=None if best is None or best.latency is None else best.latency.median_ms,
        float_per_second=_float_per_second(result),
        best_per_second=None if best is None or best.latency else best.throughput.batches_per_s,
        speedup=None if best is None else best.speedup,
        speedup_interval=None if best is None else best.speedup_interval,
        gates=_gates(result),
        trials=None if result is None else len(result.trials),
        seconds=one.seconds,
    )


def _float_ms(result: Result | None) -> float | None:
    """The float model's latency, of its trial if no candidate was confirmed against it."""
    if result is None:
        return None
    if result.baseline is not None:
        latency = result.baseline.latency
        return None if latency is None else latency.median_ms
    return next((trial.latency_ms for trial in result.trials if trial.kind == "none"), None)


def _float_per_second(result: Result | None) -> float | None:
    """The float model's inferences per second where throughput is the objective."""
    if result is None or result.objective != "throughput":
        return None
    if result.baseline is not None:
        return result.baseline.throughput.batches_per_s
    rates = (trial.throughput for trial in result.trials if trial.kind == "none")
    return next((rate.batches_per_s for rate in rates if rate is not None), None)


def _gates(result: Result | None) -> list[GatePart]:
    """Gates of the result; if none is met, those of the candidate that misses the fewest."""
    if result is None:
        return []
    if result.best is not None:
        return result.best.gates
    judged = [trial.gates for trial in result.trials if trial.gates and trial.kind != "none"]
    return min(judged, key=lambda gates: sum(not gate.passed for gate in gates), default=[])
