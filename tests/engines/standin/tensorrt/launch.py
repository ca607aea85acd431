"""Kernels compiled by NVRTC for the GPU here, or by cc where there is none (standin_host)."""

import ctypes
import re
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np

from placer.engines.cuda.api import call, compute_capability, runtime

SOURCE = Path(__file__).with_name("kernels.c")
_BLOCK = 128
ILLEGAL = 16  # An address that no kernel may write to.


class Parameters(ctypes.Structure):
    """``P`` of kernels.c."""

    _fields_ = (("v", ctypes.c_long * 24), ("f", ctypes.c_float * 4))


def parameters(numbers: tuple[int, ...], floats: tuple[float, ...]) -> Parameters:
    return Parameters((ctypes.c_long * 24)(*map(int, numbers)), (ctypes.c_float * 4)(*floats))


def launch(
    name: str, given: Parameters, count: int, inputs: list[int], output: int, stream: int
) -> None:
    """Put a kernel on ``stream``; RuntimeError if CUDA refuses."""
    if not count:
        return
    addresses = [ctypes.c_void_p(a) for a in (*inputs, 0, 0, 0, 0, 0)[:5]] + [
        ctypes.c_void_p(output)
    ]
    if getattr(runtime(), "ON_HOST", False):
        if output == ILLEGAL:
            runtime().faults.append(output)
            return
        getattr(_host_library(), f"k_{name}")(given, ctypes.c_long(count), *addresses)
        return
    from cuda.bindings import driver  # noqa: PLC0415

    values = [given, ctypes.c_long(count), *addresses]
    pointers = np.array([ctypes.addressof(value) for value in values], np.uint64)
    grid = (count + _BLOCK - 1) // _BLOCK
    (error,) = driver.cuLaunchKernel(
        _functions()[name], grid, 1, 1, _BLOCK, 1, 1, 0, stream, pointers.ctypes.data, 0
    )
    if int(error):
        raise RuntimeError(f"launching {name}: {error}")


@lru_cache(1)
def _host_library() -> ctypes.CDLL:
    folder = tempfile.mkdtemp()
    library = Path(folder) / "kernels.so"
    flags = ["-O2", "-shared", "-fPIC", "-x", "c", "-o", library, SOURCE, "-lm"]
    subprocess.run(["cc", *map(str, flags)], check=True)
    return ctypes.CDLL(str(library))


@lru_cache(1)
def _functions() -> dict[str, object]:
    from cuda.bindings import driver, nvrtc  # noqa: PLC0415

    capability = compute_capability().replace(".", "")
    _, program = nvrtc.nvrtcCreateProgram(SOURCE.read_bytes(), b"kernels.cu", 0, [], [])
    options = [f"--gpu-architecture=sm_{capability}".encode()]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(error):
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        text = b" " * size
        nvrtc.nvrtcGetProgramLog(program, text)
        raise RuntimeError(text.decode())
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    image = b" " * size
    nvrtc.nvrtcGetCUBIN(program, image)
    call("cudaFree", 0)  # Creates the context that the module is loaded into.
    _, module = driver.cuModuleLoadData(image)
    names = set(re.findall(r"\b(?:HEAD|KERNEL)\((\w+)\)", SOURCE.read_text())) - {"name"}
    return {n: driver.cuModuleGetFunction(module, f"k_{n}".encode())[1] for n in names}
