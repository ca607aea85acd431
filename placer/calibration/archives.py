"""Arrays of .npz and .npy files, their sizes checked before anything is unpacked."""

from __future__ import annotations

import lzma
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from placer.common.files import refuse_pointer
from placer.common.limits import Limits, how_to_lift, in_bytes
from placer.common.shapes import Shape
from placer.errors import InputError

# Plain numbers hardly shrink below an eighth: an archive that grows more holds next to nothing.
_PLAUSIBLE_GROWTH = 8
# What reading an .npz file raises that is damaged.
DAMAGED = (
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    RuntimeError,  # Encrypted members, and ways of packing that Python cannot read.
    SyntaxError,  # A header that is no Python literal.
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


def array_shapes(path: Path) -> Shape | dict[str, Shape]:
    """The shape of an .npy file's array, or by name those of an .npz file, which is not unpacked.

    Raises InputError as ``read_arrays`` does.
    """
    if path.suffix.lower() == ".npy":
        array = read_arrays(path)
        return array.shape if isinstance(array, np.ndarray) else {}
    with _told(path), path.open("rb") as file, zipfile.ZipFile(file) as archive:
        members = [one for one in archive.infolist() if one.filename.endswith(".npy")]
        shapes = {}
        for member in members:
            with archive.open(member) as stream:
                shapes[member.filename.removesuffix(".npy")] = _checked_shape(stream, member)
        return shapes


def read_arrays(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    """The array of an .npy file, mapped into memory, or those of an .npz file by name.

    Raises InputError for a file that is damaged, holds Python objects, is no regular file or would
    unpack to more than ``Limits.data_bytes`` and eight times its own size.
    """
    with _told(path):
        if path.suffix.lower() == ".npy":
            # Mapped into memory, a large file is read piece by piece.
            return np.lib.format.open_memmap(path, mode="r")
        # Given a path, np.load would leave a damaged archive open.
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("no zip archive")
            file.seek(0)
            _check_sizes(file, path)
            with np.load(file, allow_pickle=False) as loaded:
                return {name: np.asarray(loaded[name]) for name in loaded.files}


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn what reading ``path`` raises into an InputError."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is not a regular file; give an .npz or .npy file")
    try:
        refuse_pointer(path)
        yield
    except DAMAGED as error:
        raise InputError(
            f"{path} is damaged or holds pickled Python objects ({error}); "
            "save plain numeric arrays with np.savez or np.save"
        ) from error
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}; check the file"
        ) from error


def _check_sizes(file: IO[bytes], path: Path) -> None:
    """Hold what the members say of their size against the limit, and their headers against that."""
    limit = max(Limits.from_environment().data_bytes, _PLAUSIBLE_GROWTH * path.stat().st_size)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        total = sum(member.file_size for member in members)
        if total > limit:
            raise InputError(
                f"{path} unpacks to {in_bytes(total)}, more than {in_bytes(limit)}; "
                f"{how_to_lift('data_bytes', total)}"
            )
        for member in members:
            if member.filename.endswith(".npy"):
                with archive.open(member) as stream:
                    _checked_shape(stream, member)
    file.seek(0)


def _checked_shape(stream: IO[bytes], member: zipfile.ZipInfo) -> Shape:
    """The shape that a header gives.

    Raises ValueError if it promises more than the member holds: NumPy believes it.
    """
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0
    if version != (1, 0):
        read = np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("Python objects")
    if math.prod(shape) * dtype.itemsize > member.file_size:
        raise ValueError(f"array '{member.filename}' is cut short")
    return tuple(shape)
