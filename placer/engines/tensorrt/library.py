"""Find TensorRT's Python module and say what it can do; docs/tensorrt.md lists the differences."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal

from placer.common.extras import install_command
from placer.errors import RunError

Kind = Literal["tensorrt", "tensorrt-rtx"]
_MODULES: dict[Kind, tuple[str, ...]] = {
    "tensorrt": ("tensorrt",),
    "tensorrt-rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings"),
}
NO_IMPLICIT = (
    "has no implicit quantization, which TensorRT deprecated in 10.1 and which no longer exists in "
    "11; use `beats` float"
)
# The extras of this distribution that bring in what each needs.
_EXTRAS: dict[Kind, str] = {"tensorrt": "tensorrt", "tensorrt-rtx": "rtx"}


@dataclass(frozen=True)
class Library:
    """An imported TensorRT."""

    kind: Kind
    module: Any

    @property
    def version(self) -> str:
        """E.g. ``10.13.3.9``."""
        return str(self.module.__version__)

    @property
    def title(self) -> str:
        """E.g. ``TensorRT-RTX 1.7.1.116``."""
        name = "TensorRT" if self.kind == "tensorrt" else "TensorRT-RTX"
        return f"{name} {self.version}"

    @property
    def has_weak_typing(self) -> bool:
        """Whether the builder may choose types: up to version 10."""
        return hasattr(self.module.BuilderFlag, "INT8")

    @property
    def has_implicit_quantization(self) -> bool:
        """Whether there are calibrators: up to version 10."""
        return hasattr(self.module, "IInt8EntropyCalibrator2")

    @property
    def has_runtime_cache(self) -> bool:
        """Whether kernels that are compiled when an engine first runs can be kept."""
        return hasattr(self.module, "IRuntimeCache")

    @property
    def builds_without_gpu(self) -> bool:
        """Whether the builder takes a compute capability instead of a GPU."""
        return hasattr(self.module, "ComputeCapability")

    def network_flags(self, strong: bool) -> int:
        """Flags of ``create_network``; strong typing is the only one from version 11 on."""
        member = getattr(self.module.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
        return 1 << int(member) if strong and member is not None else 0


def load_library(kind: Kind) -> Library:
    """Import the module of ``kind``; RunError says how to install it or why it fails to load."""
    reasons = []
    for name in _MODULES[kind]:
        try:
            return Library(kind, importlib.import_module(name))
        except ModuleNotFoundError as error:
            if error.name != name:
                reasons.append(str(error))
        except (ImportError, OSError, RuntimeError) as error:  # A library behind it is missing.
            reasons.append(str(error))
    title = "TensorRT" if kind == "tensorrt" else "TensorRT-RTX"
    if reasons:
        raise RunError(f"{title} is installed but cannot be loaded: {reasons[0]}")
    raise RunError(f"{title} is not installed; install it with: {install_command(_EXTRAS[kind])}")
