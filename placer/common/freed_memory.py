"""Memory that was freed, given back to the system."""

from __future__ import annotations

import ctypes
from functools import cache

# Less may lie free: the next model takes it again.
KEPT_BYTES = 1 << 26


def give_back_freed(size: int) -> None:
    """Give the system what glibc keeps of freed memory, where ``size`` bytes of a model are much.

    A block that is smaller than 32 MiB may lie in a heap (``M_MMAP_THRESHOLD`` in mallopt(3)), as
    most weights do, and a heap shrinks by itself at its end only: without this the models that a
    process has had add up. With another C library nothing is done.
    """
    if size > KEPT_BYTES and (library := _glibc()) is not None:
        library.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(None)
        library.malloc_trim.argtypes = [ctypes.c_size_t]
    except (AttributeError, OSError, TypeError):  # TypeError: on Windows None names no library.
        return None
    return library
