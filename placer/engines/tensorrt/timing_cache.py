"""TensorRT's timing cache in a file that processes share.

Kernels that were timed once need not be timed again for the next candidate. A file holds one cache
per library version and GPU; a damaged one is set aside and begun anew. In TensorRT-RTX the cache
does nothing (it times kernels when the engine is first used), and says so in a DeprecationWarning.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from placer.engines.tensorrt.cache_file import CacheFile
from placer.engines.tensorrt.library import Library

log = logging.getLogger(__name__)


class TimingCache:
    """The cache file of one library version and one GPU in ``folder``."""

    def __init__(self, folder: Path, library: Library, gpu: str) -> None:
        self._file = CacheFile(folder, library, gpu, "timing")
        self.path = self._file.path

    def attach(self, config: Any) -> None:
        """Give the builder what earlier builds have timed."""
        data = self._file.read()
        if data and not _set(config, data):
            self._file.set_aside()
            data = b""
        if not data:
            _set(config, b"")

    def merge(self, config: Any) -> None:
        """Write what is in the file and what this build has timed."""
        with _quiet():
            mine = config.get_timing_cache()
        if mine is not None:
            self._file.update(lambda data: self._merged(config, mine, data))

    def _merged(self, config: Any, mine: Any, data: bytes) -> bytes:
        with _quiet():
            other = config.create_timing_cache(data) if data else None
            if other is not None and not mine.combine(other, True):
                log.warning("timing cache %s could not be merged; it is replaced", self.path)
            return bytes(mine.serialize())


def _set(config: Any, data: bytes) -> bool:
    with _quiet():
        cache = config.create_timing_cache(data)
        return cache is not None and bool(config.set_timing_cache(cache, False))


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
