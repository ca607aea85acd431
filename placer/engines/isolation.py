"""An engine in a worker process: its crash, hang or lack of memory is a RunError, no more.

Vendor libraries crash, hang and leave a broken CUDA context behind. ``IsolatedEngine`` keeps them
in a process of their own, which is replaced when it fails. Needs a POSIX system.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import onnx

from placer.edit import all_tensors
from placer.engines.abilities import Ability
from placer.engines.base import Compiled, Remainder, Tensors
from placer.engines.conditions import Conditions
from placer.errors import GateError, InputError, PlacerError, RunError
from placer.external import MAX_INLINE_BYTES, is_external, tensor_bytes
from placer.model import save_model
from placer.plan import Plan
from placer.rules.target import Target
from placer.shapes import InputType

__all__ = ["EngineSpec", "IsolatedCompiled", "IsolatedEngine", "IsolatedSaved", "Limits"]

log = logging.getLogger(__name__)

_POLL_S = 0.05
PICKLE_PROTOCOL = 5  # The first that does not copy arrays once more.
# The most specific class comes first: a worker names the first one that an error is of.
ERRORS: tuple[type[PlacerError], ...] = (InputError, RunError, GateError, PlacerError)


@dataclass(frozen=True)
class EngineSpec:
    """How a worker makes its engine: ``module.factory(**arguments)``.

    ``arguments`` must be picklable. ``device``: the value of CUDA_VISIBLE_DEVICES in the worker,
    None to keep this process's.
    """

    module: str
    factory: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None


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


@dataclass(frozen=True)
class Start:
    """Make the engine; answered with a ``Hello``."""

    spec: EngineSpec


@dataclass(frozen=True)
class Hello:
    """The attributes of the worker's engine; see ``Engine`` and ``placer.engines.abilities``."""

    name: str
    rules: str
    estimated: bool
    verified: bool
    remainder: Remainder
    version: str
    device: str
    clock: str
    target: Target
    abilities: frozenset[Ability]


@dataclass(frozen=True)
class Compile:
    """Compile the ONNX file at ``path`` and keep the result as ``handle``; answered with None."""

    handle: int
    path: str
    base_dir: str


@dataclass(frozen=True)
class CompileImplicit:
    """The same without Q/DQ pairs, calibrated on the ``samples`` of a ``SampleFile``."""

    handle: int
    path: str
    base_dir: str
    samples: str


@dataclass(frozen=True)
class Load:
    """Load the saved engine at ``path`` as ``handle``; answered with its inputs."""

    handle: int
    path: str


@dataclass(frozen=True)
class Run:
    """Run ``handle``; answered with its outputs by name."""

    handle: int
    inputs: dict[str, np.ndarray]


@dataclass(frozen=True)
class ReadPlan:
    """Answered with the Plan of ``handle``, profiled if there are ``inputs``."""

    handle: int
    inputs: dict[str, np.ndarray] | None = None


@dataclass(frozen=True)
class Measure:
    """Answered with ``Measured``."""

    handles: tuple[int, ...]
    inputs: dict[str, np.ndarray]
    rounds: int


@dataclass(frozen=True)
class Measured:
    """Seconds, shape (rounds, len(handles)), and how the measurement went."""

    seconds: np.ndarray
    conditions: Conditions | None


@dataclass(frozen=True)
class ReadMemory:
    """Answered with the device memory of ``handle`` in bytes, None if the engine cannot tell."""

    handle: int
    inputs: dict[str, np.ndarray]


Build: TypeAlias = Compile | CompileImplicit | Load
Command: TypeAlias = Start | Build | Run | ReadPlan | Measure | ReadMemory


@dataclass(frozen=True)
class Request:
    """A command to the worker.

    ``stage``: what it does in words. ``seconds``: its time. ``dropped``: handles that nobody holds
    any more; the worker forgets them first.
    """

    command: Command
    stage: str
    seconds: float
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True)
class Done:
    """The worker's answer."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """The error that the worker's engine raised: its sentence and index in ``ERRORS``.

    ``error`` is None for an exception that is not placer's.
    """

    text: str
    error: int | None


@dataclass(frozen=True)
class _Stored:
    """How any worker can make a handle, and the ``files`` on disk that go with it."""

    build: Build
    files: tuple[Path, ...]


@dataclass(frozen=True)
class SampleFile:
    """Inputs by name, one pickle after the other; can be iterated any number of times."""

    path: Path

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield the samples, of which only one is in memory."""
        with self.path.open("rb") as file:
            while file.peek(1):
                yield pickle.load(file)

    def write(self, samples: Iterable[Tensors]) -> None:
        """Make the file."""
        with self.path.open("wb") as file:
            for sample in samples:
                pickle.dump(dict(sample), file, PICKLE_PROTOCOL)


