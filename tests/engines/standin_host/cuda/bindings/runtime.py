"""cuda.bindings.runtime on the host: memory is the host's, work is done when it is asked for.

For machines without a GPU: it plays two of unlike compute capability. It cannot capture graphs,
which is an error of CUDA's here as there.
"""

import ctypes
import enum
import time

ON_HOST = True


class cudaError_t(enum.IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorIllegalAddress = 700
    cudaErrorStreamCaptureUnsupported = 900


OK = cudaError_t.cudaSuccess


class cudaDeviceAttr(enum.IntEnum):
    cudaDevAttrL2CacheSize = 38
    cudaDevAttrComputeCapabilityMajor = 75
    cudaDevAttrComputeCapabilityMinor = 76


class cudaMemcpyKind(enum.IntEnum):
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDefault = 4


class cudaStreamCaptureMode(enum.IntEnum):
    cudaStreamCaptureModeThreadLocal = 1


_ATTRIBUTES = ({38: 1 << 20, 75: 9, 76: 0}, {38: 1 << 20, 75: 8, 76: 9})
contexts: set[int] = set()  # As since CUDA 12, a device that is set has one.
faults: list[int] = []  # Addresses that kernels had no right to: every call fails from then on.
_blocks: dict[int, object] = {}
_events: dict[int, float] = {}


def _allocate(size):
    if faults:
        return cudaError_t.cudaErrorIllegalAddress, 0
    block = ctypes.create_string_buffer(max(1, size))
    _blocks[ctypes.addressof(block)] = block
    return OK, ctypes.addressof(block)


def _free(address):
    _blocks.pop(int(address), None)
    return (OK,)


def _copy(target, source, size, kind, stream=None):  # noqa: ARG001
    ctypes.memmove(int(target), int(source), size)
    return (OK,)


def cudaGetDeviceCount():
    return OK, len(_ATTRIBUTES)


def cudaSetDevice(index):
    contexts.add(index)
    return (OK,)


def cudaDeviceGetAttribute(attribute, index):
    return OK, _ATTRIBUTES[index][int(attribute)]


def cudaMemGetInfo():
    return OK, 1 << 30, 1 << 30


def cudaMalloc(size):
    return _allocate(size)


def cudaHostAlloc(size, flags):  # noqa: ARG001
    return _allocate(size)


cudaFree = cudaFreeHost = _free
cudaMemcpy = cudaMemcpyAsync = _copy


def cudaMemsetAsync(target, value, size, stream):  # noqa: ARG001
    ctypes.memset(int(target), value, size)
    return (OK,)


def cudaStreamCreate():
    return OK, 1


def cudaStreamSynchronize(stream=None):  # noqa: ARG001
    return (cudaError_t.cudaErrorIllegalAddress if faults else OK,)


cudaDeviceSynchronize = cudaStreamDestroy = cudaStreamSynchronize


def cudaStreamBeginCapture(stream, mode):  # noqa: ARG001
    return (cudaError_t.cudaErrorStreamCaptureUnsupported,)


def cudaGetLastError():
    return (OK,)


def cudaEventCreate():
    _events[len(_events)] = 0.0
    return OK, len(_events) - 1


def cudaEventRecord(event, stream):  # noqa: ARG001
    _events[event] = time.perf_counter()
    return (OK,)


def cudaEventElapsedTime(earlier, later):
    return OK, 1e3 * (_events[later] - _events[earlier])


def cudaEventDestroy(event):  # noqa: ARG001
    return (OK,)


def cudaDeviceGetPCIBusId(length, index):  # noqa: ARG001
    return OK, b"0000:00:00.0"
