"""Work without the cyclic garbage collector, or with few full collections."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from placer.common.collector import few_full_collections, without_collection


def test_the_collector_is_off_inside_and_on_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="no model"), without_collection():
        assert not gc.isenabled()
        raise ValueError("no model")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@contextmanager
def full_collections() -> Iterator[list[int]]:
    """Of each full collection in the block, how many objects it freed."""
    freed: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "stop" and about["generation"] == 2:
            freed.append(about["collected"])

    gc.callbacks.append(note)
    try:
        yield freed
    finally:
        gc.callbacks.remove(note)


def keep_growing() -> None:
    """Keep so many new objects that Python looks for garbage among all, the old ones included."""
    gc.collect()
    kept = [[] for _ in range(500_000 + len(gc.get_objects()) // 2)]
    del kept


@pytest.mark.slow
def test_a_program_that_grows_has_all_its_objects_walked():
    with full_collections() as freed:
        keep_growing()
    assert freed[1:]  # The first is the one that was asked for.


def test_with_few_full_collections_it_has_not():
    with few_full_collections(), full_collections() as freed:
        keep_growing()
    assert not freed[1:]


def test_collections_are_as_before_after_an_error():
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="in the block"), few_full_collections():
        assert gc.get_threshold() != before
        raise ValueError("in the block")
    assert gc.get_threshold() == before


def test_blocks_that_overlap_leave_nothing_behind():
    before = gc.get_threshold()
    first, second = few_full_collections(), few_full_collections()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before
