"""The one place where errors that nobody foresaw become a sentence, their traceback a file."""

from __future__ import annotations

import errno
import platform
import re
import sys
import tempfile
import traceback
from pathlib import Path

from placer.engines.registry import plugin_among
from placer.errors import InputError, PlacerError, RunError
from placer.version import __version__

# Reasons that lie in the path that the user gave.
_PATH_ERRORS = frozenset(
    {
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.EROFS,
    }
)

# How Python holds bytes of a path that are no UTF-8.
_NOT_UTF8 = re.compile("[\udc80-\udcff]")

# What stands for a password in a URL: between the user and the host, or in the query.
_PASSWORD = re.compile(r"(://[^:/@]*:)[^@]*(?=@)|(password=)[^&]*")


def unforeseen(error: Exception) -> PlacerError:
    """What to tell the user of ``error``; writes its traceback to a file that the text names."""
    if isinstance(error, OSError) and error.errno in _PATH_ERRORS:
        return InputError(f"cannot use {error.filename}: {error.strerror}; check the path")
    if isinstance(error, MemoryError):
        return RunError(
            "the memory is exhausted; lower the batch with `shapes` or give less data"
            f"{_kept_in(error)}"
        )
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return RunError(f"the system refuses: {error.strerror or error}{where}{_kept_in(error)}")
    if isinstance(error, UnicodeEncodeError) and _NOT_UTF8.search(error.object):
        around = error.object[max(error.start - 40, 0) : error.end + 40]  # Of a whole document.
        return InputError(f"a file's or folder's name is not UTF-8: {around}; rename it")
    if isinstance(error, RecursionError):
        return InputError(f"something in the input is nested too deeply{_kept_in(error)}")
    what = f"{type(error).__name__}: {error}"
    frames = traceback.walk_tb(error.__traceback__)
    plugin = plugin_among([frame.f_globals["__name__"] for frame, _ in frames])
    if plugin is not None:
        return RunError(
            f"engine {plugin} fails{_kept_in(error)}: {what[:120]}; report it to its authors"
        )
    return RunError(f"this should not happen, please report it{_kept_in(error)}: {what[:120]}")


def _kept_in(error: Exception) -> str:
    """Where the traceback is, for the end of a clause; nothing if no file can be written."""
    # Users send the file with their reports.
    arguments = [_PASSWORD.sub(r"\1\2***", word) for word in sys.argv[1:]]
    head = (
        f"placer {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"arguments: {arguments!r}\n\n"
    )
    text = head + "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="placer-error-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
    except OSError:
        return ""
    return f" (traceback in {Path(file.name)})"
