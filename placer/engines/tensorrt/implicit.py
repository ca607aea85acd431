"""Implicit INT8 engines of TensorRT 10: it chooses the layers and calibrates them itself.

They are what placer's result is held against by the gate ``implicit``. TensorRT deprecated implicit
quantization in 10.1; 11 and TensorRT-RTX do not have it. The calibrator follows the docstrings of
``IInt8EntropyCalibrator2`` in the bindings of 10.13.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from placer.common.files import data_file, write_bytes
from placer.engines.cuda.memory import DeviceBuffer, PinnedArray, Stream
from placer.engines.tensorrt.build import BuildReport, BuildSettings, build
from placer.engines.tensorrt.library import NO_IMPLICIT, Library
from placer.errors import InputError, PlacerError, RunError

Tensors = Mapping[str, np.ndarray]
_READ_BYTES = 1 << 20


def build_implicit(
    library: Library, source: Path, settings: BuildSettings, samples: Iterable[Tensors]
) -> BuildReport:
    """Build the float model at ``source``, weakly typed, INT8 and FP16, calibrated on ``samples``.

    ``samples`` have the optimum of ``settings.shapes`` and are iterated twice at most. What was
    calibrated is kept beside the timing cache, by library version, model and samples.
    Raises InputError if ``library`` has no implicit quantization, RunError if a sample does not
    reach the GPU; what the parser or the builder refuses is in the report.
    """
    refuse_without_implicit(library)
    cache = None
    if settings.timing_cache is not None:
        cache = calibration_file(settings.timing_cache, library, source, samples)
    with Feed(samples, cache) as feed:
        calibrator = make_calibrator(library.module, feed)
        report = build(library, source, implicit_settings(settings, calibrator))
        feed.raise_error()
    return report


def refuse_without_implicit(library: Library) -> None:
    """Raise InputError if ``library`` has no calibrators."""
    if not library.has_implicit_quantization:
        raise InputError(f"{library.title} {NO_IMPLICIT}")


def implicit_settings(settings: BuildSettings, calibrator: Any) -> BuildSettings:
    """``settings`` for an implicit engine: TensorRT chooses among FP32, FP16 and INT8."""
    return replace(settings, typing="weak", calibrator=calibrator)


def calibration_file(
    folder: Path, library: Library, source: Path, samples: Iterable[Tensors]
) -> Path:
    """Where the calibration of the model at ``source`` (external data in NAME.data) is kept."""
    digest = hashlib.sha256()
    for path in (source, data_file(source)):
        if path.exists():
            for block in _blocks(path):
                digest.update(block)
    for sample in samples:
        for name in sorted(sample):
            array = np.asarray(sample[name], order="C")
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(array.tobytes())
    return folder / f"{library.kind}-{library.version}-{digest.hexdigest()[:16]}.calibration"


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            yield block


class Feed:
    """What a calibrator asks for: samples on the GPU, one at a time, and the file that it keeps.

    TensorRT calls it from C++, where no exception may pass: an error ends the samples, and
    ``raise_error`` raises it afterwards. Close it, or use it as a context manager.
    """

    def __init__(self, samples: Iterable[Tensors], cache: Path | None) -> None:
        self._samples = iter(samples)
        self._first: Tensors | None = next(self._samples, None)
        self._cache = cache
        self._stack = ExitStack()
        self._stream: Stream | None = None
        self._buffers: dict[str, tuple[PinnedArray, DeviceBuffer]] = {}
        self._error: PlacerError | None = None

    def __enter__(self) -> Feed:
        """Return the feed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Free the memory on the GPU."""
        self._stack.close()

    @property
    def batch_size(self) -> int:
        """The leading dimension of the first input that has one."""
        arrays = [array for array in (self._first or {}).values() if array.ndim]
        return int(arrays[0].shape[0]) if arrays else 1

    def addresses(self, names: Sequence[str]) -> list[int] | None:
        """Device addresses of the next sample's inputs ``names``; None after the last one."""
        try:
            sample = self._next()
            return None if sample is None else [self._copied(name, sample) for name in names]
        except PlacerError as error:
            self._error = error
            return None

    def read(self) -> bytes | None:
        """What an earlier calibration of the same model and samples wrote, None if none did."""
        if self._cache is None or not self._cache.is_file():
            return None
        return self._cache.read_bytes()

    def write(self, data: bytes) -> None:
        """Keep ``data``, renamed into place when it is complete."""
        if self._cache is None:
            return
        try:
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(self._cache, data)
        except PlacerError as error:
            self._error = error
        except OSError as error:
            self._error = InputError(
                f"cannot make the folder of the calibration cache, {self._cache.parent}: "
                f"{error.strerror}; choose another engine option timing-cache"
            )

    def raise_error(self) -> None:
        """Raise what went wrong while TensorRT asked."""
        if self._error is not None:
            raise self._error

    def _next(self) -> Tensors | None:
        sample, self._first = self._first, None
        return sample if sample is not None else next(self._samples, None)

    def _copied(self, name: str, sample: Tensors) -> int:
        if name not in sample:
            raise RunError(f"the calibration data has no input '{name}'")
        if self._stream is None:
            self._stream = self._stack.enter_context(Stream())
        if name not in self._buffers:
            array = sample[name]
            host = self._stack.enter_context(PinnedArray(array.shape, array.dtype))
            device = self._stack.enter_context(DeviceBuffer(host.values.nbytes))
            self._buffers[name] = (host, device)
        host, device = self._buffers[name]
        np.copyto(host.values, sample[name])
        self._stream.copy(device.address, host.values.ctypes.data, host.values.nbytes)
        self._stream.synchronize()
        return device.address


def make_calibrator(module: Any, feed: Feed) -> Any:
    """An ``IInt8EntropyCalibrator2`` of TensorRT's ``module`` that takes what ``feed`` gives."""

    class Calibrator(module.IInt8EntropyCalibrator2):  # type: ignore[misc]
        def __init__(self) -> None:
            module.IInt8EntropyCalibrator2.__init__(self)

        def get_batch_size(self) -> int:
            return feed.batch_size

        def get_batch(self, names: Sequence[str]) -> list[int] | None:
            return feed.addresses(names)

        def read_calibration_cache(self) -> bytes | None:
            return feed.read()

        def write_calibration_cache(self, cache: Any) -> None:
            feed.write(bytes(cache))

    return Calibrator()