class IsolatedEngine:
    """The engine of ``start``, living in a worker process; see ``Engine``.

    The worker's output goes to ``worker-<number>.log`` in ``log_dir``, one file per worker; logs
    are kept. A worker that crashes, hangs, exceeds its memory, or fails while it runs or measures
    is killed with all its children, and the call raises RunError. The next call starts another
    worker, in which models that are still in use are compiled again when they are needed.

    Use it from one thread, and ``close`` it or use it as a context manager; at the latest it is
    closed with the interpreter. If this process is killed, the worker goes within a second.

    Raises what the engine's factory raises if that is a PlacerError, RunError if it fails
    otherwise, and InputError if ``log_dir`` cannot be written.
    """

    def __init__(self, start: EngineSpec, limits: Limits, log_dir: Path) -> None:
        self._host = _Host(start, limits, log_dir)
        # Runs when this object is collected and, whatever happens, when the interpreter exits.
        self._closer = weakref.finalize(self, self._host.close)
        try:
            hello = self._host.hello()
        except PlacerError:
            self.close()
            raise
        self.name = hello.name
        self.rules = hello.rules
        self.estimated = hello.estimated
        self.verified = hello.verified
        self.remainder = hello.remainder
        self.version = hello.version
        self.device = hello.device
        self.clock = hello.clock
        self.target = hello.target
        self.abilities = hello.abilities
        self.conditions: Conditions | None = None

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> IsolatedCompiled:
        """Compile in the worker; raises RunError if the engine refuses the model or fails."""
        return IsolatedCompiled(self, self._host, self._host.compile(model, base_dir))

    def compile_implicit(
        self, model: onnx.ModelProto, base_dir: Path, samples: Iterable[Tensors]
    ) -> IsolatedCompiled:
        """Build an implicit INT8 engine in the worker; see ``HasImplicit``."""
        handle = self._host.compile(model, base_dir, samples)
        return IsolatedCompiled(self, self._host, handle)

    def load(self, path: Path) -> IsolatedSaved:
        """Load a saved engine in the worker; see ``LoadsEngines``."""
        handle, inputs = self._host.load(path)
        return IsolatedSaved(self, self._host, handle, inputs)

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        """Seconds, shape (rounds, len(models)), as the worker's engine measures them.

        ``conditions`` are then those that the worker's engine tells, if it does.
        """
        handles = []
        for model in models:
            if not isinstance(model, IsolatedCompiled) or model.host is not self._host:
                raise TypeError("a model of another engine cannot be measured here")
            handles.append(model.handle)
        measured = self._host.measure(tuple(handles), inputs, rounds)
        self.conditions = measured.conditions
        return measured.seconds

    def close(self) -> None:
        """Kill the worker and remove the candidates on disk; later calls raise RunError."""
        self._closer()

    def __enter__(self) -> IsolatedEngine:
        """Return the engine."""
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the engine."""
        self.close()


class IsolatedCompiled:
    """A candidate compiled in the worker, which forgets it once this object is gone."""

    def __init__(self, engine: IsolatedEngine, host: _Host, handle: int) -> None:
        self._engine = engine  # Keeps it open.
        self.host = host
        self.handle = handle
        weakref.finalize(self, host.forget, handle).atexit = False

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """Return all graph outputs by name; raises RunError if the engine fails."""
        return self.host.run(self.handle, inputs)

    def plan(self, inputs: Tensors | None = None) -> Plan:
        """Return the layers that the engine really runs; raises RunError if it fails."""
        return self.host.plan(self.handle, inputs)

    def memory_bytes(self, inputs: Tensors) -> int | None:
        """Device memory as the worker's engine tells; see ``HasMemory``."""
        return self.host.memory_bytes(self.handle, inputs)


