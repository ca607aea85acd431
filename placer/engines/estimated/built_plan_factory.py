"""The engine ``tensorrt-rtx-build`` as the command line makes it."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_cache_path, user_log_path

from placer.engines.base import Engine
from placer.engines.estimated.built_plan import NAME, BuiltPlanEngine
from placer.engines.isolation import Limits
from placer.engines.registry import EngineOptions
from placer.engines.tensorrt.build import check_gpu
from placer.engines.tensorrt.offline_builder import import_builder
from placer.errors import InputError, RunError
from placer.prediction.times.devices import load_device
from placer.prediction.times.fitted import Fit
from placer.prediction.times.gpus import Gpu

OPTIONS = ("build-timeout", "memory-gb", "build-cache")


class BuiltPlanFactory:
    """Makes engines that build in a worker process, where a crash or a hang ends a trial only."""

    rules = "tensorrt-rtx"

    def unavailable(self) -> str | None:
        """Whether TensorRT-RTX, whose builder needs no GPU, is missing."""
        try:
            import_builder()
        except RunError as error:
            return str(error)
        return None

    def create(self, options: EngineOptions) -> Engine:
        """Raises InputError without a GPU to build for, and for one that is not built for."""
        gpu = _gpu(options)
        options.check_extra(NAME, OPTIONS)
        library = import_builder()
        check_gpu(library, f"sm{gpu.compute_capability.replace('.', '')}", gpu.name)
        limits = Limits.of(options.whole("build-timeout"), options.whole("memory-gb"))
        folder = options.extra.get("build-cache")
        return BuiltPlanEngine(
            library,
            gpu,
            options.pack,
            options.base,
            options.shapes,
            options.threads,
            limits,
            Path(folder) if folder else user_cache_path("placer") / "builds",
            user_log_path("placer"),
        )


def _gpu(options: EngineOptions) -> Gpu:
    if options.gpu is None:
        raise InputError(
            f"engine {NAME} needs a GPU to build for and to estimate; give `gpu`, e.g. l4"
        )
    if options.device is not None or options.build_for is not None:
        raise InputError(
            f"engine {NAME} builds for the GPU of `gpu`; leave out `device` and `build_for`"
        )
    gpu = load_device(options.gpu)
    if isinstance(gpu, Fit):
        raise InputError(
            f"{options.gpu} holds costs of predicted layers, and engine {NAME} estimates built "
            "ones; give the name or the file of a GPU as `gpu`"
        )
    return gpu
