"""The engines that compile, run and measure candidates."""

from __future__ import annotations

from collections.abc import Mapping

from placer.engines.base import Engine
from placer.engines.fusion_model import FusionModelEngine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.errors import InputError
from placer.gpus import load_gpu
from placer.rules.loader import Pack, load_pack

ENGINES = ("onnxruntime", "fusion-model")
_FUSION_MODEL_PACK = "tensorrt"


def select_engine(
    name: str,
    *,
    threads: int,
    pack: str | None,
    gpu: str | None,
    base: str,
    shapes: Mapping[str, tuple[int, ...]],
    build_for: str | None = None,
) -> tuple[Engine, Pack, str]:
    """Return the engine called ``name`` (``auto`` chooses), its pack and why it was taken.

    ``pack`` None takes the engine's own. ``gpu``, ``base`` and ``build_for``: see
    FusionModelEngine. Raises InputError for an unknown name, and for a GPU with an engine that has
    none or the reverse.
    """
    if name in ("auto", "onnxruntime"):
        if gpu is not None or build_for is not None:
            raise InputError(
                "--gpu and --build-for go with --engine fusion-model; ONNX Runtime measures on "
                "this machine's CPU"
            )
        why = "as asked for" if name != "auto" else "the only engine that runs on this machine"
        return OnnxRuntimeEngine(threads), load_pack(pack or "onnxruntime"), why
    if name == "fusion-model":
        if gpu is None:
            raise InputError(
                "--engine fusion-model needs a GPU to predict for; give e.g. --gpu a100"
            )
        rules = load_pack(pack or _FUSION_MODEL_PACK)
        engine = FusionModelEngine(load_gpu(gpu), rules, base, shapes, threads, build_for)
        return engine, rules, "as asked for; every latency is an estimate"
    known = ", ".join(("auto", *ENGINES))
    raise InputError(f"unknown engine '{name}'; --engine takes one of: {known}")
