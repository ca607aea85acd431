"""NonZero, whose output has a shape that the data decide: memory is asked for while it runs."""

import numpy as np

from placer.engines.cuda.api import call, runtime


class IOutputAllocator:
    """The user's allocator derives from it."""


def run(
    source: int, shape: tuple[int, ...], name: str, allocator: IOutputAllocator, stream: int
) -> bool:
    """False if ``allocator`` has no memory. Waits for the GPU, so it cannot be captured."""
    call("cudaStreamSynchronize", stream)
    values = np.empty(shape, np.float32)
    kinds = runtime().cudaMemcpyKind
    call("cudaMemcpy", values.ctypes.data, source, values.nbytes, kinds.cudaMemcpyDefault)
    found = np.array(np.nonzero(values), np.int64)
    address = allocator.reallocate_output_async(name, 0, max(1, found.nbytes), 256, stream)
    if not address:
        return False
    if found.nbytes:
        call("cudaMemcpy", address, found.ctypes.data, found.nbytes, kinds.cudaMemcpyDefault)
    allocator.notify_shape(name, found.shape)
    return True