class IsolatedSaved(IsolatedCompiled):
    """A saved engine that the worker has loaded."""

    def __init__(
        self, engine: IsolatedEngine, host: _Host, handle: int, inputs: Mapping[str, InputType]
    ) -> None:
        super().__init__(engine, host, handle)
        self.inputs = inputs


class _Host:
    """Owns the worker of the moment and the candidates on disk."""

    def __init__(self, spec: EngineSpec, limits: Limits, log_dir: Path) -> None:
        self._spec = spec
        self._limits = limits
        self._log_dir = log_dir
        self._worker: _Worker | None = None
        self._closed = False
        self._numbers = itertools.count(1)
        self._stored: dict[int, _Stored] = {}
        self._forgotten: deque[int] = deque()
        try:
            log_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot create {log_dir} for the engine's logs: {error.strerror}; choose another "
                "folder"
            ) from error
        self._temporary = tempfile.TemporaryDirectory(prefix="placer-", ignore_cleanup_errors=True)
        self._folder = Path(self._temporary.name)
        # The worker's own temporary files go with the candidates, even if it is killed.
        (self._folder / "tmp").mkdir()

    def close(self) -> None:
        self._closed = True
        if self._worker is not None:
            self._worker.kill()
        self._temporary.cleanup()

    def forget(self, handle: int) -> None:
        # Called by the garbage collector, maybe in the midst of a call to the worker.
        self._forgotten.append(handle)

    def hello(self) -> Hello:
        return self._running().hello

    def compile(
        self, model: onnx.ModelProto, base_dir: Path, samples: Iterable[Tensors] | None = None
    ) -> int:
        worker = self._running()
        handle = next(self._numbers)
        path = self._folder / f"{handle}.onnx"
        base_dir = _store(model, base_dir.resolve(), path)
        build: Build = Compile(handle, str(path), str(base_dir))
        files: tuple[Path, ...] = (path, _data_file(path))
        if samples is not None:
            data = self._folder / f"{handle}.samples"
            _store_samples(samples, data)
            build = CompileImplicit(handle, str(path), str(base_dir), str(data))
            files = (*files, data)
        self._make(worker, handle, _Stored(build, files), "building the candidate")
        return handle

    def load(self, path: Path) -> tuple[int, Mapping[str, InputType]]:
        worker = self._running()
        handle = next(self._numbers)
        stored = _Stored(Load(handle, str(path.resolve())), ())
        inputs: Mapping[str, InputType] = self._make(worker, handle, stored, f"loading {path}")
        return handle, inputs

    def _make(self, worker: _Worker, handle: int, stored: _Stored, stage: str) -> Any:
        dropped = self._drop()
        self._stored[handle] = stored
        try:
            return self._compile(worker, handle, stage, dropped)
        except PlacerError:
            self.forget(handle)
            raise

    def run(self, handle: int, inputs: Tensors) -> dict[str, np.ndarray]:
        command = Run(handle, dict(inputs))
        outputs: dict[str, np.ndarray] = self._call(
            (handle,), command, "running the candidate", self._limits.run_s
        )
        return outputs

    def plan(self, handle: int, inputs: Tensors | None) -> Plan:
        command = ReadPlan(handle, None if inputs is None else dict(inputs))
        plan: Plan = self._call(
            (handle,), command, "reading the candidate's plan", self._limits.compile_s
        )
        return plan

    def measure(self, handles: tuple[int, ...], inputs: Tensors, rounds: int) -> Measured:
        command = Measure(handles, dict(inputs), rounds)
        measured: Measured = self._call(
            handles, command, "measuring the candidate", self._limits.measure_s
        )
        return measured

    def memory_bytes(self, handle: int, inputs: Tensors) -> int | None:
        command = ReadMemory(handle, dict(inputs))
        size: int | None = self._call(
            (handle,), command, "reading the candidate's memory", self._limits.run_s
        )
        return size

    def _call(self, handles: Sequence[int], command: Command, stage: str, seconds: float) -> Any:
        worker = self._running()
        dropped = self._drop()
        for handle in dict.fromkeys(handles):
            if handle not in worker.handles:
                self._compile(worker, handle, "building a model again after a restart", dropped)
                dropped = ()
        return worker.call(Request(command, stage, seconds, dropped))

    def _compile(self, worker: _Worker, handle: int, stage: str, dropped: tuple[int, ...]) -> Any:
        build = self._stored[handle].build
        answer = worker.call(Request(build, stage, self._limits.compile_s, dropped))
        worker.handles.add(handle)
        return answer

    def _drop(self) -> tuple[int, ...]:
        """Remove the files of forgotten handles; return these handles."""
        dropped = []
        while self._forgotten:
            handle = self._forgotten.popleft()
            stored = self._stored.pop(handle)
            for file in stored.files:
                file.unlink(missing_ok=True)
            dropped.append(handle)
        return tuple(dropped)

    def _running(self) -> _Worker:
        """The worker, started if there is none or it has gone since the last call."""
        if self._closed:
            raise RunError("the engine is closed; make another one")
        if self._worker is None or not self._worker.is_ready():
            if self._worker is not None:
                log.info("starting the engine again; the last log is %s", self._worker.log)
                self._worker.kill()
            self._worker = _Worker(self._spec, self._limits, _new_log(self._log_dir), self._folder)
        return self._worker


