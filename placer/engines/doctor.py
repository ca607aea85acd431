"""What is installed, which engines can run here, and what the others lack."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

from placer.common.child_process import importing_alike
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
# What only workers import, so that an engine may be there and still not start.
_STARTS = {
    "openvino": "from placer.engines.openvino.library import load_openvino; load_openvino().Core()"
}
_START_S = 60
# Printed once the library has started: it may end the process, too, with any exit code.
_STARTED = "the library has started"
# How a traceback's last message begins, which may have several lines.
_ERROR = re.compile(r"^\w+(\.\w+)*(Error|Exception)\b", re.MULTILINE)


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
    return _start_failure(name) if name in _STARTS else None


def _start_failure(engine: str) -> str | None:
    """Why the library of ``engine`` does not start, tried in a process that it may crash."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"{_STARTS[engine]}; print({_STARTED!r})"],
            env=importing_alike(),
            capture_output=True,
            text=True,
            timeout=_START_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"its library does not start within {_START_S} s; install it again"
    if done.returncode == 0 and done.stdout.rstrip().endswith(_STARTED):
        return None
    if done.returncode < 0:
        return f"its library crashes as it starts (signal {-done.returncode}); install it again"
    what = _message(done.stderr) or f"it ends the process (exit code {done.returncode})"
    return f"its library does not start: {what}; install it again"


def _message(stderr: str) -> str:
    """The error that ended a process, in one line; its last line if that is no traceback."""
    text = stderr.strip()
    errors = list(_ERROR.finditer(text))
    start = errors[-1].start() if errors else text.rfind("\n") + 1
    return " ".join(text[start:].split())
