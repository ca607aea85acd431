"""One process at a time in an output folder, or at an output file."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from placer.errors import InputError

LOCK_FILE = ".placer.lock"


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Hold ``output`` for this process: a folder that exists, or a file that need not.

    The operating system drops the lock of a process that dies, so none is ever stale. Raises
    InputError, which names the process and its machine, if another one holds it.
    """
    path = output / LOCK_FILE if output.is_dir() else output.with_name(f".{output.name}.lock")
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        if not path.exists():  # As in /proc, where no file can be made.
            raise InputError(f"cannot write {output}; choose another --output") from error
        raise InputError(
            f"{output} is in use by {_holder(path)}; wait for it, or choose another --output"
        ) from error
    except OSError as error:
        raise InputError(
            f"cannot write {output}: {error.strerror}; choose another --output"
        ) from error
    try:
        with suppress(OSError):
            path.write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")
        yield
    finally:
        with suppress(OSError):  # Windows removes no file that is open.
            path.unlink(missing_ok=True)
        lock.release()


def _holder(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") or "another process"
    except (OSError, UnicodeDecodeError):
        return "another process"
