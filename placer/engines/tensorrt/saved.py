"""Load a serialized engine, and say in one sentence why that fails."""

from __future__ import annotations

from typing import Any

from placer.engines.tensorrt.library import Library
from placer.engines.tensorrt.log import BuildLog
from placer.errors import RunError

# In a file's name, what marks it as a serialized engine.
SUFFIXES = (".engine", ".plan", ".trt")
# What TensorRT's messages say, and what that means for the user; the first that fits counts.
_CAUSES = (
    (("Cuda Runtime", "CUDA GPU properties"), "CUDA does not work here"),
    # Their messages name the plugin's version, too.
    (
        ("Cannot find plugin", "could not find plugin", "IPluginCreator not found"),
        "it has a plugin that is not registered; give its library as engine option plugins=FILE.so",
    ),
    (
        ("host code", "HostCode", "lean runtime"),
        "it has code for the CPU in it, which is not run from a file; build it without "
        "--versionCompatible",
    ),
    (
        (
            *("this version of", "library version", "version tag", "Engine Version"),
            *("magicTag", "magic tag", "Serialization assertion"),
        ),
        "it is not an engine of this library and version; build it with the installed ones",
    ),
    (
        ("compute", "different device", "platform"),
        "it was built for another GPU; build it on one like this",
    ),
)


def deserialize(library: Library, runtime: Any, log: BuildLog, data: bytes, what: str) -> Any:
    """Return the ``ICudaEngine`` of ``data``; ``log`` is what ``runtime`` writes to.

    Raises RunError that says why ``what`` cannot be loaded: damage, another version, another GPU.
    """
    engine = runtime.deserialize_cuda_engine(data) if runtime is not None else None
    if engine is None:
        raise RunError(f"{library.title} cannot load {what}: {load_failure(log.errors)}")
    if _has_no_weights(library, engine):
        raise RunError(f"{what} was saved without its weights; build it without --stripWeights")
    return engine


def _has_no_weights(library: Library, engine: Any) -> bool:
    """Whether weights were stripped from ``engine``: it would run with whatever is there."""
    stats = getattr(library.module, "EngineStat", None)
    if stats is None:  # Not in the first versions of 10.
        return False
    # -1 for an engine that has them.
    return bool(engine.get_engine_stat(stats.STRIPPED_WEIGHTS_SIZE) > 0)


def load_failure(errors: list[str]) -> str:
    """What TensorRT's ``errors`` while it loaded an engine mean, with the first that tells why."""
    reason = BuildLog(errors).reason()
    for signs, meaning in _CAUSES:
        if any(sign.lower() in reason.lower() for sign in signs):
            return f"{meaning} ({reason})"
    return reason
