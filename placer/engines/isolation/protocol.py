"""What goes between an isolated engine and the process that it lives in."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from placer.common.custom_ops import custom_op_libraries
from placer.engines.abilities import Ability, abilities_of, target_of
from placer.engines.base import Engine, Remainder, Tensors
from placer.engines.conditions import Conditions
from placer.errors import GateError, InputError, PlacerError, RunError
from placer.rules.target import Target

PICKLE_PROTOCOL = 5  # The first that does not copy arrays once more.
# The most specific class comes first: a worker names the first one that an error is of.
ERRORS: tuple[type[PlacerError], ...] = (InputError, RunError, GateError, PlacerError)


@dataclass(frozen=True)
class EngineSpec:
    """How a worker makes its engine: ``module.factory(**arguments)``.

    ``arguments`` must be picklable. ``device``: the value of CUDA_VISIBLE_DEVICES in the worker,
    None to keep this process's. ``custom_ops``: the libraries whose custom operators its sessions
    load, by default those of the context that makes the engine.
    """

    module: str
    factory: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    custom_ops: tuple[str, ...] = field(default_factory=custom_op_libraries)


@dataclass(frozen=True)
class Start:
    """Make the engine; answered with a ``Hello``."""

    spec: EngineSpec


@dataclass(frozen=True)
class Hello:
    """The attributes of the worker's engine; see ``Engine`` and ``placer.engines.abilities``."""

    name: str
    rules: str
    estimated: bool
    verified: bool
    remainder: Remainder
    version: str
    device: str
    clock: str
    target: Target
    abilities: frozenset[Ability]

    @staticmethod
    def of(engine: Engine) -> Hello:
        """Those of ``engine``."""
        return Hello(
            name=engine.name,
            rules=engine.rules,
            estimated=engine.estimated,
            verified=engine.verified,
            remainder=engine.remainder,
            version=engine.version,
            device=engine.device,
            clock=engine.clock,
            target=target_of(engine),
            abilities=abilities_of(engine),
        )


@dataclass(frozen=True)
class Compile:
    """Compile the ONNX file at ``path`` and keep the result as ``handle``; answered with None."""

    handle: int
    path: str
    base_dir: str


@dataclass(frozen=True)
class CompileImplicit:
    """The same without Q/DQ pairs, calibrated on the ``samples`` of a ``SampleFile``."""

    handle: int
    path: str
    base_dir: str
    samples: str


@dataclass(frozen=True)
class Load:
    """Load the saved engine at ``path`` as ``handle``; answered with its inputs."""

    handle: int
    path: str


@dataclass(frozen=True)
class Save:
    """Write the engine of ``handle`` to the file at ``path``; answered with None."""

    handle: int
    path: str


@dataclass(frozen=True)
class Run:
    """Run ``handle``; answered with its outputs by name."""

    handle: int
    inputs: Tensors


@dataclass(frozen=True)
class ReadPlan:
    """Answered with the Plan of ``handle``, profiled if there are ``inputs``."""

    handle: int
    inputs: Tensors | None = None


@dataclass(frozen=True)
class Measure:
    """Answered with ``Measured``."""

    handles: tuple[int, ...]
    inputs: Tensors
    rounds: int


@dataclass(frozen=True)
class Measured:
    """Seconds, shape (rounds, len(handles)), and how the measurement went."""

    seconds: np.ndarray
    conditions: Conditions | None


@dataclass(frozen=True)
class ReadMemory:
    """Answered with the device memory of ``handle`` in bytes, None if the engine cannot tell."""

    handle: int
    inputs: Tensors


Build: TypeAlias = Compile | CompileImplicit | Load
Command: TypeAlias = Start | Build | Save | Run | ReadPlan | Measure | ReadMemory


@dataclass(frozen=True)
class Request:
    """A command to the worker.

    ``stage``: what it does in words. ``seconds``: its time. ``dropped``: handles that nobody holds
    any more; the worker forgets them first.
    """

    command: Command
    stage: str
    seconds: float
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True)
class Done:
    """The worker's answer."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """The error that the worker's engine raised: its sentence and index in ``ERRORS``.

    ``error`` is None for an exception that is not placer's. ``device_works``: see
    ``placer.engines.abilities.HasDevice``.
    """

    text: str
    error: int | None
    device_works: bool = True


@dataclass(frozen=True)
class SampleFile:
    """Inputs by name, one pickle after the other; can be iterated any number of times."""

    path: Path

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield the samples, of which only one is in memory."""
        with self.path.open("rb") as file:
            while file.peek(1):
                yield pickle.load(file)

    def write(self, samples: Iterable[Tensors]) -> None:
        """Make the file."""
        with self.path.open("wb") as file:
            for sample in samples:
                pickle.dump(dict(sample), file, PICKLE_PROTOCOL)


def only_builds(command: Command) -> bool:
    """Whether the engine runs nothing on the device for ``command``."""
    is_plan = isinstance(command, ReadPlan) and command.inputs is None
    return isinstance(command, Compile | Load) or is_plan
