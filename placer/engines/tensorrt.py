"""TensorRT and TensorRT-RTX as engines: built for the GPU here, run and timed on it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import onnx

from placer.cuda import api
from placer.cuda.nvml import GpuState, gpu_state
from placer.cuda.timing import Effort, time_launches
from placer.engines.base import Compiled, Remainder, Tensors
from placer.errors import RunError
from placer.model import save_model
from placer.plan import Plan
from placer.trt.build import BuildSettings, ShapeRange, build
from placer.trt.execution import Execution
from placer.trt.library import Kind, Library, load_library

# A measurement under throttling is repeated this often before it is reported as it is.
MAX_THROTTLED_REPEATS = 2


@dataclass(frozen=True)
class Conditions:
    """How a measurement went: the GPU before and after it, and whether CUDA graphs were used."""

    before: GpuState | None
    after: GpuState | None
    captured: tuple[bool, ...]
    repeats: int

    @property
    def throttled_by(self) -> tuple[str, ...]:
        """What slowed the GPU at either end of the measurement."""
        states = [state for state in (self.before, self.after) if state is not None]
        return tuple(dict.fromkeys(name for state in states for name in state.throttled_by))


class TensorRtEngine:
    """Builds and measures on GPU ``device`` of this machine.

    Lives in a worker process (placer.engines.isolation): NVIDIA's libraries may crash or hang.
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
        self._library = library
        self._settings = settings
        self._effort = effort
        self._index = device
        state = gpu_state(device)
        capability = api.compute_capability(device)
        self.name: str = library.kind
        self.version = library.version
        self.device = f"{state.name if state else 'GPU'} (compute capability {capability})"
        self.clock = "GPU time, CUDA events" + (", cold L2 cache" if effort.flush_l2 else "")
        self.conditions: Conditions | None = None

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> TensorRtModel:
        """Build ``model``; RunError with the node and the reason if TensorRT refuses it."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "candidate.onnx"
            save_model(model, base_dir, path)
            report = build(self._library, path, self._settings)
        if not report.accepted:
            raise RunError(f"{report.builder} refuses the candidate: {report.refusals[0]}")
        return TensorRtModel(Execution(self._library, report.engine))

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        """Seconds per run, shape (rounds, len(models)); see ``Engine.measure``.

        A measurement while the GPU throttled is repeated; ``conditions`` says how the last one was.
        """
        executions = [_execution(model) for model in models]
        for execution in executions:
            execution.prepare(inputs)
        for repeat in range(MAX_THROTTLED_REPEATS + 1):
            before = gpu_state(self._index)
            timing = time_launches([e.launch for e in executions], rounds, self._effort)
            after = gpu_state(self._index)
            self.conditions = Conditions(before, after, timing.captured, repeat)
            if not self.conditions.throttled_by:
                break
        return timing.seconds


class TensorRtModel:
    """A built candidate on the GPU; its memory is freed with it."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """Outputs as the engine computes them."""
        return self.execution.run(inputs)

    def plan(self) -> Plan:
        """The layers that the engine runs."""
        return self.execution.plan()

    def __del__(self) -> None:
        """Give the device memory back for the next candidate."""
        self.execution.close()


def _execution(model: Compiled) -> Execution:
    if not isinstance(model, TensorRtModel):
        raise RunError("TensorRT can measure only what it has built")
    return model.execution


def refuse_gpu(library: Library, device: int) -> None:
    """Raise RunError if ``library`` does not run on GPU ``device``.

    TensorRT-RTX knows the compute capabilities that its builder lists; 9.0 (H100) is not one.
    """
    count = api.device_count()
    if not count:
        raise RunError(f"CUDA sees no GPU here, which {library.title} needs")
    api.set_device(device)
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
) -> TensorRtEngine:
    """Make the engine in this process; the arguments are plain data, so a worker can be told them.

    Raises RunError if the library is missing or does not run on the GPU.
    """
    settings = BuildSettings(
        shapes=shapes or {},
        typing=typing,
        workspace_bytes=workspace_bytes,
        optimization_level=optimization_level,
        timing_cache=timing_cache,
        plugins=plugins,
    )
    return TensorRtEngine(load_library(kind), device, settings, Effort(flush_l2=flush_l2))
