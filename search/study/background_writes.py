"""Writes to a database that nobody waits for, done in turn by a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Lock
from typing import Any


class BackgroundWrites:
    """Does what it is given in a thread of its own, in the order in which that was given.

    After one that failed the others are not done. What fails is raised once, by the next call.
    """

    def __init__(self) -> None:
        # The thread begins with the first; what waits is still written when the process ends.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="study")
        self._lock = Lock()
        self._hurry = Event()  # Set once something comes after what was added last.
        self._waiting: deque[Future[Any]] = deque()
        self._has_failed = False

    def add(self, write: Callable[[], object], *, after_s: float = 0.0) -> None:
        """Have ``write`` done soon. Raises what an earlier one has raised.

        ``after_s``: not before so many seconds, unless something else is to be done meanwhile.
        """
        self._raise_failures(waits=False)
        with self._lock:
            self._hurry.set()
            self._hurry = Event()
            self._waiting.append(self._thread.submit(self._do, write, self._hurry, after_s))

    def wait(self) -> None:
        """Return once all is done. Raises what one of them has raised."""
        with self._lock:
            self._hurry.set()
        self._raise_failures(waits=True)

    def _do(self, write: Callable[[], object], hurry: Event, after_s: float) -> None:
        if self._has_failed:
            return
        if after_s:
            hurry.wait(after_s)
        try:
            write()
        except BaseException:
            self._has_failed = True
            raise

    def _raise_failures(self, *, waits: bool) -> None:
        while True:
            with self._lock:
                if not self._waiting or not (waits or self._waiting[0].done()):
                    return
                first = self._waiting[0]
            # Left where it is until it is done: Ctrl-C may end the waiting.
            error = first.exception()
            with self._lock:
                if self._waiting and self._waiting[0] is first:
                    self._waiting.popleft()
            if error is not None:
                self._has_failed = False
                raise error
