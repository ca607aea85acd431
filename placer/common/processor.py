"""What processors can do, as far as it decides what engines build on them or compute."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_ARM = frozenset({"aarch64", "arm64"})


@dataclass(frozen=True)
class Processor:
    """What engines ask a processor for; None where it is not known.

    ``signed_products``: products of two int8 operands (AMX-INT8, AVX-VNNI-INT8).
    ``avx512``: vectors of 512 bits, with all that oneDNN's ``avx512_core`` and ONNX Runtime's
    blocks of 16 channels need.
    ``exact_products``: sums of products of uint8 by int8 that never saturate. Without VNNI, x86
    adds pairs of products in 16 bits (VPMADDUBSW).
    """

    signed_products: bool | None = None
    avx512: bool | None = None
    exact_products: bool | None = None


UNKNOWN_PROCESSOR = Processor()
# Kinds of processors by what they have for integers, as users name them.
PROCESSORS: Mapping[str, Processor] = {
    "avx2": Processor(signed_products=False, avx512=False, exact_products=False),
    "avx2-vnni": Processor(signed_products=False, avx512=False, exact_products=True),
    "avx2-vnni-int8": Processor(signed_products=True, avx512=False, exact_products=True),
    "avx512": Processor(signed_products=False, avx512=True, exact_products=False),
    "avx512-vnni": Processor(signed_products=False, avx512=True, exact_products=True),
    "amx": Processor(signed_products=True, avx512=True, exact_products=True),
}


def kind_of(processor: Processor) -> str | None:
    """The key of ``PROCESSORS`` that has all that ``processor`` has; None if there is none."""
    return next((kind for kind, one in PROCESSORS.items() if one == processor), None)


def is_arm() -> bool:
    """Whether this machine has an ARM processor of 64 bits."""
    return platform.machine().lower() in _ARM


@lru_cache(maxsize=1)
def this_processor() -> Processor:
    """That of this machine; what it has is known on Linux only."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return UNKNOWN_PROCESSOR
    flags = [line.partition(":")[2].split() for line in lines if line.startswith("flags")]
    return with_flags(frozenset(flags[0])) if flags else UNKNOWN_PROCESSOR


def with_flags(flags: frozenset[str]) -> Processor:
    """An x86 processor whose ``flags`` are those of Linux' /proc/cpuinfo."""
    return Processor(
        signed_products=not flags.isdisjoint({"amx_int8", "avx_vnni_int8"}),
        avx512={"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= flags,
        exact_products=not flags.isdisjoint({"avx512_vnni", "avx_vnni", "avx_vnni_int8"}),
    )
