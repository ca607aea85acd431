"""An engine in a worker process: its crash, hang or lack of memory is a RunError, no more.

Vendor libraries crash, hang and leave a broken CUDA context behind. ``IsolatedEngine`` keeps them
in a process of their own, which is replaced when it fails. Needs a POSIX system.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx

from placer.engines.base import Compiled, Engine, Tensors
from placer.engines.conditions import Conditions
from placer.engines.courses import Courses
from placer.engines.isolation.process import Limits, Logs, WorkerProcess
from placer.engines.isolation.protocol import (
    Build,
    Command,
    Compile,
    CompileImplicit,
    EngineSpec,
    Hello,
    Load,
    Measure,
    Measured,
    ReadMemory,
    ReadPlan,
    Request,
    Run,
    SampleFile,
    Save,
)
from placer.errors import InputError, PlacerError, RunError
from placer.graph.edit import all_tensors
from placer.graph.external_data import MAX_INLINE_BYTES, is_external, tensor_bytes
from placer.graph.shapes import InputType
from placer.model import save_model
from placer.plan import Plan

__all__ = ["EngineSpec", "IsolatedCompiled", "IsolatedEngine", "IsolatedSaved", "Limits"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Stored:
    """How any worker can make a handle, and the ``files`` on disk that go with it."""

    build: Build
    files: tuple[Path, ...]


class IsolatedEngine:
    """The engine of ``start``, living in a worker process; see ``Engine``.

    The worker's output goes to ``worker-<number>.log`` in ``log_dir``, one file per worker; logs
    are kept. A worker that crashes, hangs, exceeds its memory, or fails while it runs or measures
    is killed with all its children, and the call raises RunError. The next call starts another
    worker, in which models that are still in use are compiled again when they are needed.

    Use it from one thread, and ``close`` it or use it as a context manager; at the latest it is
    closed with the interpreter. If this process is killed, the worker goes within a second.

    ``described``: the same engine in this process, where making one costs next to nothing: the
    worker then starts with the first model, and its log is kept only if it fails.

    Raises what the engine's factory raises if that is a PlacerError, RunError if it fails
    otherwise, and InputError if ``log_dir`` cannot be written.
    """

    def __init__(
        self, start: EngineSpec, limits: Limits, log_dir: Path, described: Engine | None = None
    ) -> None:
        self._host = _Host(start, limits, log_dir, keep_logs=described is None)
        # Runs when this object is collected and, whatever happens, when the interpreter exits.
        self._closer = weakref.finalize(self, self._host.close)
        try:
            hello = self._host.hello() if described is None else Hello.of(described)
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

    @property
    def worker_pid(self) -> int | None:
        """The process that the engine lives in, None before the first call and after a failure."""
        return self._host.pid

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

    def save(self, path: Path) -> None:
        """Write the engine to a file; see ``SavesItself``."""
        self.host.save(self.handle, path)

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

    def __init__(self, spec: EngineSpec, limits: Limits, log_dir: Path, *, keep_logs: bool) -> None:
        self._spec = spec
        self._limits = limits
        self._logs = Logs(log_dir, keep=keep_logs)
        self._worker: WorkerProcess | None = None
        self._closed = False
        self._numbers = itertools.count(1)
        self._stored: dict[int, _Stored] = {}
        self._forgotten: deque[int] = deque()
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

    @property
    def pid(self) -> int | None:
        return None if self._worker is None else self._worker.pid

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

    def _make(self, worker: WorkerProcess, handle: int, stored: _Stored, stage: str) -> Any:
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
        command = ReadPlan(handle, None if inputs is None else _sent(inputs))
        plan: Plan = self._call(
            (handle,), command, "reading the candidate's plan", self._limits.compile_s
        )
        return plan

    def measure(self, handles: tuple[int, ...], inputs: Tensors, rounds: int) -> Measured:
        command = Measure(handles, _sent(inputs), rounds)
        measured: Measured = self._call(
            handles, command, "measuring the candidate", self._limits.measure_s
        )
        return measured

    def save(self, handle: int, path: Path) -> None:
        command = Save(handle, str(path.resolve()))
        self._call((handle,), command, "saving the engine", self._limits.run_s)

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

    def _compile(
        self, worker: WorkerProcess, handle: int, stage: str, dropped: tuple[int, ...]
    ) -> Any:
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

    def _running(self) -> WorkerProcess:
        """The worker, started if there is none or it has gone since the last call."""
        if self._closed:
            raise RunError("the engine is closed; make another one")
        if self._worker is None or not self._worker.is_ready():
            if self._worker is not None:
                log.info("starting the engine again; the last log is %s", self._worker.log)
                self._worker.kill()
            self._worker = WorkerProcess(self._spec, self._limits, self._logs, self._folder)
        return self._worker


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


def _sent(inputs: Tensors) -> dict[str, np.ndarray]:
    """``inputs`` as the worker gets them: several courses stay such, which dict() would lose."""
    return inputs if isinstance(inputs, Courses) else dict(inputs)
