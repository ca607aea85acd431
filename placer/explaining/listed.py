"""Names of nodes in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 3


def listed(names: Sequence[str]) -> str:
    """The first of ``names`` in quotes, and how many more there are."""
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
