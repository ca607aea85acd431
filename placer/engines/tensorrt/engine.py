"""TensorRT and TensorRT-RTX as engines: built for the GPU here, run and timed on it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx

from placer.common.files import write_bytes
from placer.engines.abilities import Ability
from placer.engines.base import Compiled, Remainder, Tensors
from placer.engines.conditions import Conditions
from placer.engines.cuda import api
from placer.engines.cuda.api import CudaError
from placer.engines.cuda.nvml import GpuState, gpu_state
from placer.engines.cuda.timing import Effort, time_launches
from placer.engines.tensorrt.build import BuildReport, BuildSettings, build
from placer.engines.tensorrt.execution import Execution
from placer.engines.tensorrt.implicit import build_implicit, refuse_without_implicit
from placer.engines.tensorrt.library import Kind, Library, load_library
from placer.engines.tensorrt.optional import optional
from placer.engines.tensorrt.plugins import load_plugins
from placer.engines.tensorrt.profile import ValueRange
from placer.engines.tensorrt.runtime_cache import RuntimeCache
from placer.errors import InputError, RunError
from placer.graph.shapes import InputType, ShapeRange
from placer.model import save_model
from placer.plan import Plan
from placer.rules.target import Target

# A measurement under throttling is repeated this often before it is reported as it is.
MAX_THROTTLED_REPEATS = 2


class TensorRtEngine:
    """Builds and measures on GPU ``device`` of this machine.

    Lives in a worker process (placer.engines.isolation.engine): NVIDIA's libraries may crash or
    hang.
    """

    rules: str = "tensorrt"
    estimated = False
    verified = True
    remainder: Remainder = "built"

    def __init__(
        self, library: Library, device: int, settings: BuildSettings, effort: Effort
    ) -> None:
        refuse_gpu(library, device)
        api.set_device(device)
        load_plugins(library, settings.plugins)  # For saved engines, which are not built here.
        self._library = library
        self._effort = effort
        self._index = device
        state = self._state()
        capability = api.compute_capability(device)
        gpu = f"{state.name if state else 'GPU'}-sm{capability.replace('.', '')}"
        self._settings = replace(settings, gpu_here=gpu)
        self.name: str = library.kind
        self.version = library.version
        self.device = f"{state.name if state else 'GPU'} (compute capability {capability})"
        self.clock = "GPU time, CUDA events" + (", cold L2 cache" if effort.flush_l2 else "")
        self.target = target(library, capability, settings.typing)
        self.abilities = abilities(library)
        self._runtime_cache: RuntimeCache | None = None
        if library.has_runtime_cache and settings.timing_cache is not None:
            self._runtime_cache = RuntimeCache(settings.timing_cache, library, gpu)
        self.conditions: Conditions | None = None

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> TensorRtModel:
        """Build ``model``; RunError with the node and the reason if TensorRT refuses it."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "candidate.onnx"
            save_model(model, base_dir, path)
            report = build(self._library, path, self._settings)
        return self._loaded(report)

    def compile_implicit(
        self, model: onnx.ModelProto, base_dir: Path, samples: Iterable[Tensors]
    ) -> TensorRtModel:
        """Build the float ``model`` as an implicit INT8 engine; see ``HasImplicit``."""
        refuse_without_implicit(self._library)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "float.onnx"
            save_model(model, base_dir, path)
            report = build_implicit(self._library, path, self._settings, samples)
        return self._loaded(report)

    def load(self, path: Path) -> TensorRtModel:
        """Load a saved engine.

        Raises InputError for a file that cannot be read, RunError for an engine that is damaged or
        for another version or GPU.
        """
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(
                f"cannot read {path}: {error.strerror}; give a saved engine"
            ) from error
        return self._model(data, str(path))

    def device_works(self) -> bool:
        """Whether no launch has broken this process's context on the GPU, as a bad address does.

        After that every call fails, and each build is refused.
        """
        try:
            api.call("cudaDeviceSynchronize")
        except CudaError:
            return False
        return True

    def _loaded(self, report: BuildReport) -> TensorRtModel:
        if not report.accepted:
            raise RunError(f"{report.builder} refuses the candidate: {report.refusals[0]}")
        return self._model(report.engine, "the engine")

    def _model(self, data: bytes, what: str) -> TensorRtModel:
        execution = Execution(self._library, data, self._runtime_cache, what)
        self._keep_compiled()
        return TensorRtModel(execution)

    def _keep_compiled(self) -> None:
        cache = self._runtime_cache
        if cache is not None:
            optional("saving the runtime cache", cache.save, None)

    def _state(self) -> GpuState | None:
        return optional("NVML", lambda: gpu_state(self._index), None)

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        """Seconds per run, shape (rounds, len(models)); see ``Engine.measure``.

        A measurement while the GPU throttled is repeated, unless by its power cap alone, which no
        repetition escapes; ``conditions`` says how the last one was.
        """
        executions = [_execution(model) for model in models]
        for execution in executions:
            execution.prepare(inputs)
        for repeat in range(MAX_THROTTLED_REPEATS + 1):
            before = self._state()
            timing = time_launches([e.launch for e in executions], rounds, self._effort)
            after = self._state()
            self.conditions = Conditions(before, after, timing.captured, repeat)
            if not self.conditions.may_pass:
                break
        self._keep_compiled()  # What was compiled when the engines first ran.
        return timing.seconds


