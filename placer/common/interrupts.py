"""Ctrl-C held back while something must not be cut short."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back() -> Iterator[None]:
    """Raise KeyboardInterrupt only at the end of the block.

    Raised inside a transaction, it would leave a database locked. Other threads than the main one
    get no signals, so there this does nothing; nor where SIGINT is handled in a way of its own.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    pressed = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if pressed.is_set():
            raise KeyboardInterrupt
