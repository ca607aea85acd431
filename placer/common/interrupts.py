"""Ctrl-C held back while something must not be cut short, and heard where Python drops it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import FrameType

_Handler = Callable[[int, FrameType | None], object]
# Keys that are held down repeat, and who presses twice in a moment means one thing.
_SETTLES_S = 0.5
# A collection of garbage that calls weak references back is over by then, or the next one is heard.
_REPEATS_S = 0.05
# How SIGINT and SIGTERM are handled in what a shell without job control starts with `&`.
_BACKGROUND = (signal.SIG_IGN, signal.SIG_DFL)


class _Settling:
    """Handles SIGINT as Python does, but not again before what that ended had time to end.

    ``number``: the signal that it handles. ``lost``: whether Python dropped the KeyboardInterrupt,
    and it is still to be raised again.
    ``report``: the hook for other exceptions that Python drops.
    """

    def __init__(self, number: signal.Signals) -> None:
        self.number = number
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
            signal.pthread_kill(main, self.number)  # Else a call that waits there goes on.


def settle() -> None:
    """From now on, drop each Ctrl-C within half a second of the one that was heard last.

    A second one would disturb what the first made the process do: remove what is half written, and
    say that it ends. One that Python drops is raised again. Does nothing where SIGINT is handled in
    a way of its own.

    SIGTERM is taken as Ctrl-C, too: it is how schedulers and containers end what they run. Also
    where SIGINT is ignored, as shells without job control have it for what they start with ``&``.
    Child processes have SIGTERM's default action.
    """
    ended_by = signal.getsignal(signal.SIGTERM)
    if _heard() is signal.SIGINT:
        _settle(signal.SIGINT)
        if ended_by is signal.SIG_DFL:
            _handle_here(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    elif _is_main() and (signal.getsignal(signal.SIGINT), ended_by) == _BACKGROUND:
        _settle(signal.SIGTERM)


def leave_to_parent() -> None:
    """Ignore SIGINT and SIGTERM from now on: the parent process decides what they mean.

    What this process starts can still be ended by SIGTERM: a program would inherit that it is
    ignored, but not a handler.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _handle_here(signal.SIGTERM, lambda *_: None)
    signal.siginterrupt(signal.SIGTERM, False)  # System calls of libraries go on.


def dealt_with() -> None:
    """The program goes on after a Ctrl-C: the next one, after ``settle``, is heard at once."""
    number = _heard()
    handler = None if number is None else signal.getsignal(number)
    if isinstance(handler, _Settling):
        handler.again_from, handler.lost = 0.0, False


def _settle(number: signal.Signals) -> None:
    settling = _Settling(number)
    _handle_here(number, settling)
    sys.unraisablehook = settling.dropped


def _handle_here(number: signal.Signals, handler: _Handler) -> None:
    """Have ``number`` handled in this process; where it is SIGTERM, not in forked children."""
    signal.signal(number, handler)
    if number is signal.SIGTERM and hasattr(os, "register_at_fork"):
        _end_children_by_default()


@cache
def _end_children_by_default() -> None:
    """Have SIGTERM's default action in forked children, from their first moment on.

    It is blocked while one is forked, because Python drops what a child gets until then.
    """
    masks = threading.local()

    def before() -> None:
        masks.own = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def after() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.own)

    def after_in_child() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        after()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after_in_child)


@dataclass(frozen=True)
class _Noting:
    """Sets ``pressed`` on the signal and hands it on."""

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
    number = _heard()
    handler = None if number is None else signal.getsignal(number)
    if number is None or not callable(handler):
        yield
        return
    before = signal.signal(number, _Noting(pressed, handler))
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def held_back() -> Iterator[None]:
    """Raise KeyboardInterrupt only at the end of the block.

    Raised inside a transaction, it would leave a database locked. Other threads than the main one
    get no signals, so there this does nothing; nor where SIGINT is handled in a way of its own.
    """
    number = _heard()
    if number is None:
        yield
        return
    pressed = threading.Event()
    before = signal.signal(number, lambda *_: pressed.set())
    try:
        yield
    finally:
        signal.signal(number, before)
        if pressed.is_set():
            signal.raise_signal(number)


def _heard() -> signal.Signals | None:
    """The signal that this thread gets as KeyboardInterrupt: SIGINT, or SIGTERM in its place."""
    if not _is_main():
        return None
    if _raises(signal.getsignal(signal.SIGINT)):
        return signal.SIGINT
    return signal.SIGTERM if _raises(signal.getsignal(signal.SIGTERM)) else None


def _raises(handler: object) -> bool:
    return handler is signal.default_int_handler or isinstance(handler, (_Noting, _Settling))


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
