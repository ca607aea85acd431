"""The engine: compiles with IREE, runs and measures on one device."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import iree.runtime as rt
import numpy as np
import onnx
from onnx.helper import tensor_dtype_to_np_dtype

from placer.engines.base import Compiled, Remainder, Tensors
from placer.engines.rounds import time_calls
from placer.errors import InputError, RunError
from placer.plan import Plan
from placer_engine_iree.compiler import Compiler
from placer_engine_iree.dispatches import read_plan

_ERRORS = (RuntimeError, ValueError)


class IreeEngine:
    """IREE for one target; see ``IreeFactory.create``.

    One CPU thread is the calling one, so that its CPU time can be the clock, which other processes
    do not disturb; everything else is timed in wall time from the call until the outputs are read
    back, which waits for the device.
    """

    name = "iree"
    rules = "iree"
    estimated = False
    verified = True
    remainder: Remainder = "kept"

    def __init__(
        self,
        target: str,
        arch: str,
        threads: int = 1,
        device: str | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        self.version = version("iree-base-compiler")
        self._compiler = Compiler(target, arch, dict(shapes or {}))
        self._now: Callable[[], float] = time.perf_counter
        if target == "cuda":
            self._config = _config(f"cuda://{_ordinal(device)}")
            self.device = f"{_gpu_name(_ordinal(device))} ({arch})"
            self.clock = "wall time, inputs on the device, outputs read back"
        elif threads == 1:
            self._config = _config("local-sync")
            self.device = f"CPU ({_processor()}, {arch}), 1 thread"
            self._now, self.clock = time.thread_time, "CPU time of one thread"
        else:
            rt.flags.parse_flags(f"--task_topology_group_count={threads}")
            self._config = _config("local-task")
            self.device = f"CPU ({_processor()}, {arch}), {threads} threads"
            self.clock = "wall time"

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> IreeModel:
        """Compile and load ``model``; raises RunError with IREE's reason if it fails."""
        return IreeModel(model, base_dir, self._compiler, self._config, f"IREE {self.version}")

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        """Seconds per run, shape (rounds, len(models)); see ``Engine.measure``."""
        return time_calls([_on_device(model, inputs) for model in models], rounds, self._now)


def _on_device(model: Compiled, inputs: Tensors) -> Callable[[], object]:
    if not isinstance(model, IreeModel):
        raise TypeError(f"iree cannot measure a {type(model).__name__}")
    return model.on_device(inputs)


class IreeModel:
    """A model that IREE has compiled and loaded."""

    def __init__(
        self,
        model: onnx.ModelProto,
        base_dir: Path,
        compiler: Compiler,
        config: rt.Config,
        source: str,
    ) -> None:
        self._model = model
        self._base_dir = base_dir
        self._compiler = compiler
        self._config = config
        self._source = source
        self._inputs = [value.name for value in model.graph.input]
        self._outputs = {
            value.name: tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            for value in model.graph.output
        }
        self._call = _load(compiler.module(model, base_dir), config)

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """Return all graph outputs by name; raises RunError if IREE fails."""
        values = self.on_device(inputs)()
        named = zip(self._outputs.items(), values, strict=True)
        return {name: value.astype(dtype, copy=False) for (name, dtype), value in named}

    def on_device(self, inputs: Tensors) -> Callable[[], list[np.ndarray]]:
        """Copy ``inputs`` to the device; return the call that runs on them and reads back."""
        arrays = [np.asarray(inputs[name], order="C") for name in self._inputs]
        with _iree_errors("copy the inputs"):
            values = [rt.asdevicearray(self._config.device, array) for array in arrays]

        def run() -> list[np.ndarray]:
            with _iree_errors("run the model"):
                found = self._call(*values)
                several = found if isinstance(found, (list, tuple)) else [found]
                return [np.asarray(value.to_host()) for value in several]

        return run

    def plan(self, inputs: Tensors | None = None) -> Plan:
        """Return the dispatches that IREE forms, each with the candidate's nodes it covers.

        They have no times, whatever the inputs: IREE's Python runtime does not profile dispatches.
        """
        del inputs
        flow = self._compiler.flow(self._model, self._base_dir)
        return read_plan(flow, self._model, self._source)


def _load(module: bytes, config: rt.Config) -> Callable[..., Any]:
    with _iree_errors("load the module"):
        loaded = rt.VmModule.copy_buffer(config.vm_instance, module)
        hal = rt.create_hal_module(config.vm_instance, config.device)
        context = rt.SystemContext(vm_modules=[hal, loaded], config=config)
        # The importer writes one function; IREE adds an asynchronous twin and an initializer.
        (name,) = (n for n in loaded.function_names if "$" not in n and not n.startswith("__"))
        call: Callable[..., Any] = context.modules[loaded.name][name]
        return call


def _config(device: str) -> rt.Config:
    with _iree_errors(f"open device {device}"):
        return rt.Config(device=rt.get_device(device))


def _ordinal(device: str | None) -> int:
    text = device or "0"
    if not text.isdecimal():
        raise InputError(f"--device '{text}' is not a GPU of iree; give a number, e.g. --device 0")
    return int(text)


def _gpu_name(ordinal: int) -> str:
    return str(rt.get_driver("cuda").query_available_devices()[ordinal]["name"])


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@contextmanager
def _iree_errors(what: str) -> Iterator[None]:
    try:
        yield
    except _ERRORS as error:
        reason = " ".join(str(error).split())
        raise RunError(f"IREE failed to {what}: {reason}") from error
