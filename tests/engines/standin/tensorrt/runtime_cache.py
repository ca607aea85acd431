"""TensorRT-RTX's runtime cache as the stand-in plays it: nodes whose kernels were compiled.

An engine's kernels get into the cache of its context when they first run.
"""


class IRuntimeCache:
    """Empty when it is made."""

    def __init__(self) -> None:
        self.compiled: set[str] = set()

    def deserialize(self, data: bytes) -> bool:
        self.compiled |= set(data.decode().split())
        return True

    def serialize(self) -> bytes:
        return " ".join(sorted(self.compiled)).encode()


class RuntimeConfig:
    """Of one engine's contexts."""

    cache: IRuntimeCache | None = None

    def create_runtime_cache(self) -> IRuntimeCache:
        return IRuntimeCache()

    def set_runtime_cache(self, cache: IRuntimeCache) -> bool:
        self.cache = cache
        return True
