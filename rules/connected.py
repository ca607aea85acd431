"""Which items belong together because they share something."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence


def connected(items: Sequence[Iterable[Hashable]]) -> tuple[tuple[int, ...], ...]:
    """Split ``items`` so that none shares an element with one of another part.

    Returns the parts as ascending indices of items, by their first index. An item without elements
    is a part of its own. Nearly linear in the number of elements.
    """
    parent = list(range(len(items)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = index = parent[parent[index]]
        return index

    owner: dict[Hashable, int] = {}
    for index, elements in enumerate(items):
        for element in elements:
            other = owner.setdefault(element, index)
            if other != index:
                first, second = root(other), root(index)
                parent[max(first, second)] = min(first, second)
    parts: dict[int, list[int]] = {}
    for index in range(len(items)):
        parts.setdefault(root(index), []).append(index)
    return tuple(tuple(part) for part in parts.values())
