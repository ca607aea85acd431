"""Python's cyclic garbage collector: in the way of code that makes many lasting objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# One full collection per so many collections of the middle generation; Python's own number is 10.
MIDDLE = 500


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


@contextmanager
def few_full_collections() -> Iterator[None]:
    """Have all objects walked seldom inside the block, for work that takes very long.

    A search keeps a million objects, which take 0.2 to 0.4 s to walk. Cycles that it leaves are
    nearly all found while they are young. Blocks may overlap, as of two threads: the first one to
    begin ends it for all.
    """
    before = gc.get_threshold()
    if before[2] >= MIDDLE:
        yield
        return
    gc.set_threshold(*before[:2], MIDDLE)
    try:
        yield
    finally:
        gc.set_threshold(*before)
