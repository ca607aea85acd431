"""A cache as a file that processes share without tearing it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from placer.common.files import write_bytes
from placer.engines.tensorrt.library import Library
from placer.errors import InputError

log = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 60


class CacheFile:
    """The file of one library version and one GPU in ``folder``; ``kind`` is its suffix.

    Reading and merging happen under a lock, and what is written is renamed into place.
    """

    def __init__(self, folder: Path, library: Library, gpu: str, kind: str) -> None:
        name = f"{library.kind}-{library.version}-{gpu}".replace(" ", "-").replace("/", "-")
        self.path = folder / f"{name}.{kind}"
        self._kind = kind
        self._lock = FileLock(f"{self.path}.lock", timeout=LOCK_TIMEOUT_S)

    def read(self) -> bytes:
        """What the file holds, empty if there is none; InputError if it can have no folder."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the folder of the {self._kind} cache, {self.path.parent}: "
                f"{error.strerror}; choose another engine option timing-cache"
            ) from error
        with self._lock:
            return self._read()

    def update(self, merge: Callable[[bytes], bytes]) -> None:
        """Replace what the file holds by ``merge`` of it; nobody else reads or writes meanwhile.

        Raises InputError if it cannot be written, RunError if the disk is full; the file is then
        as it was.
        """
        with self._lock:
            write_bytes(self.path, merge(self._read()))

    def set_aside(self) -> None:
        """Begin anew, because the library does not take what the file holds; it is kept."""
        damaged = self.path.with_name(f"{self.path.name}.damaged")
        log.warning(
            "%s cache %s is damaged and kept as %s; a new one is begun",
            self._kind,
            self.path,
            damaged,
        )
        with self._lock:
            self.path.replace(damaged)

    def _read(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""
