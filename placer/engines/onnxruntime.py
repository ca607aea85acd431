"""ONNX Runtime's CPU provider as an engine: real latency, outputs and optimized graph."""

from __future__ import annotations

import platform
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx.shape_inference
import onnxruntime as ort
from pydantic import BaseModel, TypeAdapter

from placer.common.ort_session import ORT_ERRORS, create_session, one_line, run_once
from placer.engines.base import Compiled, Remainder, Tensors
from placer.engines.onnxruntime_layers import layers_plan
from placer.engines.rounds import cpu_clock, time_calls
from placer.errors import RunError
from placer.plan import Plan

# A profile takes this many runs, fewer of a slow model: as many as fit into the time.
_PROFILE_WARM_UP = 2
_PROFILE_RUNS = (3, 15)
_PROFILE_S = 1.0
_KERNEL_TIME = "_kernel_time"  # How the profile ends the names of nodes.


class _Event(BaseModel):
    """What is read of an event of a profile; ``dur`` in microseconds."""

    name: str
    dur: float


# A profile has a megabyte for every thousand events, of which this keeps what is needed.
_EVENTS = TypeAdapter(list[_Event])


class OnnxRuntimeEngine:
    """Compiles and measures on the CPU with a fixed number of threads.

    With one thread the clock is the CPU time of the calling thread, which other processes do not
    disturb as they disturb wall time; with more threads it is wall time.
    """

    name = "onnxruntime"
    rules = "onnxruntime"
    estimated = False
    verified = False
    remainder: Remainder = "kept"

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self.version = str(ort.__version__)
        self.device = f"CPU ({_processor()}), {threads} thread{'s' if threads > 1 else ''}"
        self._now, self.clock = cpu_clock(threads)

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> OnnxRuntimeModel:
        """Create a session; raises RunError with ONNX Runtime's reason if it refuses the model."""
        return OnnxRuntimeModel(model, base_dir, self.threads)

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        """Seconds per run, shape (rounds, len(models)); see ``Engine.measure``."""
        return time_calls([partial(model.run, inputs) for model in models], rounds, self._now)


class OnnxRuntimeModel:
    """A model in an ONNX Runtime session.

    ``optimized`` False runs the graph as it is: ONNX Runtime 1.31's optimizer makes invalid graphs
    of FP16 models with Q/DQ pairs.
    """

    def __init__(
        self, model: onnx.ModelProto, base_dir: Path, threads: int, optimized: bool = True
    ) -> None:
        self._model = model
        self._base_dir = base_dir
        self._threads = threads
        level = ort.GraphOptimizationLevel
        self._session = _session(
            model, base_dir, threads, level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
        )
        self._outputs = [o.name for o in self._session.get_outputs()]
        self._ran = False

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """Return all graph outputs by name; raises RunError if ONNX Runtime fails."""
        # The first run tells whether it ends in time; later ones, which are timed, need no watch.
        values = _run(self._session, inputs) if self._ran else run_once(self._session, None, inputs)
        self._ran = True
        return dict(zip(self._outputs, values, strict=True))

    def plan(self, inputs: Tensors | None = None) -> Plan:
        """Return the nodes of the optimized graph, each with the candidate's nodes it covers.

        Every node of the candidate is in exactly one layer or in ``Plan.removed``.

        With ``inputs``, times are medians by ONNX Runtime's profiler, which counts whole
        microseconds.
        """
        level = ort.GraphOptimizationLevel
        model, base_dir, threads = self._model, self._base_dir, self._threads
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "optimized.onnx"
            _session(model, base_dir, threads, level.ORT_ENABLE_EXTENDED, path)
            fused = onnx.load(path, load_external_data=False)
            # Names of added layers differ from session to session: one tells both graph and times.
            prefix = None if inputs is None else Path(folder) / "profile"
            session = _session(model, base_dir, threads, level.ORT_ENABLE_ALL, path, prefix)
            final = onnx.load(path, load_external_data=False)
            times = {} if inputs is None else _kernel_times(session, inputs)
        return layers_plan(model, fused, final, times, f"ONNX Runtime {ort.__version__}")


def _session(
    model: onnx.ModelProto,
    base_dir: Path,
    threads: int,
    level: ort.GraphOptimizationLevel = ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    optimized_path: Path | None = None,
    profile_prefix: Path | None = None,
) -> ort.InferenceSession:
    return create_session(
        model.SerializeToString(),
        base_dir,
        threads=threads,
        level=level,
        optimized_path=optimized_path,
        profile_prefix=profile_prefix,
    )


def _run(session: ort.InferenceSession, inputs: Tensors) -> list[np.ndarray]:
    try:
        values: list[np.ndarray] = session.run(None, dict(inputs))
    except ORT_ERRORS as error:
        raise RunError(f"ONNX Runtime failed to run the model: {one_line(error)}") from error
    return values


def _kernel_times(session: ort.InferenceSession, inputs: Tensors) -> dict[str, float]:
    """Median microseconds by name of the node over some runs of a session that profiles."""
    try:
        runs = _profiled_runs(session, inputs)
    finally:
        file = Path(session.end_profiling())
    try:
        events = _EVENTS.validate_json(file.read_bytes())
    except ValueError:  # ONNX Runtime 1.23 writes quotes in names as they are.
        return {}
    durations = defaultdict(list)
    for event in events:
        if event.name.endswith(_KERNEL_TIME):
            durations[event.name.removesuffix(_KERNEL_TIME)].append(event.dur)
    return {name: float(np.median(found[-runs:])) for name, found in durations.items()}


def _profiled_runs(session: ort.InferenceSession, inputs: Tensors) -> int:
    """Run a few times after a warm-up; return how many runs came after it."""
    for _ in range(_PROFILE_WARM_UP):
        _run(session, inputs)
    least, most = _PROFILE_RUNS
    start, runs = time.perf_counter(), 0
    while runs < least or (runs < most and time.perf_counter() - start < _PROFILE_S):
        _run(session, inputs)
        runs += 1
    return runs


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
