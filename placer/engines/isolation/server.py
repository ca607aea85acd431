"""The process that an isolated engine lives in: ``python -m placer.engines.isolation.server``.

Its arguments are the number of the socket it is asked on, the parent's process id, and the folder
of temporary files that it removes if the parent is killed. See ``placer.engines.isolation.engine``.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import pickle
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
from contextlib import ExitStack, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import onnx

from placer.common.custom_ops import custom_ops
from placer.common.freed_memory import give_back_freed
from placer.common.interrupts import leave_to_parent
from placer.engines.abilities import (
    CompilesFiles,
    HasDevice,
    HasImplicit,
    LoadsEngines,
    SavesItself,
)
from placer.engines.base import Compiled, Engine
from placer.engines.conditions import HasMemory, conditions_of
from placer.engines.isolation.protocol import (
    ERRORS,
    PICKLE_PROTOCOL,
    Command,
    Compile,
    CompileImplicit,
    Done,
    EngineSpec,
    Failed,
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
    Start,
)
from placer.errors import PlacerError

_PARENT_POLL_S = 0.5


class _Server:
    """The engine and what it has compiled."""

    def __init__(self, spec: EngineSpec) -> None:
        factory = getattr(importlib.import_module(spec.module), spec.factory)
        self.engine: Engine = factory(**spec.arguments)
        self._compiled: dict[int, Compiled] = {}
        self._file_bytes: dict[int, int] = {}

    def forget(self, handles: tuple[int, ...]) -> None:
        for handle in handles:
            self._compiled.pop(handle, None)
        give_back_freed(sum(self._file_bytes.pop(handle, 0) for handle in handles))

    def do(self, command: Command) -> object:
        compiled = self._compiled
        match command:
            case Start():
                raise RuntimeError("the engine has started already")
            case Compile():
                self._compile(command)
                return None
            case CompileImplicit():
                compiled[command.handle] = self._implicit(command)
                return None
            case Load():
                return self._load(command)
            case Save():
                self._save(command)
                return None
            case Run():
                return compiled[command.handle].run(command.inputs)
            case ReadPlan():
                plan = compiled[command.handle].plan(command.inputs)
                give_back_freed(self._file_bytes.get(command.handle, 0))
                return plan
            case Measure():
                models = [compiled[handle] for handle in command.handles]
                seconds = self.engine.measure(models, command.inputs, command.rounds)
                return Measured(seconds, conditions_of(self.engine))
            case ReadMemory():
                candidate = compiled[command.handle]
                return (
                    candidate.memory_bytes(command.inputs)
                    if isinstance(candidate, HasMemory)
                    else None
                )

    def _compile(self, command: Compile) -> None:
        path, base_dir = Path(command.path), Path(command.base_dir)
        if isinstance(self.engine, CompilesFiles):
            made = self.engine.compile_file(path, base_dir)
        else:
            made = self.engine.compile(onnx.load(path, load_external_data=False), base_dir)
        self._compiled[command.handle] = made
        self._file_bytes[command.handle] = path.stat().st_size
        give_back_freed(self._file_bytes[command.handle])

    def _implicit(self, command: CompileImplicit) -> Compiled:
        if not isinstance(self.engine, HasImplicit):
            raise RuntimeError("the engine has no compile_implicit")
        model = onnx.load(command.path, load_external_data=False)
        samples = SampleFile(Path(command.samples))
        return self.engine.compile_implicit(model, Path(command.base_dir), samples)

    def _save(self, command: Save) -> None:
        candidate = self._compiled[command.handle]
        if not isinstance(candidate, SavesItself):
            raise RuntimeError("what the engine compiles has no save")
        candidate.save(Path(command.path))

    def _load(self, command: Load) -> object:
        if not isinstance(self.engine, LoadsEngines):
            raise RuntimeError("the engine has no load")
        saved = self.engine.load(Path(command.path))
        self._compiled[command.handle] = saved
        return saved.inputs


class _Answer:
    """Keeps what the engine raises as the answer; its traceback goes to the log."""

    def __init__(self, server: _Server | None) -> None:
        self.pickled = b""
        self._server = server

    def set(self, answer: Done | Failed) -> None:
        self.pickled = pickle.dumps(answer, PICKLE_PROTOCOL)

    def __enter__(self) -> _Answer:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        traceback.print_exception(error)
        engine = None if self._server is None else self._server.engine
        works = not isinstance(engine, HasDevice) or engine.device_works()
        self.set(replace(_failure(error), device_works=works))
        return True


def main(arguments: list[str]) -> None:
    """Answer requests until the parent closes the connection."""
    socket, parent, folder = int(arguments[0]), int(arguments[1]), Path(arguments[2])
    _prepare()
    threading.Thread(target=_go_with, args=(parent, folder), daemon=True).start()
    _serve(Connection(socket))


def _serve(connection: Connection[Any, Any]) -> None:
    with ExitStack() as libraries:
        _answer_all(connection, libraries)


def _answer_all(connection: Connection[Any, Any], libraries: ExitStack) -> None:
    server: _Server | None = None
    stage = ""
    while True:
        try:
            request: Request = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        if stage != request.stage:
            stage = request.stage
            print(f"-- {stage}", flush=True)
        # Shows in the log where it hangs; a thread of C, which a held GIL does not stop.
        faulthandler.dump_traceback_later(request.seconds, exit=True)
        with _Answer(server) as answer:
            if isinstance(request.command, Start):
                libraries.enter_context(custom_ops(*request.command.spec.custom_ops))
                server = _Server(request.command.spec)
                answer.set(Done(Hello.of(server.engine)))
            elif server is not None:
                server.forget(request.dropped)
                answer.set(Done(server.do(request.command)))
        faulthandler.cancel_dump_traceback_later()
        try:
            connection.send_bytes(answer.pickled)
        except BrokenPipeError:
            return


def _failure(error: Exception) -> Failed:
    if isinstance(error, PlacerError):
        kind = next(i for i, known in enumerate(ERRORS) if isinstance(error, known))
        return Failed(str(error), kind)
    return Failed(" ".join(f"{type(error).__name__}: {error}".split()), None)


def _prepare() -> None:
    leave_to_parent()  # Some send signals to all processes of a service.
    faulthandler.enable()
    # Writing a core of many gigabytes would hold up the study.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with suppress(OSError):  # If memory runs out, the system kills the worker, not the study.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")


def _go_with(parent: int, folder: Path) -> None:
    """Wait for the parent's death, then remove ``folder`` and kill this process's group.

    PR_SET_PDEATHSIG would do neither, and would strike when the parent's thread ends.
    """
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_S)
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
