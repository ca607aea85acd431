"""A candidate whose plan has estimated times, and whose outputs ONNX Runtime computes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx

from placer.engines.base import Compiled, Tensors
from placer.engines.half_precision import HalfPrecisionModel
from placer.engines.onnxruntime.engine import OnnxRuntimeModel
from placer.plan import Plan
from placer.plan.plan import total_us


class EstimatedCandidate:
    """``model`` with its ``plan``, predicted or built; a session is made when it is first run.

    ``optimized``: run with ONNX Runtime's graph optimizations, which FP16 models cannot have (see
    ``HalfPrecisionModel``).
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        base_dir: Path,
        threads: int,
        plan: Plan,
        *,
        optimized: bool = False,
    ) -> None:
        self._model = model
        self._base_dir = base_dir
        self._threads = threads
        self._plan = plan
        self._optimized = optimized

    @cached_property
    def _session(self) -> OnnxRuntimeModel | HalfPrecisionModel:
        if self._optimized:
            return OnnxRuntimeModel(self._model, self._base_dir, self._threads)
        return HalfPrecisionModel(self._model, self._base_dir, self._threads)

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """Outputs as ONNX Runtime computes them on the CPU."""
        return self._session.run(inputs)

    def plan(self, inputs: Tensors | None = None) -> Plan:
        """The layers with estimated times, whatever the inputs."""
        del inputs
        return self._plan


def estimated_seconds(models: Sequence[Compiled], rounds: int) -> np.ndarray:
    """Sums of the layers' times, the same in every round, shape (rounds, len(models))."""
    times = [total_us(model.plan().layers) for model in models]
    return np.tile(np.array(times) * 1e-6, (rounds, 1))
