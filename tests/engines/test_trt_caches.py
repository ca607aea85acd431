"""Cache files that processes share; what TensorRT-RTX keeps in them is tested with its builder."""

import multiprocessing
from pathlib import Path

import pytest
from filelock import FileLock

from placer.engines.tensorrt.cache_file import CacheFile
from placer.engines.tensorrt.library import Library, load_library
from placer.engines.tensorrt.runtime_cache import RuntimeCache
from placer.errors import InputError


def _add_one(folder: Path, times: int) -> None:
    file = CacheFile(folder, load_library("tensorrt-rtx"), "sm89", "runtime")
    for _ in range(times):
        file.update(lambda data: str(int(data or b"0") + 1).encode())


def test_no_update_is_lost_between_processes(library: Library, tmp_path: Path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.starmap(_add_one, [(tmp_path, 20)] * 2)
    assert CacheFile(tmp_path, library, "sm89", "runtime").read() == b"40"
    assert [path for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []


def test_there_is_a_file_per_library_version_gpu_and_kind(library: Library, tmp_path: Path):
    names = {
        CacheFile(tmp_path, library, gpu, kind).path.name
        for gpu in ("NVIDIA L4-sm89", "NVIDIA A10/G-sm86")
        for kind in ("timing", "runtime")
    }
    version = library.version
    assert names == {
        f"tensorrt-rtx-{version}-NVIDIA-L4-sm89.timing",
        f"tensorrt-rtx-{version}-NVIDIA-L4-sm89.runtime",
        f"tensorrt-rtx-{version}-NVIDIA-A10-G-sm86.timing",
        f"tensorrt-rtx-{version}-NVIDIA-A10-G-sm86.runtime",
    }


def test_nobody_reads_while_another_one_writes(library: Library, tmp_path: Path):
    file = CacheFile(tmp_path, library, "sm89", "runtime")
    other = FileLock(f"{file.path}.lock", timeout=0)

    def merge(data: bytes) -> bytes:
        assert data == b""
        with pytest.raises(TimeoutError):
            other.acquire()
        return b"new"

    file.update(merge)
    assert file.read() == b"new"


def test_what_the_library_refuses_is_kept_aside(library: Library, tmp_path: Path):
    file = CacheFile(tmp_path, library, "sm89", "runtime")
    file.update(lambda _: b"of another driver")
    file.set_aside()
    assert file.read() == b""
    (kept,) = tmp_path.glob("*.damaged")
    assert kept.read_bytes() == b"of another driver"
    assert kept.name == f"{file.path.name}.damaged"


def test_a_folder_that_cannot_be_made_is_one_sentence(library: Library, tmp_path: Path):
    (tmp_path / "file").write_text("")
    cache = CacheFile(tmp_path / "file" / "deeper", library, "sm89", "runtime")
    with pytest.raises(InputError, match="cannot make the folder of the runtime cache"):
        cache.read()


def test_tensorrt_rtx_has_the_calls_that_the_runtime_cache_makes(library: Library, tmp_path: Path):
    """Making one takes an engine on a GPU."""
    module = library.module
    assert library.has_runtime_cache
    assert RuntimeCache(tmp_path, library, "NVIDIA L4-sm89").path.suffix == ".runtime"
    engine, config, cache = module.ICudaEngine, module.IRuntimeConfig, module.IRuntimeCache
    assert ".IRuntimeConfig" in engine.create_runtime_config.__doc__
    assert "runtime_config: " in engine.create_execution_context.__doc__
    assert "-> nvinfer1::IRuntimeCache" in config.create_runtime_cache.__doc__
    assert "cache: nvinfer1::IRuntimeCache" in config.set_runtime_cache.__doc__
    assert isinstance(config.dynamic_shapes_kernel_specialization_strategy, property)
    assert module.DynamicShapesKernelSpecializationStrategy.EAGER
    assert "IHostMemory" in cache.serialize.__doc__
    assert "Buffer) -> bool" in cache.deserialize.__doc__
