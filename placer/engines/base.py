"""The engine protocol: compile a candidate, see its plan, run it, measure it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import onnx

from placer.plan import Plan

Tensors = Mapping[str, np.ndarray]
Remainder = Literal["kept", "written", "built", "computed"]


class Compiled(Protocol):
    """A candidate that an engine has compiled."""

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """Return all graph outputs by name for one set of inputs."""

    def plan(self, inputs: Tensors | None = None) -> Plan:
        """Return the layers that the engine really runs.

        With ``inputs`` the engine profiles some runs on them: each layer has the median of its
        times, None where the engine cannot tell. Profiling slows layers down, so hold these times
        against each other and take the latency of the whole from ``Engine.measure``.
        Raises RunError if the engine fails.
        """


class Engine(Protocol):
    """Compiles ONNX models and measures them against each other.

    ``rules``: the engine that rule packs for this one are written for. ``estimated``: latencies are
    estimates; nothing is measured. ``verified``: outputs are compared with ONNX Runtime's before
    they are judged, because the engine computes them itself. ``remainder``: what becomes of the
    type asked for of what is not quantized: ``kept`` (the model's own type), ``written`` (only the
    result is converted), ``built`` (every candidate is), ``computed`` (the model keeps its own, and
    the engine computes in the one asked for).
    """

    name: str
    rules: str
    estimated: bool
    verified: bool
    remainder: Remainder
    version: str
    device: str
    clock: str  # what the seconds below count, e.g. "CPU time, 1 thread"

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> Compiled:
        """Compile ``model``, whose external data is relative to ``base_dir``.

        Raises RunError if the engine refuses the model.
        """

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        """Time ``models`` in turn, ``rounds`` times, after a warm-up.

        Returns seconds, shape (rounds, len(models)). Models of one round ran back to back and in
        an order that changes from round to round, so columns may be compared pairwise.
        """


@runtime_checkable
class CompilesWritten(Protocol):
    """An engine that reads a plan from one model and stands for another, the one that is written.

    Those whose ``remainder`` is ``written``.
    """

    def compile_written(
        self, model: onnx.ModelProto, written: onnx.ModelProto, base_dir: Path
    ) -> Compiled:
        """As ``compile(model, base_dir)``, but it is ``written`` that runs and may be refused."""
