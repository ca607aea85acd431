"""cuda-python's runtime API with errors as exceptions."""

from __future__ import annotations

import importlib
from typing import Any

from placer.errors import RunError

INSTALL = "pip install cuda-python nvidia-ml-py"


class CudaError(RunError):
    """A CUDA call failed; ``name`` is CUDA's name of the error."""

    def __init__(self, name: str, call: str) -> None:
        super().__init__(f"CUDA call {call} failed: {name}")
        self.name = name


def runtime() -> Any:
    """The module ``cuda.bindings.runtime``; RunError says how to install it."""
    try:
        return importlib.import_module("cuda.bindings.runtime")
    except ImportError as error:
        raise RunError(f"cuda-python cannot be imported ({error}); {INSTALL}") from error


def call(name: str, *arguments: Any) -> Any:
    """Call ``name`` of the runtime API; return its value, or a tuple of several.

    Raises CudaError if CUDA reports an error.
    """
    error, *values = getattr(runtime(), name)(*arguments)
    if int(error) != 0:
        raise CudaError(error.name, name)
    return values[0] if len(values) == 1 else tuple(values)


def device_count() -> int:
    """Number of GPUs that CUDA sees; 0 without a driver or without cuda-python."""
    try:
        return int(call("cudaGetDeviceCount"))
    except RunError:
        return 0


def check_device(index: int) -> None:
    """Raise RunError, which names the valid ones, if there is no GPU ``index``.

    The context on the GPU, which takes some of its memory, is left to ``set_device``.
    """
    count = device_count()
    if not 0 <= index < count:
        raise RunError(f"there is no GPU {index}; CUDA sees {count}, counted from 0")


def set_device(index: int) -> None:
    """Make GPU ``index`` the one that this thread uses, and a context there (since CUDA 12).

    RunError names the valid ones.
    """
    check_device(index)
    call("cudaSetDevice", index)


def compute_capability(index: int = 0) -> str:
    """Compute capability of GPU ``index``, e.g. ``9.0``."""
    attributes = runtime().cudaDeviceAttr
    major = call("cudaDeviceGetAttribute", attributes.cudaDevAttrComputeCapabilityMajor, index)
    minor = call("cudaDeviceGetAttribute", attributes.cudaDevAttrComputeCapabilityMinor, index)
    return f"{major}.{minor}"


def l2_bytes() -> int:
    """Size of the first GPU's L2 cache in bytes."""
    attribute = runtime().cudaDeviceAttr.cudaDevAttrL2CacheSize
    return int(call("cudaDeviceGetAttribute", attribute, 0))
