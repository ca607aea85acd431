"""Data files that claim or unpack to more than they should."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from placer.calibration.archives import read_arrays
from placer.errors import InputError


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_arrays(path)
    return str(caught.value)


def member(path: Path, data: bytes, repeat: int = 1) -> Path:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as file,
    ):
        for _ in range(repeat):
            file.write(data)
    return path


def header(shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f4", "fortran_order": False, "shape": shape}
    )
    return stream.getvalue()


def test_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLACER_MAX_DATA_BYTES", str(2**20))
    path = member(tmp_path / "bomb.npz", bytes(2**20), repeat=16)
    assert "unpacks to 16 MiB, more than 1 MiB; set PLACER_MAX_DATA_BYTES=" in refusal(path)


def test_a_header_that_promises_more_than_there_is(tmp_path: Path):
    assert "cut short" in refusal(member(tmp_path / "a.npz", header((2**40,)) + b"1234"))
    (tmp_path / "a.npy").write_bytes(header((2**40,)) + b"1234")
    assert "is damaged" in refusal(tmp_path / "a.npy")


def test_what_is_no_regular_file(tmp_path: Path):
    os.mkfifo(tmp_path / "data.npz")
    assert "not a regular file" in refusal(tmp_path / "data.npz")


def test_arrays_come_by_name(tmp_path: Path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), y=np.float32(2))
    arrays = read_arrays(tmp_path / "a.npz")
    assert isinstance(arrays, dict)
    assert {name: array.shape for name, array in arrays.items()} == {"x": (3,), "y": ()}
