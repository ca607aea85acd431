"""Names in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

MOST = 3


def listed(items: Sequence[object], most: int = MOST, between: str = ", ") -> str:
    """The first ``most`` of ``items``, and how many more there are."""
    shown = between.join(map(str, items[:most]))
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown


def in_quotes(names: Sequence[str], most: int = MOST) -> str:
    """``listed``, each of ``names`` in quotes."""
    return listed([f"'{name}'" for name in names], most)
