"""Work without the cyclic garbage collector."""

from __future__ import annotations

import gc

import pytest

from placer.common.collector import without_collection


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
