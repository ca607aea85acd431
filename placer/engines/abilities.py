"""Optional protocols of engines beyond ``Engine``; an engine without the attributes cannot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import onnx

from placer.common.processor import this_processor
from placer.engines.base import Compiled, Engine, Tensors
from placer.graph.shapes import InputType, ShapeRange
from placer.rules.target import Target

# shape-ranges: builds for all shapes of a range. implicit: HasImplicit. saved-engines:
# LoadsEngines. cpu-outputs: outputs are ONNX Runtime's, so that they can be judged without a build.
# built-plans: layers are those of a real build, though latencies are estimates.
Ability = Literal["shape-ranges", "implicit", "saved-engines", "cpu-outputs", "built-plans"]


@runtime_checkable
class HasTarget(Protocol):
    """``target``: what candidates are built for; rules that do not hold there are left out."""

    target: Target


@runtime_checkable
class HasDefaultBase(Protocol):
    """``default_base``: type of what is not quantized where the user names none."""

    default_base: str


@runtime_checkable
class HasAbilities(Protocol):
    """``abilities``: those the engine has here; a method alone does not tell."""

    abilities: frozenset[Ability]


@runtime_checkable
class HasDevice(Protocol):
    """An engine on a device that errors may leave unusable for the process that they happen in."""

    def device_works(self) -> bool:
        """Whether this process can still use it."""


@runtime_checkable
class HasImplicit(Protocol):
    """An engine that quantizes float models by itself, from calibration data and without Q/DQ."""

    def compile_implicit(
        self, model: onnx.ModelProto, base_dir: Path, samples: Iterable[Tensors]
    ) -> Compiled:
        """Build the float ``model`` as an INT8 engine, calibrated on ``samples``.

        ``samples`` may be iterated several times and have the shapes that were given.
        Raises InputError if there is no implicit quantization and RunError if the engine fails.
        """


class SavedEngine(Compiled, Protocol):
    """An engine that was read from a file."""

    inputs: Mapping[str, InputType]


@runtime_checkable
class LoadsEngines(Protocol):
    """An engine that runs what it has built and saved before."""

    def load(self, path: Path) -> SavedEngine:
        """Load the file at ``path``; RunError if it is damaged or for another version or GPU."""


@runtime_checkable
class SavesItself(Protocol):
    """What an engine with the ability ``saved-engines`` has compiled."""

    def save(self, path: Path) -> None:
        """Write what ``LoadsEngines.load`` reads; RunError if the engine cannot."""


@runtime_checkable
class CompilesFiles(Protocol):
    """An engine that reads models from files, so that memory holds no other copy of weights."""

    def compile_file(self, path: Path, base_dir: Path) -> Compiled:
        """As ``Engine.compile``; the file at ``path`` is there as long as what this returns."""


def target_of(engine: Engine) -> Target:
    """What ``engine`` builds for; one that does not say runs on this machine's processor."""
    if isinstance(engine, HasTarget):
        return engine.target
    return Target(processor=this_processor())


def converts_inputs(engine: Engine) -> bool:
    """Whether ``engine`` has files of ``io_type`` convert: it takes float32 for their inputs."""
    return engine.remainder in ("written", "built")


def range_note(engine: Engine, ranges: Mapping[str, ShapeRange]) -> str | None:
    """What becomes of ``ranges`` if ``engine`` does not build for them, else None."""
    real = {name: shape_range for name, shape_range in ranges.items() if not shape_range.is_fixed}
    if not real or "shape-ranges" in abilities_of(engine):
        return None
    taken = ", ".join(
        f"{name}={ShapeRange.fixed(shape_range.optimum).text}" for name, shape_range in real.items()
    )
    return f"engine {engine.name} builds for one shape; of the range it takes {taken}"


def abilities_of(engine: Engine) -> frozenset[Ability]:
    """What ``engine`` can do beyond ``Engine``."""
    return engine.abilities if isinstance(engine, HasAbilities) else frozenset()
