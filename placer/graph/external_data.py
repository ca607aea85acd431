"""External data of ONNX models: check, read one tensor at a time, hash, stream."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
from onnx import TensorProto, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor

from placer.common.files import real_path, refuse_pointer
from placer.errors import InputError

_CHUNK = 1 << 22
_ALIGNMENT = 4096
_TYPES = frozenset(onnx.helper.get_all_tensor_dtypes())
_PACKED_BITS: dict[int, int] = {
    TensorProto.INT4: 4,
    TensorProto.UINT4: 4,
    TensorProto.FLOAT4E2M1: 4,
    TensorProto.INT2: 2,
    TensorProto.UINT2: 2,
}
_BITS = {
    dtype: _PACKED_BITS.get(dtype, 8 * onnx.helper.tensor_dtype_to_np_dtype(dtype).itemsize)
    for dtype in _TYPES
}
# A protobuf message may hold 2 GiB; leave room for the graph itself.
MAX_INLINE_BYTES = 1_800_000_000


def is_external(tensor: TensorProto) -> bool:
    """Whether the tensor's values are in another file."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def tensor_bytes(tensor: TensorProto) -> int:
    """Size of the tensor's values by its shape and type; 4-bit values lie two to a byte.

    Strings count as 8 bytes each.
    """
    return int(math.prod(tensor.dims) * _BITS[tensor.data_type] + 7) // 8


def check_tensors(tensors: Iterable[TensorProto], base_dir: Path, model: Path) -> None:
    """Raise InputError for a tensor whose values do not fill its shape or are not there.

    External files must exist, be long enough and lie inside ``base_dir``.
    """
    for tensor in tensors:
        if any(size < 0 for size in tensor.dims) or tensor.data_type not in _TYPES:
            raise InputError(
                f"{model}: tensor '{tensor.name}' has an impossible shape or type; export it again"
            )
        if is_external(tensor):
            _check_external(tensor, base_dir, model)
            continue
        if not fills_its_shape(tensor):
            raise InputError(
                f"{model}: tensor '{tensor.name}' is damaged or cut short; export it again"
            )


def fills_its_shape(tensor: TensorProto) -> bool:
    """Whether the values of a tensor that is not external are as many as its shape says."""
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data) == tensor_bytes(tensor)
    try:
        onnx.checker.check_tensor(tensor)
        numpy_helper.to_array(tensor)  # The checker accepts more values than the shape holds.
    except (onnx.checker.ValidationError, ValueError, TypeError, OverflowError):
        return False
    return True


def data_folder(tensors: Iterable[TensorProto], path: Path) -> Path:
    """The folder in which the external data of the model at ``path`` lie.

    Where the model is a link, and so are its data, to files of one folder, that is the folder, and
    ``tensors`` name these files from then on. Hugging Face's cache has models like that, and ONNX
    Runtime reads them since version 1.24.2 (its pull request 27374).
    """
    folder, real = path.parent, real_path(path).parent
    if not path.is_symlink() or real == real_path(folder):
        return folder
    entries = [
        entry
        for tensor in tensors
        if is_external(tensor)
        for entry in tensor.external_data
        if entry.key == "location" and "\0" not in entry.value
    ]
    files = [real_path(folder / entry.value) for entry in entries]
    if not entries or not all(
        ".." not in Path(entry.value).parts and file.is_relative_to(real) and file.is_file()
        for entry, file in zip(entries, files, strict=True)
    ):
        return folder
    for entry, file in zip(entries, files, strict=True):
        entry.value = str(file.relative_to(real))
    return real


def _check_external(tensor: TensorProto, base_dir: Path, model: Path) -> None:
    try:
        info = ExternalDataInfo(tensor)
    except ValueError as error:
        raise InputError(
            f"{model}: initializer '{tensor.name}' has a wrong external data entry; export it again"
        ) from error
    if not info.location or "\0" in info.location:
        raise InputError(
            f"{model}: initializer '{tensor.name}' names no external data file; export it again"
        )
    file = base_dir / info.location
    if Path(info.location).is_absolute() or not real_path(file).is_relative_to(real_path(base_dir)):
        raise InputError(
            f"{model}: initializer '{tensor.name}' points outside the model's folder "
            f"({info.location}); move its data beside the model"
        )
    if not file.is_file():
        raise InputError(
            f"{model}: external data file {info.location} of initializer '{tensor.name}' "
            "is missing; copy it beside the model"
        )
    offset = info.offset or 0
    length = tensor_bytes(tensor) if info.length is None else info.length
    if offset < 0 or length < tensor_bytes(tensor) or file.stat().st_size < offset + length:
        refuse_pointer(file)
        raise InputError(
            f"{model}: external data file {info.location} is too short for initializer "
            f"'{tensor.name}'; copy the whole file"
        )
    if length != tensor_bytes(tensor):
        raise InputError(
            f"{model}: external data of initializer '{tensor.name}' has {length} bytes, its shape "
            f"takes {tensor_bytes(tensor)}; export it again"
        )


