"""How far a run of ``placer fit`` has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import fmean

_PACE_KNOWN = 5  # Measured networks from which is told how long the others take.


class Progress:
    """Which of ``count`` networks one is, and how long the rest takes at the pace so far."""

    def __init__(self, count: int, tell: Callable[[str], None]) -> None:
        self._count = count
        self._tell = tell
        self._number = 0
        self._seconds: list[float] = []
        self._began = time.perf_counter()

    def begin(self) -> None:
        """The next network begins."""
        self._number += 1
        self._began = time.perf_counter()

    def tell(self, sentence: str) -> None:
        """Tell ``sentence`` of this network."""
        self._tell(f"{self._number} of {self._count}, {sentence}")

    def tell_measured(self, sentence: str) -> None:
        """As ``tell``, of one that was measured now, with about how long the others take."""
        self._seconds.append(time.perf_counter() - self._began)
        left = (self._count - self._number) * fmean(self._seconds) / 60
        known = left >= 1 and len(self._seconds) >= _PACE_KNOWN
        self.tell(f"{sentence}; about {left:.0f} min left" if known else sentence)
