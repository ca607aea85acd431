"""A mapping that differs from another one in few keys."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from placer.common.overlay import Overlay

KEYS = st.sampled_from("abcdef")


@given(st.dictionaries(KEYS, st.integers()), st.dictionaries(KEYS, st.none() | st.integers()))
def test_an_overlay_is_what_a_changed_copy_would_be(
    base: dict[str, int], changes: dict[str, int | None]
) -> None:
    before, overlay, expected = dict(base), Overlay(base), dict(base)
    for key, value in changes.items():
        overlay.put(key, value)
        expected.pop(key, None)
        if value is not None:
            expected[key] = value
    assert overlay.merged() == dict(overlay) == expected
    assert len(overlay) == len(expected)
    for key in "abcdef":
        assert (key in overlay) == (key in expected)
        assert overlay.get(key, 7) == expected.get(key, 7)
    assert base == before
