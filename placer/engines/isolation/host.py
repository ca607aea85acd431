"""The worker process that an engine lives in now, and the candidates on disk for the next one."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from placer.common.files import data_file, temporary_folder
from placer.engines.base import Tensors
from placer.engines.execution_paths import ExecutionPaths
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
from placer.model.save import write_message
from placer.plan import Plan

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Stored:
    """How any worker can make a handle, and the ``files`` on disk that go with it."""

    build: Build
    files: tuple[Path, ...]


class Host:
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
        self._temporary = temporary_folder()
        self._folder = Path(self._temporary.name)
        # The worker's own temporary files go with the candidates, even if it is killed.
        (self._folder / "tmp").mkdir()

    def close(self) -> None:
        """Kill the worker and remove the candidates; nothing can be asked afterwards."""
        self._closed = True
        if self._worker is not None:
            self._worker.kill()
        self._temporary.cleanup()

    def forget(self, handle: int) -> None:
        """Drop the candidate with the next command."""
        # Called by the garbage collector, maybe in the midst of a call to the worker.
        self._forgotten.append(handle)

    @property
    def pid(self) -> int | None:
        """Of the worker; None while there is none."""
        return None if self._worker is None else self._worker.pid

    def begin(self) -> None:
        """Start a worker, unless there is one, and do not wait for it."""
        if self._worker is None and not self._closed:
            self._worker = WorkerProcess(self._spec, self._limits, self._logs, self._folder)

    def hello(self) -> Hello:
        """What the engine says of itself; RunError if it cannot be made."""
        return self._running().hello

    def compile(
        self, model: onnx.ModelProto, base_dir: Path, samples: Iterable[Tensors] | None = None
    ) -> int:
        """Build ``model`` and return its handle; with ``samples`` the engine calibrates it itself.

        Raises RunError, as every command, for what the engine refuses, for a worker that dies and
        at a limit of time or memory.
        """
        worker = self._running()
        handle = next(self._numbers)
        path = self._folder / f"{handle}.onnx"
        base_dir = _store(model, base_dir.resolve(), path)
        build: Build = Compile(handle, str(path), str(base_dir))
        files: tuple[Path, ...] = (path, data_file(path))
        if samples is not None:
            data = self._folder / f"{handle}.samples"
            _store_samples(samples, data)
            build = CompileImplicit(handle, str(path), str(base_dir), str(data))
            files = (*files, data)
        self._make(worker, handle, _Stored(build, files), "building the candidate")
        return handle

    def load(self, path: Path) -> tuple[int, Mapping[str, InputType]]:
        """Load a saved engine and return its handle and inputs."""
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
        """All outputs by name."""
        command = Run(handle, dict(inputs))
        outputs: dict[str, np.ndarray] = self._call(
            (handle,), command, "running the candidate", self._limits.run_s
        )
        return outputs

    def plan(self, handle: int, inputs: Tensors | None) -> Plan:
        """The layers; with ``inputs`` with their times."""
        command = ReadPlan(handle, None if inputs is None else _sent(inputs))
        plan: Plan = self._call(
            (handle,), command, "reading the candidate's plan", self._limits.compile_s
        )
        return plan

    def measure(self, handles: tuple[int, ...], inputs: Tensors, rounds: int) -> Measured:
        """Measure the models of ``handles`` in turn, ``rounds`` times."""
        command = Measure(handles, _sent(inputs), rounds)
        measured: Measured = self._call(
            handles, command, "measuring the candidate", self._limits.measure_s
        )
        return measured

    def save(self, handle: int, path: Path) -> None:
        """Have the engine write its own file to ``path``."""
        command = Save(handle, str(path.resolve()))
        self._call((handle,), command, "saving the engine", self._limits.run_s)

    def memory_bytes(self, handle: int, inputs: Tensors) -> int | None:
        """Memory that a run takes; None where the engine does not tell."""
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
        _ = self._worker.hello  # Its engine is made.
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
        with path.open("wb") as out:
            write_message(model, out)
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


def _sent(inputs: Tensors) -> Tensors:
    """``inputs`` as the worker gets them; dict() would lose that there are several paths."""
    return inputs if isinstance(inputs, ExecutionPaths) else dict(inputs)
