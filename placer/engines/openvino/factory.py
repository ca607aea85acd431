"""The engine ``openvino`` as the command line makes it: in a worker process."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from platformdirs import user_log_path

from placer.engines.isolation import EngineSpec, IsolatedEngine, Limits
from placer.engines.registry import EngineOptions
from placer.errors import InputError
from placer.qdq.bases import Base
from placer.results.objective import Objective

# What OpenVINO computes in, the default first; with auto, every model names its own.
BASES: tuple[Base, ...] = ("float", "bfloat16")
OPTIONS = ("compile-timeout", "memory-gb", "extensions")


class OpenVinoFactory:
    """Makes OpenVINO engines that live in worker processes.

    The CPU plugin writes machine code for the layers that it finds: a candidate that makes it
    crash, hang or take all memory must not end a study.
    """

    rules = "openvino"
    objectives: frozenset[Objective] = frozenset({"latency", "throughput"})
    bases = BASES

    def unavailable(self) -> str | None:
        """Whether OpenVINO is missing."""
        if importlib.util.find_spec("openvino") is None:
            return "OpenVINO is not installed; pip install openvino"
        return None

    def create(self, options: EngineOptions) -> IsolatedEngine:
        """Raises InputError for wrong options and RunError if the engine cannot start."""
        options.check_measured("openvino")
        if options.device is not None:
            raise InputError("`device` chooses a GPU; OpenVINO measures on this machine's CPU")
        options.check_extra("openvino", OPTIONS)
        base = options.base or BASES[0]
        if base not in (*BASES, "auto"):
            raise InputError(f"OpenVINO computes in {' or '.join(BASES)}, not in base {base}")
        arguments: dict[str, Any] = {
            "threads": options.threads,
            "base": base,
            "shapes": dict(options.shapes),
            "objective": options.objective,
            "extensions": [
                str(Path(path).absolute())
                for path in options.extra.get("extensions", "").split(os.pathsep)
                if path
            ],
        }
        if options.objective == "throughput" and options.threads == 1:
            raise InputError(
                "`objective` throughput needs several `threads`, which its streams share, and this "
                "run has 1; give as many as the machine that the model is for has cores"
            )
        limits = Limits.of(options.whole("compile-timeout"), options.whole("memory-gb"))
        spec = EngineSpec("placer.engines.openvino.engine", "create", arguments)
        return IsolatedEngine(spec, limits, user_log_path("placer"))
