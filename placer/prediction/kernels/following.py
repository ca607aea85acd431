"""What follows units in the network, in its order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from placer.prediction.kernels.parts import Unit


class Following:
    """Units behind one, each once and in the order of the network, while more are added.

    A unit is given out only after all that were added before it and come earlier.
    """

    def __init__(self, units: Sequence[Unit], first: Unit) -> None:
        """``units``: all, by index; ``first``: none up to this one is given out."""
        self._units, self._last = units, first.index
        self._waiting: list[int] = []

    def add_readers(self, unit: Unit) -> None:
        """What reads ``unit`` is to come as well."""
        for _, reader in unit.readers:
            heappush(self._waiting, reader.index)

    def __iter__(self) -> Iterator[Unit]:
        while self._waiting:
            index = heappop(self._waiting)
            if index > self._last:
                self._last = index
                yield self._units[index]
