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
        self.path = self._file.path

    def config(self, engine: Any) -> tuple[Any, Any]:
        """Return a runtime config for contexts of ``engine``, and its cache with what is on file.

        Needs a CUDA context. What the library does not take, because the driver changed, say, is
        set aside.
        """
        config = engine.create_runtime_config()
        cache = config.create_runtime_cache()
        data = self._file.read()
        if data and not cache.deserialize(data):
            self._file.set_aside()
        config.set_runtime_cache(cache)
        return config, cache

    def save(self, cache: Any) -> None:
        """Write ``cache``, which holds what was on file when it was made and what it got since.

        The library has no call that merges two caches: of two processes that save, the later one's
        kernels stay, and the others are compiled again.
        """
        data = bytes(cache.serialize())
        self._file.update(lambda _: data)
