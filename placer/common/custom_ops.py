"""Libraries of custom operators, which every ONNX Runtime session of a block of code loads.

Sessions are made in many places that share nothing but what they compute: calibration, gates, the
reference of an engine, a part of a model that is cut out. So the libraries belong to the context,
as with ``decimal.localcontext``, and not to each of their parameters. They are never taken from a
model or a study: a library runs whatever it holds.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from pathlib import Path

from placer.common.files import sha256_of
from placer.errors import InputError

# What a library exports for ONNX Runtime to call: RegisterCustomOpsLibrary in onnxruntime_c_api.h.
_ENTRY = b"RegisterCustomOps"

_LIBRARIES: ContextVar[tuple[str, ...]] = ContextVar("libraries of custom operators", default=())


@contextmanager
def custom_ops(*libraries: str | PathLike[str]) -> Iterator[None]:
    """Load the custom operators of ``libraries`` into all sessions that the block makes.

    Libraries of an enclosing block stay. Raises InputError for a file that is not there or does not
    export ONNX Runtime's entry point.
    """
    paths = [str(_checked(Path(library))) for library in libraries]
    token = _LIBRARIES.set(tuple(dict.fromkeys((*_LIBRARIES.get(), *paths))))
    try:
        yield
    finally:
        _LIBRARIES.reset(token)


def custom_op_libraries() -> tuple[str, ...]:
    """Absolute paths of the libraries."""
    return _LIBRARIES.get()


def libraries_held() -> list[str]:
    """Name and SHA-256 of each library, sorted: another content computes other outputs."""
    return sorted(f"{path.name} {sha256_of(path)}" for path in map(Path, custom_op_libraries()))


def _checked(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"the library {path} of `custom_ops` is not there; check the path")
    if not _is_library(path):
        raise InputError(
            f"{path} is not a library of ONNX Runtime's custom operators: it does not export "
            f"{_ENTRY.decode()}; give another file to `custom_ops`"
        )
    return path.absolute()


def _is_library(path: Path) -> bool:
    """Whether a file has the entry point, told without loading it, which runs its code."""
    if not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(_ENTRY + b"\0") >= 0
