"""Write models, with external data where they need it, by a temporary name and a rename."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onnx import ModelProto, TensorProto

from placer.common.files import cannot_write, data_file, temporary_beside, temporary_folder
from placer.graph.edit import LARGE_BYTES, all_tensors, without_initializers
from placer.graph.external_data import (
    MAX_INLINE_BYTES,
    is_external,
    stream,
    tensor_bytes,
)


def save_model(proto: ModelProto, base_dir: Path, path: Path) -> None:
    """Write ``proto`` to ``path`` under a temporary name and rename it.

    If it refers to external data (in ``base_dir``) or is too large for one file, all large
    initializers are streamed into ``<name>.data`` beside ``path``. Raises InputError if the folder
    cannot be written, RunError if the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _save(proto, base_dir, path)
    except OSError as error:
        raise cannot_write(path, error) from error


@contextmanager
def serialized(proto: ModelProto, base_dir: Path) -> Iterator[tuple[bytes, Path]]:
    """``proto`` as bytes, and the folder of its external data, which is there as long as needed.

    No message holds 2 GiB: of a model with larger values in it, as one that was recovered from a
    quantized file, they are in a temporary folder.
    """
    if sum(map(tensor_bytes, _inline(proto))) <= MAX_INLINE_BYTES:
        source = proto.SerializeToString()
        del proto  # Where nobody else needs it, its memory is free while the bytes are used.
        yield source, base_dir
        return
    with temporary_folder() as folder:
        path = Path(folder) / "model.onnx"
        save_model(proto, base_dir, path)
        del proto
        yield path.read_bytes(), path.parent


def _inline(proto: ModelProto) -> Iterator[TensorProto]:
    return (tensor for tensor in proto.graph.initializer if not is_external(tensor))


def _save(proto: ModelProto, base_dir: Path, path: Path) -> None:
    data = data_file(path)
    temporary, temporary_data = temporary_beside(path), temporary_beside(data)
    try:
        if _needs_data_file(proto):
            proto = _with_data_file(proto, base_dir, temporary_data, data.name)
        with temporary.open("wb") as out:
            out.write(proto.SerializeToString())
            out.flush()
            os.fsync(out.fileno())
        if temporary_data.exists():
            temporary_data.replace(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
        temporary_data.unlink(missing_ok=True)


def _needs_data_file(proto: ModelProto) -> bool:
    tensors = list(all_tensors(proto.graph))
    inline = sum(tensor_bytes(t) for t in tensors if not is_external(t))
    return inline > MAX_INLINE_BYTES or any(is_external(t) for t in tensors)


def _with_data_file(proto: ModelProto, base_dir: Path, file: Path, name: str) -> ModelProto:
    """Copy ``proto``, large initializers and all external tensors streamed into ``file``."""
    large = [t for t in proto.graph.initializer if is_external(t) or _is_worth_moving(t)]
    copy = without_initializers(proto, {t.name for t in large})
    inner = [t for t in all_tensors(copy.graph) if is_external(t)]
    moved = stream([*large, *inner], base_dir, file, name)
    copy.graph.initializer.extend(moved[: len(large)])
    for tensor, new in zip(inner, moved[len(large) :], strict=True):
        tensor.CopyFrom(new)
    return copy


def _is_worth_moving(tensor: TensorProto) -> bool:
    return tensor_bytes(tensor) >= LARGE_BYTES and tensor.data_type != TensorProto.STRING
