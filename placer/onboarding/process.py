"""One model in a process of its own: ``placer optimize``, watched, and what became of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from placer.errors import InputError, NothingToQuantizeError
from placer.onboarding.describe import child_environment
from placer.onboarding.manifest import Job
from placer.onboarding.planning import Planned
from placer.optimizer.options.command import words_of
from placer.results.folder import OutputFolder
from placer.results.onboarding import NOTHING, STATE_OF, State
from placer.results.result import Result
from placer.results.verdict import Verdict

_ERROR = "placer: error: "
# Of what a process printed, the part that is searched for its error.
_TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class Outcome:
    """How a model's process ended; ``result`` is None unless it settled anything.

    ``where``: the worker that it ran on, empty for this machine.
    """

    state: State
    reason: str
    result: Result | None = None
    seconds: float = 0.0
    where: str = ""


@dataclass
class Running:
    """A model's process. It leads a process group, which is killed as a whole."""

    planned: Planned
    device: str | None
    process: subprocess.Popen[bytes]
    log: Path
    log_begin: int
    begin: float = field(default_factory=time.monotonic)
    stopping: bool = False
    out_of_time: bool = False

    def interrupt(self) -> None:
        """Ask it to end with the best so far."""
        self.stopping = True
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End it and all that it started at once."""
        self._signal(signal.SIGKILL)

    def poll(self) -> Outcome | None:
        """How it ended, None while it runs; kills it if its time is over."""
        limit = self.planned.job.time_limit
        if limit is not None and not self.out_of_time and self._seconds > limit:
            self.out_of_time = True
            self.kill()
        code = self.process.poll()
        if code is None:
            return None
        self.kill()  # Whatever it has left behind: it may hold the device.
        if self.process.stdin is not None:
            self.process.stdin.close()
        return replace(self._outcome(code), seconds=round(self._seconds, 3))

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self.begin

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM if all have ended.
            os.killpg(self.process.pid, number)

    def _outcome(self, code: int) -> Outcome:
        if code in (0, 3):
            return self._with_result()
        if self.out_of_time:
            limit = self.planned.job.options.time_limit
            return Outcome("timed out", f"killed after its time_limit, {limit}")
        if self.stopping:
            return Outcome("interrupted", "interrupted; the same command goes on with it")
        error = self._error()
        if code == NothingToQuantizeError.child_code and error:
            return Outcome(NOTHING, error)
        if code == 2 and error:
            return Outcome("bad input", error)
        if code == 1 and error:
            return Outcome("failed", error)
        last = f" with {self._last_line()}" if code > 0 else ""
        log = f"{self.log.parent.name}/{self.log.name}"
        return Outcome("crashed", f"{_death(code)}{last}; see {log}")

    def _with_result(self) -> Outcome:
        try:
            result = Result.read(self.planned.folder)
        except InputError as error:
            return Outcome("crashed", f"ended without a result: {error}")
        if result.budget.stopped == "interrupted":
            reason = "interrupted; the best so far is kept, the same command goes on"
            return Outcome("interrupted", reason)
        faster = "estimated faster" if result.engine.estimated else "measurably faster"
        reasons = {
            Verdict.FASTER: f"meets the gates and is {faster} than float",
            Verdict.CANNOT_TELL: "meets the gates, and is estimated faster than float by less than "
            "the error of estimates",
            Verdict.NO_DIFFERENCE: f"no candidate that meets the gates is {faster} than float",
            Verdict.INCONCLUSIVE: self._error() or "its measurements disagree too much",
            Verdict.GATE_NOT_MET: self._error() or "no candidate meets the gates",
        }
        return Outcome(STATE_OF[result.verdict], reasons[result.verdict], result)

    def _error(self) -> str | None:
        """The sentence that placer ended with."""
        errors = [line for line in self._lines() if line.startswith(_ERROR)]
        return errors[-1].removeprefix(_ERROR) if errors else None

    def _last_line(self) -> str:
        return next((line.strip() for line in reversed(self._lines()) if line.strip()), "no output")

    def _lines(self) -> list[str]:
        with self.log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self.log_begin, end - _TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace").splitlines()


def start(planned: Planned, device: str | None, folder: Path) -> Running:
    """Start ``placer optimize`` for ``planned`` in ``folder``, the manifest's.

    placer.lock, modules and relative paths are those of that folder.
    """
    device = device if planned.described.takes_device else None
    log = OutputFolder(planned.folder).process_log
    command = [sys.executable, "-X", "faulthandler", "-m", "placer.cli.child"]
    command += arguments(planned.job, planned.folder, device)
    with log.open("ab") as out:
        begin = out.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # Ends when this process does, see placer.cli.child.
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=child_environment(),
            start_new_session=True,  # A group of its own; Ctrl-C reaches it through this process.
        )
    return Running(planned, device, process, log, begin)


def arguments(job: Job, output: Path, device: str | None) -> list[str]:
    """The command line of ``placer`` for ``job``."""
    given = {**job.options.model_dump(), "output": str(output), "device": device}
    return ["optimize", job.model, *words_of(given)]


def _death(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    memory = ", for want of memory as a rule" if -code == signal.SIGKILL else ""
    return f"died of {name}{memory}"
