"""Standard output kept for what placer prints: native libraries write to the descriptor itself."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_OUT, _ERR = 1, 2


@contextmanager
def native_output_aside() -> Iterator[None]:
    """Send what native libraries print to standard output to standard error instead.

    HiGHS may print a line of its own, which would spoil JSON (its issue 2783). ``sys.stdout`` goes
    where it went before. Child processes of the block inherit the redirection.
    """
    before = sys.stdout
    try:
        kept = os.dup(_OUT)
    except OSError:  # Standard output is closed: there is nothing to spoil.
        yield
        return
    _flush()
    try:
        os.dup2(_ERR, _OUT)
        if _descriptor() == _OUT:  # Not a test's or an embedding program's own stream.
            sys.stdout = os.fdopen(
                os.dup(kept), "w", encoding=before.encoding, errors=before.errors
            )
        yield
    finally:
        _flush()
        if sys.stdout is not before:
            with suppress(OSError):  # A reader that is gone is told of by what printed to it.
                sys.stdout.close()
            sys.stdout = before
        os.dup2(kept, _OUT)
        os.close(kept)


def _descriptor() -> int | None:
    try:
        return sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return None


def _flush() -> None:
    """Write out what Python and the C library hold back for standard output."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
