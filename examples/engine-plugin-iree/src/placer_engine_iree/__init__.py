"""IREE as an engine of placer; ``factory`` is what the entry point names."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_log_path

from placer.engines.base import Engine
from placer.engines.isolation import EngineSpec, IsolatedEngine, Limits
from placer.engines.registry import EngineOptions
from placer.errors import InputError

__all__ = ["IreeFactory", "factory"]

# The instruction set that each target compiles for unless --engine-option arch says otherwise.
# Code for sm_80 runs on all newer GPUs too.
_ARCH: Mapping[str, str] = {"llvm-cpu": "host", "cuda": "sm_80"}


class IreeFactory:
    """Makes the engine ``iree``."""

    rules = str(Path(__file__).parent / "pack")

    def unavailable(self) -> str | None:
        """Say so if IREE is missing; whether there is a GPU is known once a target is chosen."""
        for module, package in (
            ("iree.compiler", "iree-base-compiler"),
            ("iree.runtime", "iree-base-runtime"),
        ):
            if not _is_installed(module):
                return f"{module} is not installed; install it with: pip install {package}"
        return None

    def create(self, options: EngineOptions) -> Engine:
        """Return the engine, which lives in a process of its own.

        ``extra`` may hold ``target`` (llvm-cpu, cuda) and ``arch``.

        Raises InputError for other options and values, RunError if the target has no device here.
        """
        options.check_extra("iree", ("target", "arch"))
        if options.gpu is not None or options.build_for is not None:
            raise InputError("--gpu and --build-for go with --engine fusion-model, not with iree")
        target = options.extra.get("target", "llvm-cpu")
        if target not in _ARCH:
            known = ", ".join(_ARCH)
            raise InputError(f"iree has no target '{target}'; --engine-option target is: {known}")
        arch = options.extra.get("arch", _ARCH[target])
        if target == "cuda" and not re.fullmatch(r"sm_\d{2,3}[af]?", arch):
            raise InputError(f"cuda has no instruction set '{arch}'; give e.g. sm_80")
        if options.device is not None and target != "cuda":
            raise InputError("--device chooses a GPU; add --engine-option target=cuda or leave it")
        arguments = {
            "target": target,
            "arch": arch,
            "threads": options.threads,
            "device": options.device,
            "shapes": dict(options.shapes),
        }
        # A process for each engine: generated code may crash, the number of CPU threads is set once
        # per process, and a GPU's context is that of the thread which opened it.
        spec = EngineSpec("placer_engine_iree.engine", "IreeEngine", arguments)
        return IsolatedEngine(spec, Limits(), user_log_path("placer"))


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # The parent package is missing.
        return False


factory = IreeFactory()
