"""Ctrl-C held back while something must not be cut short, and heard where Python drops it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass(frozen=True)
class _Noting:
    """Handles SIGINT as Python does, but sets ``pressed`` first."""

    pressed: threading.Event

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.pressed.set()
        signal.default_int_handler(number, frame)


@contextmanager
def noted(pressed: threading.Event) -> Iterator[None]:
    """Set ``pressed`` on Ctrl-C, which raises KeyboardInterrupt as well.

    Python drops an exception that is raised while an object is destroyed or a weak reference calls
    back, so that KeyboardInterrupt alone may be lost. Other threads than the main one get no
    signals, so there this does nothing; nor where SIGINT is handled in a way of its own.
    """
    if not _is_plain():
        yield
        return
    before = signal.signal(signal.SIGINT, _Noting(pressed))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def held_back() -> Iterator[None]:
    """Raise KeyboardInterrupt only at the end of the block.

    Raised inside a transaction, it would leave a database locked. Other threads than the main one
    get no signals, so there this does nothing; nor where SIGINT is handled in a way of its own.
    """
    if not _is_plain():
        yield
        return
    pressed = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed.is_set():
            signal.raise_signal(signal.SIGINT)


def _is_plain() -> bool:
    """Whether this thread gets SIGINT, and as KeyboardInterrupt."""
    handler = signal.getsignal(signal.SIGINT)
    return threading.current_thread() is threading.main_thread() and (
        handler is signal.default_int_handler or isinstance(handler, _Noting)
    )
