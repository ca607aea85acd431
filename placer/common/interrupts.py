"""Ctrl-C held back while something must not be cut short, and heard where Python drops it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_Handler = Callable[[int, FrameType | None], object]
# Keys that are held down repeat, and who presses twice in a moment means one thing.
_SETTLES_S = 0.5
# A collection of garbage that calls weak references back is over by then, or the next one is heard.
_REPEATS_S = 0.05


class _Settling:
    """Handles SIGINT as Python does, but not again before what that ended had time to end.

    ``lost``: whether Python dropped the KeyboardInterrupt, and it is still to be raised again.
    ``report``: the hook for other exceptions that Python drops.
    """

    def __init__(self) -> None:
        self.again_from = 0.0
        self.lost = False
        self.report = sys.unraisablehook

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now < self.again_from:
            return
        self.again_from = now + _SETTLES_S
        signal.default_int_handler(number, frame)

    def dropped(self, exception: sys.UnraisableHookArgs) -> None:
        """Have a KeyboardInterrupt that nobody got raised again, instead of printing it.

        What is raised while an object is destroyed or a weak reference calls back reaches no one.
        That is where a Ctrl-C is heard that was pressed while garbage was collected: until then no
        Python code ran.
        """
        if not issubclass(exception.exc_type, KeyboardInterrupt):
            self.report(exception)
            return
        self.again_from, self.lost = 0.0, True
        # Not by this thread: it would be raised in here, and dropped as well.
        threading.Thread(target=self._repeat, daemon=True).start()

    def _repeat(self) -> None:
        time.sleep(_REPEATS_S)
        main = threading.main_thread().ident
        if self.lost and main is not None:
            self.lost = False
            signal.pthread_kill(main, signal.SIGINT)  # Else a call that waits there goes on.


def settle() -> None:
    """From now on, drop each Ctrl-C within half a second of the one that was heard last.

    A second one would disturb what the first made the process do: remove what is half written, and
    say that it ends. One that Python drops is raised again. Does nothing where SIGINT is handled in
    a way of its own.

    SIGTERM is taken as Ctrl-C, too: it is how schedulers and containers end what they run.
    """
    if _is_plain():
        settling = _Settling()
        signal.signal(signal.SIGINT, settling)
        sys.unraisablehook = settling.dropped
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def dealt_with() -> None:
    """The program goes on after a Ctrl-C: the next one, after ``settle``, is heard at once."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, _Settling):
        handler.again_from, handler.lost = 0.0, False


@dataclass(frozen=True)
class _Noting:
    """Sets ``pressed`` on SIGINT and hands it on."""

    pressed: threading.Event
    handler: _Handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.pressed.set()
        self.handler(number, frame)


@contextmanager
def noted(pressed: threading.Event) -> Iterator[None]:
    """Set ``pressed`` on Ctrl-C, which raises KeyboardInterrupt as well.

    Python drops an exception that is raised while an object is destroyed or a weak reference calls
    back, so that KeyboardInterrupt alone may be lost. Other threads than the main one get no
    signals, so there this does nothing; nor where SIGINT is handled in a way of its own.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not (_is_plain() and callable(handler)):
        yield
        return
    before = signal.signal(signal.SIGINT, _Noting(pressed, handler))
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
        handler is signal.default_int_handler or isinstance(handler, (_Noting, _Settling))
    )
