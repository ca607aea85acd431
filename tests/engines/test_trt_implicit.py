"""Implicit INT8 engines, as far as they can be tested without TensorRT 10: all but the build."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from placer.engines.cuda import api
from placer.engines.cuda.memory import PinnedArray, Stream
from placer.engines.tensorrt.build import BuildSettings, build
from placer.engines.tensorrt.implicit import (
    Feed,
    build_implicit,
    calibration_file,
    implicit_settings,
    refuse_without_implicit,
)
from placer.engines.tensorrt.library import Library
from placer.errors import InputError, RunError

RELU = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[2,8] x) => (float[2,8] y) { y = Relu(x) }
"""
SAMPLES = [{"x": np.full((2, 8), value, np.float32)} for value in (1, 2, 3)]
SENTENCE = (
    r"^TensorRT-RTX 1\.\S+ has no implicit quantization, which TensorRT deprecated in 10\.1 and "
    "which no longer exists in 11; use `beats` float$"
)


def test_tensorrt_rtx_refuses_in_one_sentence(library: Library, save: Callable[..., Path]):
    path = save(RELU)
    with pytest.raises(InputError, match=SENTENCE):
        refuse_without_implicit(library)
    with pytest.raises(InputError, match=SENTENCE):
        build_implicit(library, path, BuildSettings(gpu="sm89"), SAMPLES)
    with pytest.raises(InputError, match=SENTENCE):
        build(library, path, BuildSettings(gpu="sm89", calibrator=object()))


def test_the_engine_is_weakly_typed_and_otherwise_as_all_others():
    settings = BuildSettings(workspace_bytes=1 << 30, optimization_level=2)
    calibrator = object()
    found = implicit_settings(settings, calibrator)
    assert found == replace(settings, typing="weak", calibrator=calibrator)


def test_a_calibration_is_of_one_model_and_one_set_of_samples(
    library: Library, save: Callable[..., Path], tmp_path: Path
):
    path = save(RELU)

    def name(source: Path = path, samples: list[dict[str, np.ndarray]] = SAMPLES) -> str:
        return calibration_file(tmp_path, library, source, samples).name

    assert name() == name()
    assert name().startswith(f"tensorrt-rtx-{library.version}-")
    others = {
        name(samples=SAMPLES[:2]),
        name(samples=SAMPLES[::-1]),
        name(samples=[{"z": sample["x"]} for sample in SAMPLES]),
        name(samples=[{"x": sample["x"].reshape(4, 4)} for sample in SAMPLES]),
        name(source=save(RELU.replace("Relu", "Abs"), "other.onnx")),
    }
    assert len(others | {name()}) == 6
    path.with_name(f"{path.name}.data").write_bytes(b"external weights")
    assert name() not in others


def test_what_was_calibrated_is_kept(tmp_path: Path):
    path = tmp_path / "cache" / "a.calibration"
    with Feed(SAMPLES, path) as feed:
        assert feed.read() is None
        feed.write(b"TRT-101300-EntropyCalibration2\nx: 3c010a14\n")
        feed.raise_error()
    with Feed(SAMPLES, path) as feed:
        assert feed.read() == b"TRT-101300-EntropyCalibration2\nx: 3c010a14\n"
    assert [file.name for file in path.parent.iterdir()] == ["a.calibration"]


def test_a_file_that_cannot_be_written_is_told_after_the_build(tmp_path: Path):
    occupied = tmp_path / "file"
    occupied.write_text("")
    with Feed(SAMPLES, occupied / "a.calibration") as feed:
        feed.write(b"calibration")  # In a callback from C++ it must not raise.
        with pytest.raises(InputError, match="cannot make the folder of the calibration cache"):
            feed.raise_error()


def test_without_a_file_nothing_is_kept():
    with Feed(SAMPLES, None) as feed:
        feed.write(b"calibration")
        assert feed.read() is None


@pytest.mark.parametrize(
    ("samples", "expected"),
    [(SAMPLES, 2), ([{"s": np.float32(1)}], 1), ([], 1)],
)
def test_the_batch_size_is_that_of_the_first_sample(
    samples: list[dict[str, np.ndarray]], expected: int
):
    with Feed(samples, None) as feed:
        assert feed.batch_size == expected


def test_data_that_lacks_an_input_is_told_after_the_build():
    with Feed(SAMPLES, None) as feed:
        assert feed.addresses(["z"]) is None
        with pytest.raises(RunError, match="the calibration data has no input 'z'"):
            feed.raise_error()


@pytest.mark.skipif(api.device_count() > 0, reason="for machines without a GPU")
def test_an_error_of_cuda_is_told_after_the_build():
    with Feed(SAMPLES, None) as feed:
        assert feed.addresses(["x"]) is None
        with pytest.raises(RunError, match="cuda"):
            feed.raise_error()


@pytest.mark.usefixtures("gpu")
def test_samples_reach_the_gpu_one_after_the_other():
    api.set_device(0)
    with Feed(SAMPLES, None) as feed, Stream() as stream:
        seen = []
        while (addresses := feed.addresses(["x"])) is not None:
            back = PinnedArray((2, 8), np.dtype(np.float32))
            stream.copy(back.values.ctypes.data, addresses[0], back.values.nbytes)
            stream.synchronize()
            seen.append(back.values.copy())
            back.close()
        feed.raise_error()
    assert np.array_equal(seen, [sample["x"] for sample in SAMPLES])
