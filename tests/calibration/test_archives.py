"""Data files that claim or unpack to more than they should."""

import io
import os
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from placer.calibration.archives import read_arrays
from placer.common.run_limits import headroom
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


PIECE = 64 << 20
PIECE_CRC = zlib.crc32(bytes(PIECE))
LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"


def zeros(path: Path, members: int, pieces: int, crc: int = 0) -> Path:
    """An archive of ``members`` files of ``pieces`` times 64 MiB of zeros each.

    A piece is packed once: packed data that ends at a full flush may be repeated (RFC 1951). The
    layout of the archive is that of PKWARE's APPNOTE.TXT, 4.3.
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(bytes(PIECE)) + packer.flush(zlib.Z_FULL_FLUSH)
    data = packed * pieces + packer.flush()
    central = b""
    with path.open("wb") as file:
        for index in range(members):
            name = f"{index}.bin".encode()
            sizes = struct.pack("<IIIHH", crc, len(data), pieces * PIECE, len(name), 0)
            common = struct.pack("<HHHHH", 20, 0, zipfile.ZIP_DEFLATED, 0, 33) + sizes
            place = struct.pack("<HHHII", 0, 0, 0, 0, file.tell())
            central += CENTRAL + struct.pack("<H", 20) + common + place + name
            file.write(LOCAL + common + name + data)
        at = file.tell()
        file.write(central + END)
        file.write(struct.pack("<HHHHIIH", 0, 0, members, members, len(central), at, 0))
    return path


def test_a_bomb_of_6_gb(tmp_path: Path):
    """With the limit that users have, and without unpacking it."""
    small = zeros(tmp_path / "small.zip", 2, 1, PIECE_CRC)
    with zipfile.ZipFile(small) as archive:
        assert archive.testzip() is None
    path = zeros(tmp_path / "bomb.npz", 6, 16)
    assert path.stat().st_size < 8 << 20
    with headroom(64 << 20):
        assert "unpacks to 6 GiB, more than 1 GiB; set PLACER_MAX_DATA_BYTES=" in refusal(path)


def test_a_member_that_says_it_is_small(tmp_path: Path):
    """It is read no further than that."""
    path = member(tmp_path / "a.npz", header((4,)) + bytes(64 << 20))
    data = path.read_bytes()
    size = struct.pack("<Q", len(header((4,))) + (64 << 20))
    path.write_bytes(data.replace(size, struct.pack("<Q", len(header((4,))) + 16)))
    small = struct.pack("<I", len(header((4,))) + (64 << 20))
    path.write_bytes(path.read_bytes().replace(small, struct.pack("<I", len(header((4,))) + 16)))
    with headroom(32 << 20):
        assert "is damaged" in refusal(path)


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
