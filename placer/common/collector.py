"""Python's cyclic garbage collector: in the way of code that makes many lasting objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# A full collection at most every so many of those of younger objects; Python's own number is 10.
YOUNGER = 500


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
    nearly all found while they are young.
    """
    before = gc.get_threshold()
    gc.set_threshold(*before[:2], max(YOUNGER, before[2]))
    try:
        yield
    finally:
        gc.set_threshold(*before)
