"""Python's cyclic garbage collector: in the way of code that makes many lasting objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no cycles inside the block; what is not part of a cycle is freed as ever.

    Each collection walks all objects that there are. Where nearly all of them stay, as the nodes,
    matches and layers of a large model do, that takes more time the more there are and frees
    nothing. What there is at the end counts as old, so that the next collections pass over it.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if gc.get_freeze_count() == 0:  # Else it would free what the caller froze.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
