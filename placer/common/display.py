"""Text of unknown origin made safe to show: on a terminal, in a log, in the report."""

from __future__ import annotations

import io
import re
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

MAX_SENTENCE = 600
MAX_NAME = 70
# Marks that turn the direction of writing (Unicode Standard Annex #9): with them a name can look
# like another one. Invisible spaces and the byte order mark do the same.
_MARKS = frozenset(
    "\u061c\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
)
_HIDDEN = frozenset({"Cc", "Zl", "Zp", "Cs"})
_LAYOUT = "\n\t\r\x1b"  # What our own output is laid out and coloured with.


def printable(text: str, keep: str = "\n\t") -> str:
    """``text`` with control characters, direction marks and lone surrogates as ``[U+202E]``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or not _is_hidden(c) else f"[U+{ord(c):04X}]" for c in text)


def _is_hidden(character: str) -> bool:
    return character in _MARKS or unicodedata.category(character) in _HIDDEN


def sentence(text: str) -> str:
    """``text`` on one line of at most 600 characters, hidden characters shown as codes.

    What is too long is cut in the middle: the end of a message says what to do.
    """
    line = printable(" ".join(text.split()), keep="")
    if len(line) <= MAX_SENTENCE:
        return line
    end = MAX_SENTENCE // 3
    return f"{line[: MAX_SENTENCE - end - 3]}...{line[-end:]}"


def with_short_names(text: str) -> str:
    """``text`` with words of more than 70 characters cut in the middle.

    TensorFlow's converter names a node after all that it stands for, several hundred characters.
    """
    start = MAX_NAME // 2 - 1
    return re.sub(
        rf"[^\s,']{{{MAX_NAME + 1},}}", lambda word: f"{word[0][:start]}...{word[0][-start:]}", text
    )


@contextmanager
def safe_output() -> Iterator[None]:
    """Show hidden characters of names as codes in all that the block prints.

    Colours stay: names with control characters of their own do not get past the loading of models.
    """
    before = sys.stdout, sys.stderr
    # A stream that was closed before Python began is None, as print() and libraries know it.
    sys.stdout, sys.stderr = (cast(TextIO, stream and _Printable(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Printable(io.TextIOBase):
    """A text stream that writes to another one what ``printable`` makes of it.

    What that one's encoding lacks becomes a question mark: a locale is no reason for a run to fail.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        shown = printable(text, keep=_LAYOUT)
        self._stream.write(shown.encode(self.encoding, "replace").decode(self.encoding))
        return len(text)

    # The base class has one, which is None, so that ``__getattr__`` is not asked.
    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "utf-8"

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def __getattr__(self, name: str) -> Any:  # buffer
        return getattr(self._stream, name)
