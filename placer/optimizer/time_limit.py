"""The time of a run: its limit, what is left, and what it was spent on."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TimeLimit:
    """``start``: ``time.monotonic`` when the run began. ``seconds``: None without a limit.

    ``busy``: how many times as long as its CPU time the start of the process took; 1 if unknown.
    ``kept_s``: seconds before the end that no share of the limit reaches into.
    """

    start: float
    seconds: float | None = None
    busy: float = 1.0
    kept_s: float = 0.0

    @staticmethod
    def begun(seconds: float | None) -> TimeLimit:
        """The limit of a run that begins now, or began ``with_the_process``."""
        now, start = time.monotonic(), _process_start.get()
        if start is None:
            return TimeLimit(now, seconds)
        busy = (now - start) / max(0.1, time.process_time())
        return TimeLimit(start, seconds, min(max(1.0, busy), _MOST_BUSY))

    @property
    def end(self) -> float:
        """``time.monotonic`` when the run must have ended; infinite without a limit."""
        return math.inf if self.seconds is None else self.start + self.seconds

    def after(self, share: float) -> float:
        """``time.monotonic`` when ``share`` of the limit has passed; infinite without a limit.

        Not in the last ``kept_s`` seconds.
        """
        if self.seconds is None:
            return math.inf
        return min(self.start + share * self.seconds, self.end - self.kept_s)

    def span(self, until: float, least: float) -> float:
        """``after(until)``, or later so that what begins now has the share ``least`` of the limit.

        Not in the last ``kept_s`` seconds.
        """
        if self.seconds is None:
            return math.inf
        return min(self.after(1.0), max(self.after(until), time.monotonic() + least * self.seconds))

    @property
    def passed_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.start

    @property
    def left_s(self) -> float:
        """Seconds until the run must have ended, not below 0; infinite without a limit."""
        return max(0.0, self.end - time.monotonic())


# A start that took longer waited for a disk, and what follows will not.
_MOST_BUSY = 5.0
_process_start: ContextVar[float | None] = ContextVar("process start", default=None)


@contextmanager
def with_the_process() -> Iterator[None]:
    """In it, runs began when this process did: a command's limit holds for all of the command."""
    token = _process_start.set(time.monotonic() - _process_age())
    try:
        yield
    finally:
        _process_start.reset(token)


def _process_age() -> float:
    """Seconds since this process began; where the system does not tell, at least its CPU time."""
    cpu_s = time.process_time()
    try:
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        # The name of the command, in parentheses, may hold blanks; the 22nd field is the start.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return plausible_age(uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK"), cpu_s)
    except (OSError, ValueError, IndexError):
        return cpu_s


def plausible_age(seconds: float, cpu_s: float) -> float:
    """``seconds`` if a process that just began and took ``cpu_s`` may be so old, else ``cpu_s``.

    In some containers the time since the start is that of another clock.
    """
    return seconds if cpu_s <= seconds <= 20 * cpu_s + 10 else cpu_s


# A run without a limit.
UNLIMITED = TimeLimit(0.0)


class TimeSpent:
    """Seconds of wall time of a run by what they were spent on, in order."""

    def __init__(self, limit: TimeLimit) -> None:
        self._limit = limit
        self._seconds: dict[str, float] = {}

    def add(self, what: str, seconds: float) -> None:
        """Count ``seconds``."""
        self._seconds[what] = self._seconds.get(what, 0.0) + seconds

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Counts what is done in it as ``what``."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.add(what, time.monotonic() - start)

    @property
    def seconds(self) -> dict[str, float]:
        """By what they were spent on; ``total`` is what has passed since the run began."""
        spent = {**self._seconds, "total": self._limit.passed_s}
        return {what: round(seconds, 3) for what, seconds in spent.items()}