class _Worker:
    """A worker process, its engine made."""

    def __init__(self, spec: EngineSpec, limits: Limits, log_file: Path, folder: Path) -> None:
        self.log = log_file
        self.handles: set[int] = set()
        self._limits = limits
        self._deadline: float | None = None
        self._out_of_memory = False
        self._killed = False
        ours, theirs = socket.socketpair()
        self._connection: Connection[Any, Any] = Connection(ours.detach())
        with theirs:
            self._process = _start(spec, log_file, folder, theirs.fileno())
        # A daemon, or it would keep the interpreter from exiting and so from closing the engine.
        threading.Thread(target=self._watch, daemon=True).start()
        self.hello: Hello = self.call(Request(Start(spec), "starting", limits.start_s))

    def is_alive(self) -> bool:
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
            refused = isinstance(reply, Failed) and reply.error is not None
            healthy = isinstance(reply, Done) or (refused and _only_builds(request.command))
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
        return f"the engine {happened} while {request.stage}; its log is {self.log}"

    def _error(self, reply: Failed, request: Request) -> PlacerError:
        if reply.error is not None:
            return ERRORS[reply.error](reply.text)
        return RunError(
            f"the engine failed while {request.stage}: {reply.text}; its log is {self.log}"
        )


def _only_builds(command: Command) -> bool:
    """Whether the engine runs nothing on the device for ``command``."""
    is_plan = isinstance(command, ReadPlan) and command.inputs is None
    return isinstance(command, Compile | Load) or is_plan


def _start(
    spec: EngineSpec, log_file: Path, folder: Path, connection: int
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "placer.engines.worker"]
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
    """This process's environment, so that the worker imports the same modules."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    added = {
        "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",  # Else -m would put the current folder before all others.
        "PYTHONUNBUFFERED": "1",  # A crash loses what was not written.
        "TMPDIR": str(folder / "tmp"),
    }
    if spec.device is not None:
        added["CUDA_VISIBLE_DEVICES"] = spec.device
    return {**os.environ, **added}


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


def _store(model: onnx.ModelProto, base_dir: Path, path: Path) -> Path:
    """Write ``model`` to ``path``; return the folder of its external data.

    External data stays where it is if the rest fits a message.
    """
    inline = sum(tensor_bytes(t) for t in all_tensors(model.graph) if not is_external(t))
    try:
        if inline > MAX_INLINE_BYTES:
            save_model(model, base_dir, path)
            return path.parent
        path.write_bytes(model.SerializeToString())
    except (OSError, InputError) as error:
        raise RunError(f"cannot write the candidate to {path}: {error}; free some space") from error
    return base_dir


def _store_samples(samples: Iterable[Tensors], path: Path) -> None:
    try:
        SampleFile(path).write(samples)
    except OSError as error:
        raise RunError(
            f"cannot write the calibration data to {path}: {error}; free some space"
        ) from error


def _data_file(path: Path) -> Path:
    """Where ``save_model`` puts large initializers."""
    return path.with_name(f"{path.name}.data")