class TensorRtModel:
    """A built candidate on the GPU; its memory is freed with it."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution

    @property
    def inputs(self) -> Mapping[str, InputType]:
        """What the engine takes."""
        return self.execution.inputs

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """Outputs as the engine computes them."""
        return self.execution.run(inputs)

    def plan(self, inputs: Tensors | None = None) -> Plan:
        """The layers that the engine runs; with ``inputs``, each with its time."""
        return self.execution.plan(inputs)

    def save(self, path: Path) -> None:
        """Write the engine, for ``TensorRtEngine.load`` and for trtexec."""
        write_bytes(path, self.execution.serialized())

    def memory_bytes(self, inputs: Tensors) -> int | None:
        """Device memory in bytes; see ``HasMemory``."""
        return optional("memory", lambda: self.execution.memory_bytes(inputs), None)

    def __del__(self) -> None:
        """Give the device memory back for the next candidate."""
        self.execution.close()


def _execution(model: Compiled) -> Execution:
    if not isinstance(model, TensorRtModel):
        raise RunError("TensorRT can measure only what it has built")
    return model.execution


def target(library: Library, capability: str, typing: Literal["strong", "weak"]) -> Target:
    """What rules are read for; TensorRT-RTX has version numbers of its own."""
    version = library.version if library.kind == "tensorrt" else None
    return Target(engine_version=version, compute_capability=capability, typing=typing)


def abilities(library: Library) -> frozenset[Ability]:
    """What ``library`` can do beyond compiling candidates."""
    every: frozenset[Ability] = frozenset({"shape-ranges", "saved-engines"})
    return every | {"implicit"} if library.has_implicit_quantization else every


def refuse_gpu(library: Library, device: int) -> None:
    """Raise RunError if ``library`` does not run on GPU ``device``.

    TensorRT-RTX knows the compute capabilities that its builder lists; 9.0 (H100) is not one.
    """
    count = api.device_count()
    if not count:
        raise RunError(f"CUDA sees no GPU here, which {library.title} needs")
    api.check_device(device)
    capability = api.compute_capability(device)
    if library.kind == "tensorrt-rtx":
        known = library.module.ComputeCapability.__members__
        if f"SM{capability.replace('.', '')}" not in known:
            raise RunError(
                f"{library.title} does not run on GPUs of compute capability {capability}"
            )


def create(
    kind: Kind,
    device: int = 0,
    typing: Literal["strong", "weak"] = "strong",
    shapes: Mapping[str, ShapeRange] | None = None,
    workspace_bytes: int | None = None,
    optimization_level: int | None = None,
    timing_cache: Path | None = None,
    plugins: tuple[Path, ...] = (),
    flush_l2: bool = False,
    shape_values: Mapping[str, ValueRange] | None = None,
) -> TensorRtEngine:
    """Make the engine in this process; the arguments are plain data, so a worker can be told them.

    Raises RunError if the library is missing or does not run on the GPU.
    """
    settings = BuildSettings(
        shapes=shapes or {},
        shape_values=shape_values or {},
        typing=typing,
        workspace_bytes=workspace_bytes,
        optimization_level=optimization_level,
        timing_cache=timing_cache,
        plugins=plugins,
    )
    return TensorRtEngine(load_library(kind), device, settings, Effort(flush_l2=flush_l2))
