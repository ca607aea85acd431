"""Write models, with external data where they need it, by a temporary name and a rename."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto
from onnx.external_data_helper import ExternalDataInfo

from placer.common.file_groups import written_together
from placer.common.files import (
    cannot_write,
    check_writable,
    data_file,
    real_path,
    temporary_beside,
    temporary_folder,
)
from placer.common.freed_memory import give_back_freed
from placer.common.own_files import PRODUCER
from placer.errors import InputError, RunError
from placer.graph.edit import LARGE_BYTES, all_tensors, without_initializers
from placer.graph.external_data import (
    MAX_INLINE_BYTES,
    is_external,
    stream,
    tensor_bytes,
)
from placer.version import __version__

# ONNX Runtime copies what is in a message twice while it loads it; a file it maps into memory.
_MAPPED_BYTES = 1 << 26
# What metadata name the file with that a model was made of, from the model's folder on.
SOURCE_PROPERTY = "placer.source"
# The fields `graph` of ModelProto and `initializer` of GraphProto, with the wire type of messages.
_GRAPH, _INITIALIZER = b"\x3a", b"\x2a"


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
def saved_together(
    proto: ModelProto, base_dir: Path, target: Path, *, source: Path, replace: bool = False
) -> Iterator[Path]:
    """Save ``proto`` as ``target``, with what the block writes beside the path that it is given.

    The file's producer is placer then, and ``source`` what it says to be made of; ``proto`` stays
    as it is. See ``written_together``. Raises InputError, too, if another .onnx file beside
    ``target`` reads the data file that this one's would replace or, without ``replace``, if the
    model at ``target`` does not.
    """
    if _needs_data_file(proto):
        _check_data_file(target, replace=replace)
    with written_together(target) as draft:
        with _signed(proto, _from(target, source)):
            save_model(proto, base_dir, draft)
        yield draft


@contextmanager
def _signed(proto: ModelProto, source: str) -> Iterator[None]:
    """``proto`` says to be placer's, made of ``source``, as long as the block lasts.

    A copy of it would hold its weights twice.
    """
    named = {entry.key: entry.value for entry in proto.metadata_props}
    fields = ("producer_name", "producer_version")
    before = {field: getattr(proto, field) for field in fields if proto.HasField(field)}
    proto.producer_name, proto.producer_version = PRODUCER, __version__
    onnx.helper.set_model_props(proto, {**named, SOURCE_PROPERTY: source})
    try:
        yield
    finally:
        for field in fields:
            proto.ClearField(field)
        for field, value in before.items():
            setattr(proto, field, value)
        onnx.helper.set_model_props(proto, named)


def source_of(path: Path) -> Path | None:
    """The file that the model at ``path`` was made of, by ``saved_together``; None if unknown."""
    if not path.is_file():
        return None
    with suppress(OSError, DecodeError):
        properties = onnx.load(path, load_external_data=False).metadata_props
        named = (entry.value for entry in properties if entry.key == SOURCE_PROPERTY)
        return next((path.parent / name for name in named), None)
    return None


def _from(target: Path, source: Path) -> str:
    """``source`` from the folder of ``target`` on, however both were written.

    The file is then the same wherever the folders of both are.
    """
    return os.path.relpath(source.parent.resolve() / source.name, target.parent.resolve())


def _check_data_file(target: Path, *, replace: bool) -> None:
    data = data_file(target)
    if not data.is_file():
        return
    others = [path for path in target.parent.glob("*.onnx") if real_path(path) != real_path(target)]
    reader = next((path for path in sorted(others) if _reads(path, data)), None)
    if reader is not None:
        raise InputError(
            f"{target} would overwrite {data}, which {reader} reads; choose another output"
        )
    if not _reads(target, data):  # What is read goes with the model, which was checked before.
        check_writable(data, replace=replace)


def _reads(path: Path, data: Path) -> bool:
    """Whether the model at ``path`` has values in ``data``; what is no model has none."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            if text.find(os.fsencode(data.name)) < 0:  # It need not be parsed.
                return False
        tensors = all_tensors(onnx.load(path, load_external_data=False).graph)
        locations = {ExternalDataInfo(one).location for one in tensors if is_external(one)}
    except (OSError, ValueError, DecodeError):
        return False
    return any(real_path(path.parent / one) == real_path(data) for one in locations)


