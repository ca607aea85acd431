"""A mapping that differs from another one in few keys."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Overlay(Mapping[K, V], Generic[K, V]):
    """``base`` with changes of its own; ``base`` stays as it is and must not change meanwhile.

    ``changes``: what is there instead, None for what is not there any more. Looking up and changing
    a key take the same time however large ``base`` is; ``merged`` copies it.
    """

    def __init__(self, base: Mapping[K, V]) -> None:
        self._base = base
        self.changes: dict[K, V | None] = {}

    def put(self, key: K, value: V | None) -> None:
        """Have ``value`` at ``key``; None: nothing."""
        self.changes[key] = value

    def merged(self) -> dict[K, V]:
        """All of it as a dictionary of its own."""
        mapping = dict(self._base)
        for key, value in self.changes.items():
            if value is None:
                mapping.pop(key, None)
            else:
                mapping[key] = value
        return mapping

    def get(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]
        """What is at ``key``, ``default`` where nothing is."""
        if key in self.changes:
            value = self.changes[key]
            return default if value is None else value
        return self._base.get(key, default)

    def __contains__(self, key: object) -> bool:
        if key in self.changes:
            return self.changes[key] is not None
        return key in self._base

    def __getitem__(self, key: K) -> V:
        value = self.changes[key] if key in self.changes else self._base[key]
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[K]:
        yield from (key for key in self._base if key not in self.changes)
        yield from (key for key, value in self.changes.items() if value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
