"""Memory of outputs whose shapes the data decide, such as the boxes that a detector keeps.

TensorRT asks for it while it runs and then says the shape (``IOutputAllocator``); from version 10
on, the context never knows such a shape itself.
"""

from __future__ import annotations

from typing import Any

from placer.engines.cuda.memory import DeviceBuffer


class ChosenOutputs:
    """Device memory and shapes of these outputs in the latest run; memory grows and is kept.

    ``allocator``: what TensorRT is given. Memory that could not be had is refused with a null
    pointer, as TensorRT documents, and ``error`` says why.
    """

    def __init__(self, module: Any) -> None:
        self._buffers: dict[str, DeviceBuffer] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self.error: Exception | None = None
        self.allocator = _allocator(module, self)

    def reallocate(self, name: str, size: int) -> int:
        """The address of at least ``size`` bytes for output ``name``; 0 if there are none."""
        held = self._buffers.get(name)
        if held is not None and held.size >= size:
            return held.address
        try:
            if held is not None:
                del self._buffers[name]
                held.close()
            self._buffers[name] = DeviceBuffer(size)
        except Exception as error:  # Must not pass through TensorRT, which calls this.
            self.error = error
            return 0
        return self._buffers[name].address

    def notify(self, name: str, shape: tuple[int, ...]) -> None:
        """Take down the shape of output ``name``."""
        self._shapes[name] = shape

    def address(self, name: str) -> int:
        """Where output ``name`` is after a run."""
        return self._buffers[name].address

    def shape(self, name: str) -> tuple[int, ...]:
        """Its shape in the latest run."""
        return self._shapes[name]

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return sum(buffer.size for buffer in self._buffers.values())

    def close(self) -> None:
        """Free all memory."""
        for buffer in self._buffers.values():
            buffer.close()
        self._buffers, self._shapes = {}, {}


def _allocator(module: Any, outputs: ChosenOutputs) -> Any:
    class Allocator(module.IOutputAllocator):  # type: ignore[misc]
        def __init__(self) -> None:
            module.IOutputAllocator.__init__(self)

        def reallocate_output(
            self, tensor_name: str, memory: int, size: int, alignment: int
        ) -> int:
            del memory, alignment  # cudaMalloc aligns to 256 bytes, more than TensorRT asks for.
            return outputs.reallocate(tensor_name, size)

        def reallocate_output_async(
            self, tensor_name: str, memory: int, size: int, alignment: int, stream: int
        ) -> int:
            del stream  # cudaFree waits for what still uses the memory.
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            outputs.notify(tensor_name, tuple(shape))

    return Allocator()