@contextmanager
def serialized(
    proto: ModelProto, base_dir: Path, *, mapped: bool = True
) -> Iterator[tuple[bytes, Path]]:
    """``proto`` as bytes, and the folder of its external data, which is there as long as needed.

    Of a model with many values in it, as one that was recovered from a quantized file, they are in
    a temporary folder. ``mapped`` False: only where no message holds them, which ends at 2 GiB.
    """
    inline = sum(map(tensor_bytes, _inline(proto)))
    give_back_freed(inline)  # Of a model before, so that there is room for this one.
    try:
        if inline <= (_MAPPED_BYTES if mapped else MAX_INLINE_BYTES):
            source = proto.SerializeToString()
            del proto  # Where nobody else needs it, its memory is free while the bytes are used.
            yield source, base_dir
            return
        with temporary_folder() as temporary:
            folder = Path(temporary)
            file = folder / "values"
            try:
                moved = _with_data_file(proto, base_dir, file, file.name, durable=False)
            except OSError as error:
                if inline > MAX_INLINE_BYTES:
                    raise RunError(
                        f"cannot write {file}: {error.strerror}; free some space, or name a folder "
                        "that has some in the environment variable TMPDIR"
                    ) from error
                file.unlink(missing_ok=True)
                moved, folder = proto, base_dir  # In memory, then.
            del proto
            source = moved.SerializeToString()
            del moved
            yield source, folder
    finally:
        give_back_freed(inline)


def _inline(proto: ModelProto) -> Iterator[TensorProto]:
    return (tensor for tensor in proto.graph.initializer if not is_external(tensor))


def _save(proto: ModelProto, base_dir: Path, path: Path) -> None:
    data = data_file(path)
    temporary, temporary_data = temporary_beside(path), temporary_beside(data)
    try:
        if _needs_data_file(proto):
            proto = _with_data_file(proto, base_dir, temporary_data, data.name)
        with temporary.open("wb") as out:
            write_message(proto, out)
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


def write_message(proto: ModelProto, out: BinaryIO) -> None:
    """Write ``proto``, one initializer at a time: at once it would be in memory twice more."""
    bare = without_initializers(proto, {tensor.name for tensor in proto.graph.initializer})
    graph = bare.graph.SerializeToString()
    bare.ClearField("graph")
    tensors = proto.graph.initializer
    sizes = [tensor.ByteSize() for tensor in tensors]
    headers = [_INITIALIZER + _varint(size) for size in sizes]
    out.write(bare.SerializeToString())
    out.write(_GRAPH + _varint(len(graph) + sum(sizes) + sum(map(len, headers))) + graph)
    for header, tensor in zip(headers, tensors, strict=True):
        out.write(header)
        out.write(tensor.SerializeToString())


def _varint(number: int) -> bytes:
    """``number`` in groups of 7 bits, the lowest first (protobuf.dev, "Encoding")."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*groups, number))


def _with_data_file(
    proto: ModelProto, base_dir: Path, file: Path, name: str, *, durable: bool = True
) -> ModelProto:
    """Copy ``proto``, large initializers and all external tensors streamed into ``file``."""
    large = [t for t in proto.graph.initializer if is_external(t) or _is_worth_moving(t)]
    copy = without_initializers(proto, {t.name for t in large})
    inner = [t for t in all_tensors(copy.graph) if is_external(t)]
    moved = stream([*large, *inner], base_dir, file, name, durable=durable)
    copy.graph.initializer.extend(moved[: len(large)])
    for tensor, new in zip(inner, moved[len(large) :], strict=True):
        tensor.CopyFrom(new)
    return copy


def _is_worth_moving(tensor: TensorProto) -> bool:
    return tensor_bytes(tensor) >= LARGE_BYTES and tensor.data_type != TensorProto.STRING
