"""NVIDIA's builder as a worker process runs it: what is kept of a build is the log of its layers.

Builds may crash, hang or take all memory, so they happen in a process of their own
(placer.engines.isolation); nothing is run, and no GPU is needed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from placer.common.files import write_text
from placer.engines.base import Compiled, Remainder, Tensors
from placer.engines.tensorrt.library import Library
from placer.engines.tensorrt.offline_builder import check_file, import_builder
from placer.errors import RunError
from placer.graph.shapes import ShapeRange
from placer.model import save_model
from placer.plan import Plan

_RUNS_NOTHING = "the builder alone runs nothing; judge and estimate what it built elsewhere"


class PlanBuilder:
    """Builds models for ``gpu``, e.g. ``sm89``; ``save`` of what it compiled writes the log."""

    name = "tensorrt-rtx-builder"
    rules = "tensorrt"
    estimated = True
    verified = False
    remainder: Remainder = "built"
    clock = "nothing is run"

    def __init__(self, library: Library, gpu: str, shapes: Mapping[str, ShapeRange]) -> None:
        self.version = library.version
        self.device = gpu
        self._library = library
        self._shapes = shapes

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> LoggedBuild:
        """Build ``model``; RunError with the node and the reason if the builder refuses it."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "candidate.onnx"
            save_model(model, base_dir, path)
            report = check_file(self._library, path, self.device, self._shapes)
        if not report.accepted:
            raise RunError(f"{report.builder} refuses the candidate: {report.refusals[0]}")
        if not report.logged:  # As if nothing ran, which would be the fastest of all.
            raise RunError(
                f"{report.builder} logs no layers that placer can read; install a version that "
                "the rule pack is made for (placer rules list)"
            )
        return LoggedBuild(report.logged, report.plan)

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        """RunError: nothing runs here."""
        del models, inputs, rounds
        raise RunError(_RUNS_NOTHING)


class LoggedBuild:
    """What the builder logged of the layers of one model."""

    def __init__(self, lines: tuple[str, ...], plan: Plan) -> None:
        self._lines = lines
        self._plan = plan

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """RunError: nothing runs here."""
        del inputs
        raise RunError(_RUNS_NOTHING)

    def plan(self, inputs: Tensors | None = None) -> Plan:
        """The layers as they were logged."""
        del inputs
        return self._plan

    def save(self, path: Path) -> None:
        """Write the lines of the log that describe layers."""
        write_text(path, "".join(f"{line}\n" for line in self._lines))


def create(gpu: str, shapes: Mapping[str, ShapeRange] | None = None) -> PlanBuilder:
    """Make the engine in this process; RunError says how to install the builder."""
    return PlanBuilder(import_builder(), gpu, shapes or {})
