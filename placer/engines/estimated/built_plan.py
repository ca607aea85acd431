"""An engine whose plans NVIDIA's builder makes, and whose latencies are estimates.

Every candidate is built by TensorRT-RTX for a GPU that need not be here. Its layers and their
types are real; their times are a roofline's. Outputs are ONNX Runtime's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from placer.common.files import temporary_folder
from placer.common.names import unknown
from placer.engines.abilities import Ability
from placer.engines.base import Compiled, Remainder, Tensors
from placer.engines.estimated.candidate import EstimatedCandidate, estimated_seconds
from placer.engines.estimated.fusion_model import BASES
from placer.engines.isolation import EngineSpec, IsolatedEngine, Limits
from placer.engines.tensorrt.build_cache import BuildCache
from placer.engines.tensorrt.library import Library
from placer.engines.tensorrt.plan_builder import PlanBuilder
from placer.errors import InputError
from placer.graph.edit import fix_input_shapes
from placer.graph.shapes import ShapeRange
from placer.prediction.times.built import BuiltEstimator
from placer.prediction.times.devices import target_on, told_apart
from placer.prediction.times.gpus import Gpu
from placer.prediction.times.layer_classes import load_layer_classes
from placer.prediction.times.roofline import ratio_error
from placer.qdq.extract import extract_placement
from placer.rules.pack import Pack

NAME = "tensorrt-rtx-build"


class BuiltPlanEngine:
    """Builds with TensorRT-RTX for ``gpu`` and estimates the latency of what was built.

    ``base``: type of what is not quantized, one of ``BASES``; float16 where None. ``shapes``: of
    dynamic inputs; unknown dimensions are 1. ``folder``: where builds are kept. ``log_dir``: of
    worker processes that failed.
    """

    name = NAME
    estimated = True
    verified = False
    remainder: Remainder = "built"
    abilities: frozenset[Ability] = frozenset({"cpu-outputs", "built-plans"})

    def __init__(
        self,
        library: Library,
        gpu: Gpu,
        pack: Pack,
        base: str | None,
        shapes: Mapping[str, tuple[int, ...]],
        threads: int,
        limits: Limits,
        folder: Path,
        log_dir: Path,
    ) -> None:
        self.default_base = base or BASES[0]
        if self.default_base not in BASES:
            raise InputError(unknown("base", self.default_base, BASES))
        classes = load_layer_classes()
        self.ratio_error = classes.least_ratio_error(self.default_base, gpu.compute_capability)
        self.latency_error = classes.latency_error
        self.version = library.version
        architecture = f"sm{gpu.compute_capability.replace('.', '')}"
        told = f"{self.default_base}, built for {architecture}{told_apart(gpu)}"
        self.device = f"{gpu.name} ({told})"
        self.clock = (
            f"an estimate: layers that {library.title} built, and roofline; nothing was run"
        )
        self.rules: str = pack.manifest.engine
        self.target = target_on(gpu)
        self._source = f"{library.title} for {architecture}, times estimated for {gpu.name}"
        self._shapes = dict(shapes)
        self._threads = threads
        self._gpu = gpu
        self._estimator = BuiltEstimator(gpu, classes)
        fixed = {name: ShapeRange.fixed(shape) for name, shape in self._shapes.items()}
        self._cache = BuildCache(folder, library.title, architecture, fixed)
        self._builder = builder_process(library, architecture, limits, log_dir)

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> EstimatedCandidate:
        """Build ``model``, unless it was built before, and estimate the layers that result.

        Raises RunError if the builder refuses the model, crashes or takes more than its limits.
        """
        fixed = self._with_shapes(model)
        lines = self._cache.lines(fixed, base_dir, lambda: self._build(fixed, base_dir))
        graph = extract_placement(fixed).graph({}, Path("the candidate"))
        self.ratio_error = ratio_error(graph, load_layer_classes(), self.default_base, self._gpu)
        plan = self._estimator.plan(lines, graph, self._source)
        return EstimatedCandidate(model, base_dir, self._threads, plan)

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        """Estimated seconds, see ``estimated_seconds``."""
        del inputs
        return estimated_seconds(models, rounds)

    def close(self) -> None:
        """End the builder's process."""
        self._builder.close()

    def _build(self, model: onnx.ModelProto, base_dir: Path) -> str:
        with temporary_folder() as folder:
            path = Path(folder) / "layers.log"
            self._builder.compile(model, base_dir).save(path)
            return path.read_text(encoding="utf-8")

    def _with_shapes(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """``model`` with the input shapes that it is built for: the log tells no others."""
        constants = {tensor.name for tensor in model.graph.initializer}
        inputs = [value for value in model.graph.input if value.name not in constants]
        shapes = {value.name: self._shapes.get(value.name, _ones(value)) for value in inputs}
        if all(_dims(value) == shapes[value.name] for value in inputs):
            return model
        fixed = onnx.ModelProto()
        fixed.CopyFrom(model)
        fix_input_shapes(fixed, shapes)
        del fixed.graph.value_info[:]
        return fixed


def builder_process(library: Library, gpu: str, limits: Limits, log_dir: Path) -> IsolatedEngine:
    """NVIDIA's builder for ``gpu``, e.g. ``sm89``, in a process that starts with the first build.

    ``log_dir``: of processes that failed.
    """
    spec = EngineSpec("placer.engines.tensorrt.plan_builder", "create", {"gpu": gpu})
    return IsolatedEngine(spec, limits, log_dir, PlanBuilder(library, gpu, {}))


def _dims(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


def _ones(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(size or 1 for size in _dims(value))
