"""Writing files so that a killed run never leaves half of one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from placer.errors import InputError


def write_text(path: Path, text: str) -> None:
    """Write ``text`` under a temporary name beside ``path`` and rename it.

    Raises InputError if the folder cannot be written.
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` under a temporary name beside ``path`` and rename it.

    Raises InputError if the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise InputError(
            f"cannot write {path}: {error.strerror}; choose another --output"
        ) from error


def remove_if_empty(path: Path) -> None:
    """Remove the folder ``path`` unless it holds something."""
    with suppress(OSError):
        path.rmdir()


def make_output_folder(path: Path) -> None:
    """Create ``path`` and its parents; raises InputError if it cannot be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise InputError(f"{path} is a file; choose another --output") from error
    except OSError as error:
        raise InputError(f"cannot create {path}: {error.strerror}; choose --output") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError(f"{path} is not writable; choose another --output")
