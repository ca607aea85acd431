"""Device memory, pinned host memory, streams and events that are freed when closed."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any

import numpy as np
from typing_extensions import Self

from placer.engines.cuda.api import call, runtime


class Resource(ABC):
    """Something CUDA holds until ``close`` is called; usable in a ``with`` statement."""

    @abstractmethod
    def close(self) -> None:
        """Free it; calling again does nothing."""

    def __enter__(self) -> Self:
        """Return the resource."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Free it."""
        self.close()


class DeviceBuffer(Resource):
    """``size`` bytes of device memory at ``address``; CudaError if there are not that many."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.address = int(call("cudaMalloc", max(1, size)))

    def close(self) -> None:
        """Free the memory."""
        address, self.address = self.address, 0
        if address:
            call("cudaFree", address)


class PinnedArray(Resource):
    """Page-locked host memory seen as the NumPy array ``values``."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        size = max(1, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        self._address = int(call("cudaHostAlloc", size, 0))
        block = (ctypes.c_byte * size).from_address(self._address)
        count = int(np.prod(shape, dtype=np.int64))
        self.values: np.ndarray = np.frombuffer(
            memoryview(block), dtype=dtype, count=count
        ).reshape(shape)

    def close(self) -> None:
        """Free the memory; ``values`` must not be used any more."""
        address, self._address = self._address, 0
        if address:
            self.values = np.empty((0,), self.values.dtype)
            call("cudaFreeHost", address)


class Stream(Resource):
    """A stream; ``handle`` is what other libraries take."""

    def __init__(self) -> None:
        self._stream: Any = call("cudaStreamCreate")

    @property
    def handle(self) -> int:
        """The stream as an integer."""
        return int(self._stream)

    def synchronize(self) -> None:
        """Wait until all work on the stream is done; CudaError if it failed."""
        call("cudaStreamSynchronize", self._stream)

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy ``size`` bytes between any two addresses, host memory being page-locked."""
        kind = runtime().cudaMemcpyKind.cudaMemcpyDefault
        call("cudaMemcpyAsync", target, source, size, kind, self._stream)

    def fill(self, target: int, value: int, size: int) -> None:
        """Set ``size`` bytes at ``target`` to ``value``."""
        call("cudaMemsetAsync", target, value, size, self._stream)

    def close(self) -> None:
        """Destroy the stream."""
        stream, self._stream = self._stream, None
        if stream is not None:
            call("cudaStreamDestroy", stream)


class Event(Resource):
    """A point in a stream whose time CUDA notes."""

    def __init__(self) -> None:
        self._event: Any = call("cudaEventCreate")

    def record(self, stream: Stream) -> None:
        """Put the event behind the work on ``stream``."""
        call("cudaEventRecord", self._event, stream.handle)

    def seconds_since(self, earlier: Event) -> float:
        """Time between the two events in seconds; both must have happened."""
        return float(call("cudaEventElapsedTime", earlier._event, self._event)) * 1e-3

    def close(self) -> None:
        """Destroy the event."""
        event, self._event = self._event, None
        if event is not None:
            call("cudaEventDestroy", event)
