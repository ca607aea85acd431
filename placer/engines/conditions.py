"""Conditions of a measurement and memory of a candidate, on engines that can tell."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from placer.engines.base import Compiled, Engine, Tensors
from placer.engines.cuda.nvml import POWER_CAP, GpuState
from placer.errors import RunError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Conditions:
    """The GPU before and after a measurement, None where the driver does not tell.

    ``captured``: for each model whether its launches were captured as a CUDA graph. ``repeats``:
    how often the measurement was taken again because the GPU throttled.
    """

    before: GpuState | None
    after: GpuState | None
    captured: tuple[bool, ...]
    repeats: int

    @property
    def throttled_by(self) -> tuple[str, ...]:
        """What slowed the GPU at either end of the measurement."""
        states = [state for state in (self.before, self.after) if state is not None]
        return tuple(dict.fromkeys(name for state in states for name in state.throttled_by))

    @property
    def may_pass(self) -> bool:
        """Whether something slowed the GPU that another measurement may be free of."""
        return not {POWER_CAP}.issuperset(self.throttled_by)


@runtime_checkable
class HasConditions(Protocol):
    """An engine that says how its last ``measure`` went; None before the first."""

    conditions: Conditions | None


@runtime_checkable
class HasMemory(Protocol):
    """A compiled model that knows the device memory it takes."""

    def memory_bytes(self, inputs: Tensors) -> int | None:
        """Bytes of weights, activations, inputs and outputs, the latter for these ``inputs``.

        None if the engine behind it cannot tell. Raises RunError if it fails.
        """


def conditions_of(engine: Engine) -> Conditions | None:
    """How the last measurement of ``engine`` went; None if it does not tell, as on CPUs."""
    return engine.conditions if isinstance(engine, HasConditions) else None


def memory_of(compiled: Compiled, inputs: Tensors) -> int | None:
    """Device memory of ``compiled`` in bytes; None if it does not tell or the engine fails."""
    if not isinstance(compiled, HasMemory):
        return None
    try:
        return compiled.memory_bytes(inputs)
    except RunError as error:
        log.warning("memory not known: %s", error)
        return None
