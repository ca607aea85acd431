"""An engine in a worker process: its crash, hang or lack of memory is a RunError, no more.

Vendor libraries crash, hang and leave a broken CUDA context behind. ``IsolatedEngine`` keeps them
in a process of their own, which is replaced when it fails. Needs a POSIX system.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import onnx

from placer.engines.base import Compiled, Engine, Tensors
from placer.engines.conditions import Conditions
from placer.engines.isolation.host import Host
from placer.engines.isolation.process import Limits
from placer.engines.isolation.protocol import EngineSpec, Hello
from placer.errors import PlacerError
from placer.graph.shapes import InputType
from placer.plan import Plan

__all__ = ["EngineSpec", "IsolatedCompiled", "IsolatedEngine", "IsolatedSaved", "Limits"]


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
        self._host = Host(start, limits, log_dir, keep_logs=described is None)
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

    def begin(self) -> None:
        """Start the worker while this process does something else; raises RunError if it cannot."""
        self._host.begin()

    def ready(self) -> None:
        """Wait for the worker's engine, so that no model's build seems to take that long, too.

        Raises what the engine's factory raises if that is a PlacerError, else RunError.
        """
        self._host.hello()

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

    def __init__(self, engine: IsolatedEngine, host: Host, handle: int) -> None:
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
        self, engine: IsolatedEngine, host: Host, handle: int, inputs: Mapping[str, InputType]
    ) -> None:
        super().__init__(engine, host, handle)
        self.inputs = inputs
