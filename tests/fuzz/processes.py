"""Functions in forked processes with limits on time and memory."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SECONDS = 20.0
# How many times the limit of CPU time a process may take by the clock: other processes slow it
# down on a busy machine, and one that hangs takes no CPU time at all.
_CLOCK_TIMES = 10
MEMORY_BYTES = 2 << 30
# What a process may reserve beyond what it is forked with: libraries, stacks and arenas that are
# never touched come on top of what it uses. The use is measured.
_RESERVED_BYTES = 2 * MEMORY_BYTES
_FAILED = 99


@dataclass(frozen=True)
class Ended:
    """How a process ended: its wait status (None: it took too long), seconds and peak memory."""

    status: int | None
    seconds: float
    peak_bytes: int

    @property
    def code(self) -> int | None:
        """The exit code, None if it was killed."""
        if self.status is None or os.WIFSIGNALED(self.status):
            return None
        return os.WEXITSTATUS(self.status)

    @property
    def is_over_limits(self) -> bool:
        """Whether it took more time or memory than a case may."""
        return self.status is None or self.peak_bytes > MEMORY_BYTES


def in_child(target: Callable[[], int], seconds: float = SECONDS) -> Ended:
    """Run ``target`` in a forked process, whose exit code it returns, and wait for its end.

    ``seconds`` of CPU time, and ten times as many by the clock, are the limit.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        _become(target)
    while time.monotonic() - start < _CLOCK_TIMES * seconds and _cpu_seconds(child) < seconds:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            return Ended(status, time.monotonic() - start, used.ru_maxrss << 10)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    _, _, used = os.wait4(child, 0)
    return Ended(None, time.monotonic() - start, used.ru_maxrss << 10)


def _cpu_seconds(child: int) -> float:
    """CPU time of a process that was not waited for, with that of its children that ended."""
    fields = Path(f"/proc/{child}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _become(target: Callable[[], int]) -> None:
    """Run ``target`` in this, forked, process and end it."""
    code = _FAILED
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
        limit = pages * resource.getpagesize() + _RESERVED_BYTES
        _, highest = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, highest))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = int(target())
    except BaseException:  # Of the harness itself; what is run returns its exit code.
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
