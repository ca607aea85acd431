"""The engines that compile, run and measure candidates."""

from __future__ import annotations

from placer.engines.base import Engine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.errors import InputError

ENGINES = ("onnxruntime",)


def select_engine(name: str, threads: int) -> tuple[Engine, str]:
    """Return the engine called ``name`` (``auto`` chooses) and a sentence that says why.

    Raises InputError for an unknown name.
    """
    if name == "auto":
        return OnnxRuntimeEngine(threads), "onnxruntime, the only engine this version runs"
    if name == "onnxruntime":
        return OnnxRuntimeEngine(threads), "onnxruntime, as asked for"
    known = ", ".join(("auto", *ENGINES))
    raise InputError(f"unknown engine '{name}'; --engine takes one of: {known}")
