"""The engines ``tensorrt`` and ``tensorrt-rtx`` as the command line makes them: in a worker."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path, user_log_path

from placer.common.names import unknown
from placer.engines.base import Engine
from placer.engines.isolation import EngineSpec, IsolatedEngine, Limits
from placer.engines.registry import EngineOptions
from placer.engines.tensorrt.engine import refuse_gpu
from placer.engines.tensorrt.library import Kind, load_library
from placer.engines.tensorrt.profile import OPTION, parse_shape_values
from placer.errors import InputError, RunError
from placer.graph.shapes import ShapeRange

OPTIONS = (
    "typing",
    "workspace-mb",
    "optimization-level",
    "timing-cache",
    "plugins",
    OPTION,
    "flush-l2",
    "build-timeout",
    "memory-gb",
)

TYPINGS = ("strong", "weak")
LEVELS = ("0", "1", "2", "3", "4", "5")


class TensorRtFactory:
    """Makes TensorRT (``kind``) engines that live in worker processes."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.rules: str = kind  # A pack of its own for each.

    def unavailable(self) -> str | None:
        """Whether the library, a driver or a GPU that it takes is missing."""
        try:
            refuse_gpu(load_library(self._kind), 0)
        except RunError as error:
            return str(error)
        return None

    def create(self, options: EngineOptions) -> Engine:
        """Raises InputError for wrong options and RunError if the engine cannot start."""
        options.check_measured(self._kind)
        options.check_extra(self._kind, OPTIONS)
        extra = options.extra
        workspace = options.whole("workspace-mb")
        fixed = {name: ShapeRange.fixed(shape) for name, shape in options.shapes.items()}
        arguments: dict[str, Any] = {
            "kind": self._kind,
            "device": _device(options.device),
            "shapes": {**fixed, **options.shape_ranges},
            "shape_values": parse_shape_values(extra[OPTION]) if OPTION in extra else {},
            "typing": _typing(extra),
            "workspace_bytes": None if workspace is None else workspace << 20,
            "optimization_level": _optimization_level(extra),
            "timing_cache": Path(extra.get("timing-cache", user_cache_path("placer") / "timing")),
            "plugins": tuple(Path(p) for p in extra.get("plugins", "").split(os.pathsep) if p),
            "flush_l2": extra.get("flush-l2", "false").lower() == "true",
        }
        spec = EngineSpec("placer.engines.tensorrt.engine", "create", arguments)
        limits = Limits.of(options.whole("build-timeout"), options.whole("memory-gb"))
        return IsolatedEngine(spec, limits, user_log_path("placer"))


def _device(text: str | None) -> int:
    if text is None:
        return 0
    if not text.isdecimal():
        raise InputError(f"`device` '{text}' is not a GPU; give its number, counted from 0")
    return int(text)


def _typing(extra: Mapping[str, str]) -> str:
    typing = extra.get("typing", "strong")
    if typing not in TYPINGS:
        raise InputError(f"engine option typing: {unknown('typing', typing, TYPINGS)}")
    return typing


def _optimization_level(extra: Mapping[str, str]) -> int | None:
    level = extra.get("optimization-level")
    if level is None:
        return None
    if level not in LEVELS:
        raise InputError(f"engine option optimization-level={level}: give {', '.join(LEVELS)}")
    return int(level)
