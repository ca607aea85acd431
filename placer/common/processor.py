"""What this machine's processor can do."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
# Linux' names of the instructions that multiply int8 by int8: AMX-INT8 and AVX-VNNI-INT8. Those of
# AVX512-VNNI and AVX-VNNI multiply uint8 by int8.
_SIGNED = frozenset({"amx_int8", "avx_vnni_int8"})

_ARM = frozenset({"aarch64", "arm64"})


def is_arm() -> bool:
    """Whether it is an ARM processor of 64 bits."""
    return platform.machine().lower() in _ARM


@lru_cache(maxsize=1)
def multiplies_signed() -> bool | None:
    """Whether it has products of two int8 operands; None where it does not say (not on Linux)."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    flags = [line.partition(":")[2].split() for line in lines if line.startswith("flags")]
    return not _SIGNED.isdisjoint(flags[0]) if flags else None
