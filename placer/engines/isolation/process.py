"""The process of an isolated engine: started, watched within its limits, ended."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from placer.common.child_process import importing_alike
from placer.engines.isolation.protocol import (
    ERRORS,
    PICKLE_PROTOCOL,
    Done,
    EngineSpec,
    Failed,
    Hello,
    Request,
    Start,
    only_builds,
)
from placer.errors import InputError, PlacerError, RunError

log = logging.getLogger(__name__)


_POLL_S = 0.05


@dataclass(frozen=True)
class Limits:
    """What a worker may take; times are wall-clock seconds per call.

    ``start_s``: importing the engine and making it. ``compile_s``: also for reading a plan.
    ``memory_bytes``: resident host memory of the worker, None for no limit. It is watched, not set
    as RLIMIT_AS, because CUDA reserves far more address space than it uses; without /proc (outside
    Linux) it is not watched. ``grace_s``: what a worker gets beyond its time to write where it
    hangs, and to go once it is killed.
    """

    start_s: float = 120.0
    compile_s: float = 1800.0
    run_s: float = 300.0
    measure_s: float = 600.0
    memory_bytes: int | None = None
    grace_s: float = 2.0

    @staticmethod
    def of(compile_s: int | None, memory_gib: int | None) -> Limits:
        """Limits that a user gave; None keeps the default."""
        return Limits(
            compile_s=Limits.compile_s if compile_s is None else float(compile_s),
            memory_bytes=None if memory_gib is None else memory_gib << 30,
        )


class WorkerProcess:
    """A worker process; its engine is made when ``hello`` is first asked for."""

    def __init__(self, spec: EngineSpec, limits: Limits, logs: Logs, folder: Path) -> None:
        self.log = logs.begin(folder)
        self._spec = spec
        self._logs = logs
        self.handles: set[int] = set()
        self._limits = limits
        self._deadline: float | None = None
        self._out_of_memory = False
        self._killed = False
        ours, theirs = socket.socketpair()
        self._connection: Connection[Any, Any] = Connection(ours.detach())
        with theirs:
            self._process = _start(spec, self.log, folder, theirs.fileno())
        # A daemon, or it would keep the interpreter from exiting and so from closing the engine.
        watch = copy_context().run  # Messages go to the log of the run that it belongs to.
        threading.Thread(target=watch, args=[self._watch], daemon=True).start()

    @cached_property
    def hello(self) -> Hello:
        """What the engine says of itself; raises what ``call`` raises."""
        hello: Hello = self.call(Request(Start(self._spec), "starting", self._limits.start_s))
        return hello

    @property
    def pid(self) -> int | None:
        """None once it has ended."""
        return self._process.pid if self.is_alive() else None

    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def is_ready(self) -> bool:
        """Whether it can be asked; between calls there is nothing to read but the end."""
        return not self._killed and self.is_alive() and not self._connection.poll()

    def call(self, request: Request) -> Any:
        """Return the worker's answer.

        Raises the worker's error, or RunError that says what became of the worker. The worker is
        dead afterwards unless it was a model that the engine refused to compile or to describe.
        """
        healthy = False
        start = time.monotonic()
        self._deadline = start + request.seconds + self._limits.grace_s
        try:
            self._connection.send_bytes(pickle.dumps(request, PICKLE_PROTOCOL))
            reply: Done | Failed = pickle.loads(self._connection.recv_bytes())
            # An error on the device breaks all that the process does on it later.
            refused = isinstance(reply, Failed) and reply.error is not None and reply.device_works
            healthy = isinstance(reply, Done) or (refused and only_builds(request.command))
        except (EOFError, OSError) as error:
            late = time.monotonic() - start >= request.seconds  # Then it stopped itself.
            raise RunError(self._what_happened(request, late)) from error
        finally:
            self._deadline = None
            if not healthy:  # Also after an interrupt: its answer must not be taken for the next.
                self.kill()
        if isinstance(reply, Failed):
            raise self._error(reply, request)
        return reply.value

    def kill(self) -> None:
        """Kill the worker with its children; may be called again."""
        self._kill_group()
        try:
            self._process.wait(self._limits.grace_s)
        except subprocess.TimeoutExpired:  # It hangs in a driver, where no signal reaches it.
            log.warning("engine worker %d cannot be killed", self._process.pid)
        self._connection.close()

    def _kill_group(self) -> None:
        if self._killed:  # By now its number may be another group's.
            return
        self._killed = True
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _watch(self) -> None:
        """Kill the worker's group once it is late, too large, or has lost its first process."""
        limit = self._limits.memory_bytes
        while self.is_alive():
            deadline = self._deadline
            self._out_of_memory = limit is not None and _resident(self._process.pid) > limit
            # The worker stops itself when its time is up, unless even that hangs.
            if self._out_of_memory or (deadline is not None and time.monotonic() > deadline):
                break
            time.sleep(_POLL_S)
        self._kill_group()

    def _what_happened(self, request: Request, late: bool) -> str:
        try:
            code: int | None = self._process.wait(self._limits.grace_s)
        except subprocess.TimeoutExpired:
            code = None
        if self._out_of_memory and self._limits.memory_bytes is not None:
            limit = f"{self._limits.memory_bytes / 1e6:.0f} MB"
            happened = f"took more than {limit} of memory and was stopped"
        elif late:
            happened = f"took more than {request.seconds:g} s and was stopped"
        elif code is None:
            happened = "closed its connection"
        elif code < 0:
            happened = f"crashed (signal {-code})"
        else:
            happened = f"exited with status {code}"
        return f"the engine {happened} while {request.stage}; its log is {self._kept_log()}"

    def _error(self, reply: Failed, request: Request) -> PlacerError:
        if reply.error is not None:
            return ERRORS[reply.error](reply.text)
        return RunError(
            f"the engine failed while {request.stage}: {reply.text}; its log is {self._kept_log()}"
        )

    def _kept_log(self) -> Path:
        self.log = self._logs.keep(self.log)
        return self.log


