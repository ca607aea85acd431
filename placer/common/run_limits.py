"""One run of a model within limits of time and memory, as far as a process can set them itself."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar, cast

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
# How long a run that was told to stop may take until it is left behind.
_GRACE_S = 1.0
# How long a thread waits for another run: to start one takes longer than small models run.
_IDLE_S = 1.0

T = TypeVar("T")


class Runner:
    """Makes calls, one at a time, each of which may take so long.

    Libraries look whether they shall stop where they like to, if at all, and while the main thread
    is inside of one it hears no Ctrl-C. So calls are made in another thread, which is left behind
    if it does not return: what still runs there ends with the process.

    On a machine that others use a call takes longer by the clock than it would alone. So half of
    the time must have been the process's CPU time, until the limit has passed ``_PATIENCE`` times.
    """

    def __init__(self) -> None:
        self._thread: _Thread | None = None

    def run(self, call: Callable[[], T], seconds: float, stop: Callable[[], object]) -> T:
        """What ``call`` returns or raises; ``stop`` is called if it takes more, or on Ctrl-C.

        Raises TimeoutError if the call then fails, or does not return.
        """
        job = _Job(call)
        thread = self._thread
        if thread is None or not thread.take(job):
            thread = self._thread = _Thread(job)
        try:
            is_late = not _is_over(job, seconds)
            if is_late:
                stop()
                job.over.wait(_GRACE_S)
        except BaseException:
            stop()
            job.over.wait(_GRACE_S)
            raise
        finally:
            if not job.over.is_set():
                thread.is_left_behind = True
                self._thread = None
        error, job.error = job.error, None
        if is_late and (error is not None or not job.over.is_set()):
            raise TimeoutError from error
        if error is not None:
            raise error
        return cast("T", job.value)


class _Job:
    """A call, and what came of it once it is ``over``."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        # Of the thread that asks, by which messages go to the log of its run alone.
        self._context = copy_context()
        self.over = threading.Event()
        self.value: object = None
        self.error: BaseException | None = None

    def do(self) -> None:
        try:
            self.value = self._context.run(self._call)
        except BaseException as error:  # It is raised where it was asked for.
            self.error = error
        self.over.set()


def _is_over(job: _Job, seconds: float) -> bool:
    """Wait for the end of ``job``; whether it came within the time that it may take."""
    began, used = time.monotonic(), time.process_time()
    while not job.over.wait(seconds / _LOOKS):
        elapsed, busy = time.monotonic() - began, time.process_time() - used
        late = elapsed >= seconds and busy >= seconds / 2
        if late or elapsed >= _PATIENCE * seconds:
            return False
    return True


class _Thread(threading.Thread):
    """Makes calls until none has come for a while.

    ``is_left_behind``: the last call did not return when it should.
    """

    def __init__(self, job: _Job) -> None:
        super().__init__(name="placer-run", daemon=True)
        self.is_left_behind = False
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._is_open = True
        self._lock = threading.Lock()
        self._jobs.put(job)
        self.start()

    def take(self, job: _Job) -> bool:
        """Make the call of ``job`` next; False if the thread has ended."""
        with self._lock:
            if self._is_open:
                self._jobs.put(job)
            return self._is_open

    def run(self) -> None:
        """See ``threading.Thread.run``."""
        while True:
            try:
                self._jobs.get(timeout=_IDLE_S).do()
            except Empty:
                with self._lock:
                    self._is_open = not self._jobs.empty()
                if not self._is_open:
                    return
            if self.is_left_behind:
                return


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