def read_tensor(tensor: TensorProto, base_dir: Path) -> np.ndarray:
    """Return the tensor's values; reads only its own bytes of an external file.

    Raises InputError if that file does not hold them.
    """
    if is_external(tensor):
        check_tensors([tensor], base_dir, base_dir)
        copy = TensorProto()
        copy.CopyFrom(tensor)
        if all(entry.key != "length" for entry in copy.external_data):
            # As ONNX Runtime does; onnx itself would read to the end of the file.
            copy.external_data.add(key="length", value=str(tensor_bytes(tensor)))
        load_external_data_for_tensor(copy, str(base_dir))
        copy.data_location = TensorProto.DEFAULT  # onnx 1.23.0 leaves it as it was.
        tensor = copy
    return numpy_helper.to_array(tensor)


def digest(tensor: TensorProto) -> str:
    """SHA-256 of the tensor's values as stored; of external values, of where they are."""
    if is_external(tensor):
        return hashlib.sha256(tensor.SerializeToString()).hexdigest()
    values = tensor.raw_data or tensor.SerializeToString()
    return hashlib.sha256(values).hexdigest()


def fingerprint(path: Path, tensors: Iterable[TensorProto], base_dir: Path) -> str:
    """``sha256:`` and the hex digest over the model file and its external data files."""
    digest = hashlib.sha256()
    locations = {ExternalDataInfo(t).location for t in tensors if is_external(t)}
    for file in (path, *(base_dir / location for location in sorted(locations))):
        for chunk in _chunks(file, 0, file.stat().st_size):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def values_digest(tensors: Iterable[TensorProto], base_dir: Path) -> str:
    """64 hex digits that stand for the values of ``tensors``, whatever their names and order.

    Tensors are read one at a time. Raises InputError if an external file does not hold one.
    """
    found = set()
    for tensor in tensors:
        values = read_tensor(tensor, base_dir)
        head = f"{values.dtype} {values.shape} ".encode()
        found.add(hashlib.sha256(head + values.tobytes()).hexdigest())
    return hashlib.sha256("".join(sorted(found)).encode()).hexdigest()


def content_digest(proto: onnx.ModelProto, tensors: Iterable[TensorProto], base_dir: Path) -> str:
    """64 hex digits that stand for a model in memory with the values of its external data.

    Messages are hashed one by one: together they may be too large for one.
    """
    digest = hashlib.sha256()
    bare = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import)
    graph = proto.graph
    for message in (bare, *graph.input, *graph.output, *graph.node, *graph.initializer):
        digest.update(message.SerializeToString(deterministic=True))
    locations = {ExternalDataInfo(t).location for t in tensors if is_external(t)}
    for file in (base_dir / location for location in sorted(locations)):
        for chunk in _chunks(file, 0, file.stat().st_size):
            digest.update(chunk)
    return digest.hexdigest()


def header(tensor: TensorProto) -> TensorProto:
    """Name, type and shape of ``tensor`` without its values."""
    return TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)


def stream(
    tensors: Iterable[TensorProto], base_dir: Path, file: Path, name: str, *, durable: bool = True
) -> list[TensorProto]:
    """Copy the values of ``tensors`` into ``file``; return tensors that point to them there.

    Tensors that are external already are copied in chunks from ``base_dir``. ``name`` is what
    ``file`` will be called beside the model, ``durable`` whether it has to outlive a power cut.
    """
    moved = []
    with file.open("wb") as out:
        for tensor in tensors:
            out.write(b"\0" * (-out.tell() % _ALIGNMENT))
            offset = out.tell()
            if is_external(tensor):
                info = ExternalDataInfo(tensor)
                length = info.length or tensor_bytes(tensor)
                for chunk in _chunks(base_dir / info.location, info.offset or 0, length):
                    out.write(chunk)
            else:
                out.write(tensor.raw_data or read_tensor(tensor, base_dir).tobytes())
            moved.append(_pointing_to(tensor, name, offset, out.tell() - offset))
        if durable:
            out.flush()
            os.fsync(out.fileno())
    return moved


def _pointing_to(tensor: TensorProto, location: str, offset: int, length: int) -> TensorProto:
    moved = header(tensor)
    moved.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        moved.external_data.add(key=key, value=str(value))
    return moved


def _chunks(file: Path, offset: int, length: int) -> Iterator[bytes]:
    with file.open("rb") as source:
        source.seek(offset)
        while length > 0 and (chunk := source.read(min(_CHUNK, length))):
            length -= len(chunk)
            yield chunk
