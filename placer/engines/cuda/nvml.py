"""The GPU's clocks, power and throttling, read through NVML."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from placer.engines.cuda.api import call

# What the GPU's own work runs into: small cards reach their power cap under any load.
POWER_CAP = "SwPowerCap"
# Reasons that slow the GPU against its will; idle clocks and clocks set by the user do not.
_SLOWING = (
    POWER_CAP,
    "HwSlowdown",
    "SwThermalSlowdown",
    "HwThermalSlowdown",
    "HwPowerBrakeSlowdown",
)


@dataclass(frozen=True)
class GpuState:
    """The GPU at one moment; None where the driver does not tell.

    Clocks in MHz, power in watts, temperature in degrees Celsius. ``throttled_by``: NVML's names of
    what slows it.
    """

    name: str
    driver: str
    sm_clock: int | None
    memory_clock: int | None
    power: float | None
    temperature: int | None
    throttled_by: tuple[str, ...]


def gpu_state(index: int = 0) -> GpuState | None:
    """The state of GPU ``index``, counted as CUDA does; None without NVML or its bindings."""
    try:
        nvml = importlib.import_module("pynvml")
    except (ImportError, OSError):  # OSError: a library behind it is missing.
        return None
    try:
        with _session(nvml):
            return _state(nvml, nvml.nvmlDeviceGetHandleByPciBusId(_bus_id(index)))
    except nvml.NVMLError:
        return None


@contextmanager
def _session(nvml: Any) -> Iterator[None]:
    nvml.nvmlInit()
    try:
        yield
    finally:
        nvml.nvmlShutdown()


def _bus_id(index: int) -> bytes:
    """NVML counts all GPUs of the host, CUDA those that it may use: the bus is common to both."""
    text: bytes = call("cudaDeviceGetPCIBusId", 32, index)
    return text.rstrip(b"\0")


def _state(nvml: Any, handle: Any) -> GpuState:
    def read(name: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, name)(handle, *arguments)
        except nvml.NVMLError:
            return None

    power = read("nvmlDeviceGetPowerUsage")
    reasons = read("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
    return GpuState(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        driver=_text(nvml.nvmlSystemGetDriverVersion()),
        sm_clock=read("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        memory_clock=read("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        power=None if power is None else power / 1000,
        temperature=read("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        throttled_by=tuple(
            name for name in _SLOWING if reasons & getattr(nvml, f"nvmlClocksThrottleReason{name}")
        ),
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