def _start(
    spec: EngineSpec, log_file: Path, folder: Path, connection: int
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "placer.engines.isolation.server"]
    try:
        with log_file.open("ab") as out:
            return subprocess.Popen(
                [*command, str(connection), str(os.getpid()), str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=[connection],
                env=_environment(spec, folder),
                start_new_session=True,  # A group to kill as a whole; out of reach of Ctrl-C.
            )
    except OSError as error:
        raise RunError(
            f"cannot start a process for the engine: {error}; free some memory"
        ) from error


def _environment(spec: EngineSpec, folder: Path) -> dict[str, str]:
    """The worker's environment, in which it imports the same modules as this process."""
    added = {
        "PYTHONUNBUFFERED": "1",  # A crash loses what was not written.
        "TMPDIR": str(folder / "tmp"),
    }
    if spec.device is not None:
        added["CUDA_VISIBLE_DEVICES"] = spec.device
    return {**importing_alike(), **added}


def _resident(pid: int) -> int:
    """Resident memory of a process in bytes; 0 if it is gone or the system has no /proc."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    return 0


class Logs:
    """Where workers log: in ``folder``, or only those that failed if not all are to be kept."""

    def __init__(self, folder: Path, *, keep: bool) -> None:
        """Raises InputError if all are to be kept and the folder cannot be made."""
        self._folder = folder
        self._keep_all = keep
        if keep:
            self._make_folder()

    def begin(self, temporary: Path) -> Path:
        """A log for a new worker; of no use if it does not fail, it is in ``temporary``.

        Raises InputError if none can be written.
        """
        return _new_log(self._folder if self._keep_all else temporary)

    def keep(self, log_file: Path) -> Path:
        """Where ``log_file`` of a worker that failed is from now on."""
        if self._keep_all or log_file.parent == self._folder:
            return log_file
        try:
            self._make_folder()
            return Path(shutil.copyfile(log_file, _new_log(self._folder)))
        except (OSError, InputError) as error:
            log.warning("the engine's log is lost: %s", error)
            return log_file

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot create {self._folder} for the engine's logs: {error.strerror}; choose "
                "another folder"
            ) from error


def _new_log(folder: Path) -> Path:
    """Create the first ``worker-<number>.log`` that does not exist; InputError if it cannot be."""
    for number in itertools.count(1):
        path = folder / f"worker-{number}.log"
        try:
            path.open("xb").close()
        except FileExistsError:
            continue
        except OSError as error:
            raise InputError(
                f"cannot write {path}: {error.strerror}; choose another folder"
            ) from error
        break
    return path
