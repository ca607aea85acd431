"""One run of a model within limits of time and memory, as far as a process can set them itself."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

if sys.platform == "linux":
    import resource

    # What the process was started with, to which each run returns.
    _SOFT_LIMIT, _HARD_LIMIT = resource.getrlimit(resource.RLIMIT_DATA)

_V2, _V1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")
_CGROUPS = (
    (_V2 / "memory.max", _V2 / "memory.current"),
    (_V1 / "memory.limit_in_bytes", _V1 / "memory.usage_in_bytes"),
)
# How often the time is looked at, in parts of the limit.
_LOOKS = 50
# A run on a busy machine gets more time than the limit, but not more than so many times.
_PATIENCE = 10


class Watch:
    """Stops runs, one at a time, that take more than ``limit_s`` seconds.

    On a machine that others use a run takes longer by the clock than it would alone. So half of
    the time must have been the process's CPU time, until the limit has passed ``_PATIENCE`` times.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit = limit_s
        self._run: _Run | None = None
        self._is_watching = False
        self._lock = threading.Lock()

    @contextmanager
    def watching(self, stop: Callable[[], None]) -> Iterator[_Run]:
        """Call ``stop`` if what runs meanwhile takes too long; the run then is ``expired``."""
        run = _Run(stop, time.monotonic(), time.process_time())
        with self._lock:
            self._run = run
            if not self._is_watching:  # A thread for each run would take longer than small models.
                self._is_watching = True
                threading.Thread(target=self._watch, daemon=True).start()
        try:
            yield run
        finally:
            self._run = None

    def _watch(self) -> None:
        while True:
            time.sleep(self._limit / _LOOKS)
            with self._lock:
                run = self._run
                if run is None or run.expired:
                    self._is_watching = False
                    return
            elapsed, used = time.monotonic() - run.began, time.process_time() - run.used
            late = elapsed >= self._limit and used >= self._limit / 2
            if late or elapsed >= _PATIENCE * self._limit:
                run.expired = True
                run.stop()


@dataclass
class _Run:
    """When a run began, in seconds of the clock and of the process's CPU time."""

    stop: Callable[[], None]
    began: float
    used: float
    expired: bool = False


@contextmanager
def headroom(extra_bytes: int) -> Iterator[None]:
    """Let the process allocate ``extra_bytes`` beyond what it has, on Linux.

    Beyond that the system refuses, so that libraries raise errors of their own, which RLIMIT_AS
    would do for address space that is merely reserved, too. The limit is the process's: where
    several threads run models at once, the first to end lifts it for all.
    """
    if sys.platform != "linux":
        yield
        return
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    wanted = pages * resource.getpagesize() + extra_bytes
    inherited = [limit for limit in (_SOFT_LIMIT, _HARD_LIMIT) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(wanted, *inherited, wanted), _HARD_LIMIT))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (_SOFT_LIMIT, _HARD_LIMIT))


def available_memory() -> int | None:
    """Bytes that processes can still take before memory is exhausted; None if unknown.

    What the system says, or less where the container's limit is lower.
    """
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        (kilobytes,) = re.findall(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    except (OSError, ValueError):
        return None
    available = 1024 * int(kilobytes)  # Without swap: what runs there is not worth measuring.
    for limit, used in _CGROUPS:
        with suppress(OSError, ValueError):  # "max", or another version of control groups.
            free = int(limit.read_text(encoding="ascii")) - int(used.read_text(encoding="ascii"))
            return max(0, min(available, free))
    return available
