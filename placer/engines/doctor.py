"""What is installed, which engines can run here, and what the others lack."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

from placer.engines.cuda import api
from placer.engines.cuda.nvml import gpu_state
from placer.engines.registry import Registry
from placer.engines.select import BUILT_IN
from placer.errors import PlacerError

_PACKAGES = (
    "placer",
    "onnx",
    "onnxruntime",
    "openvino",
    "optuna",
    "numpy",
    "tensorrt",
    "tensorrt-rtx-cu13-bindings",
    "cuda-python",
    "cuda-bindings",
    "nvidia-ml-py",
)


@dataclass(frozen=True)
class EngineStatus:
    """An engine and why it cannot run here; ``reason`` is None if it can."""

    name: str
    reason: str | None


@dataclass(frozen=True)
class GpuStatus:
    """A GPU that CUDA sees."""

    index: int
    name: str
    compute_capability: str
    driver: str


@dataclass(frozen=True)
class Diagnosis:
    """What ``placer doctor`` prints; ``packages`` maps to None where one is not installed."""

    python: str
    system: str
    packages: Mapping[str, str | None]
    gpus: tuple[GpuStatus, ...]
    engines: tuple[EngineStatus, ...]

    def to_json(self) -> dict[str, object]:
        """Plain data."""
        return asdict(self)


def diagnose() -> Diagnosis:
    """Look at this machine; imports engines' libraries, runs nothing on a GPU."""
    registry = Registry.installed(BUILT_IN)
    return Diagnosis(
        python=platform.python_version(),
        system=platform.platform(),
        packages={name: _version(name) for name in _PACKAGES},
        gpus=tuple(_gpu(index) for index in range(api.device_count())),
        engines=tuple(EngineStatus(name, _reason(registry, name)) for name in registry.names()),
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gpu(index: int) -> GpuStatus:
    state = gpu_state(index)
    return GpuStatus(
        index=index,
        name=state.name if state else "unknown (install nvidia-ml-py)",
        compute_capability=api.compute_capability(index),
        driver=state.driver if state else "unknown",
    )


def _reason(registry: Registry, name: str) -> str | None:
    try:
        registry.resolve(name)
    except PlacerError as error:
        return str(error).removeprefix(f"engine {name} cannot run here: ")
    return None
