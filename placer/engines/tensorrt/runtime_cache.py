"""TensorRT-RTX's runtime cache in a file: kernels that it compiled when an engine was first run.

Without it every process compiles the kernels of every candidate again. TensorRT has no such cache.
API: ``ICudaEngine.create_runtime_config``, ``IRuntimeConfig.create_runtime_cache`` and
``IRuntimeCache.serialize``/``deserialize`` of the TensorRT-RTX 1.7 bindings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from placer.engines.tensorrt.cache_file import CacheFile
from placer.engines.tensorrt.library import Library


class RuntimeCache:
    """The cache file of one TensorRT-RTX version and one GPU model in ``folder``."""

    def __init__(self, folder: Path, library: Library, gpu: str) -> None:
        self._file = CacheFile(folder, library, gpu, "runtime")
        self._cache: Any = None
        self._saved = b""
        self.path = self._file.path

    def attach(self, config: Any) -> None:
        """Give contexts made with the runtime config ``config`` the cache that all engines share.

        Needs a CUDA context. A file that the library does not take, because the driver changed,
        say, is set aside. The cache must outlive the contexts.
        """
        if self._cache is None:
            cache = config.create_runtime_cache()
            data = self._file.read()
            if data and not cache.deserialize(data):
                self._file.set_aside()
            self._cache = cache
        config.set_runtime_cache(self._cache)

    def save(self) -> None:
        """Write what was on file when the cache was made and what this process compiled since.

        The library has no call that merges two caches: of two processes that save, the later one's
        kernels stay, and the others are compiled again.
        """
        if self._cache is None:
            return
        data = bytes(self._cache.serialize())
        if data != self._saved:
            self._file.update(lambda _: data)
            self._saved = data
