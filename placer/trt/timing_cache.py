"""TensorRT's timing cache as a file that processes share without losing or tearing it.

Kernels that were timed once need not be timed again for the next candidate. A file holds one cache
per library version and GPU. Reading and merging happen under a lock, the result is renamed into
place, and a damaged file is set aside and begun anew. In TensorRT-RTX the cache does nothing (it
times kernels when the engine is first used), and says so in a DeprecationWarning.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from placer.errors import InputError
from placer.files import write_bytes
from placer.trt.library import Library

log = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 60


class TimingCache:
    """The cache file of one library version and one GPU in ``folder``."""

    def __init__(self, folder: Path, library: Library, gpu: str) -> None:
        name = f"{library.kind}-{library.version}-{gpu}".replace(" ", "-").replace("/", "-")
        self.path = folder / f"{name}.timing"
        self._lock = FileLock(f"{self.path}.lock", timeout=LOCK_TIMEOUT_S)

    def attach(self, config: Any) -> None:
        """Give the builder what earlier builds have timed."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the folder of the timing cache, {self.path.parent}: "
                f"{error.strerror}; choose another --timing-cache"
            ) from error
        with self._lock:
            data = self.path.read_bytes() if self.path.exists() else b""
        if data and not _set(config, data):
            self._set_aside()
            data = b""
        if not data:
            _set(config, b"")

    def merge(self, config: Any) -> None:
        """Write what is in the file and what this build has timed."""
        with _quiet():
            mine = config.get_timing_cache()
        if mine is None:
            return
        with self._lock, _quiet():
            data = self.path.read_bytes() if self.path.exists() else b""
            other = config.create_timing_cache(data) if data else None
            if other is not None and not mine.combine(other, True):
                log.warning("timing cache %s could not be merged; it is replaced", self.path)
            write_bytes(self.path, bytes(mine.serialize()))

    def _set_aside(self) -> None:
        damaged = self.path.with_suffix(".damaged")
        log.warning("timing cache %s is damaged; it is begun anew, kept as %s", self.path, damaged)
        with self._lock:
            self.path.replace(damaged)


def _set(config: Any, data: bytes) -> bool:
    with _quiet():
        cache = config.create_timing_cache(data)
        return cache is not None and bool(config.set_timing_cache(cache, False))


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
