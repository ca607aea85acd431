"""The files of a rule pack, read from a folder or a .zip archive that nobody need trust.

A pack is flat: ``pack.yaml``, rules, Markdown and licence files side by side. Everything else in a
folder is left aside; an archive that holds anything else is refused. Sizes are counted while
reading, whatever an archive says of itself, and nothing is written to disk.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from placer.common.files import real_path
from placer.common.own_files import ARCHIVE_COMMENT
from placer.errors import InputError

MAX_ARCHIVE_BYTES = 5 * 2**20
MAX_ENTRY_BYTES = 2**20
MAX_TOTAL_BYTES = 20 * 2**20
MAX_FILES = 2000

MANIFEST = "pack.yaml"
HASH_FILE = "hash.yaml"

_CHUNK = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # The earliest that the zip format can state.
# What zipfile and zlib raise for archives that are damaged, encrypted or from a newer format.
_BROKEN_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True)
class PackFiles:
    """The files of one pack by name, and ``left_out``, names in its folder that are no part of it.

    ``source``: the folder or archive, for messages.
    """

    source: Path
    files: Mapping[str, bytes]
    left_out: tuple[str, ...] = ()

    @property
    def content_hash(self) -> str:
        """``sha256:`` and 64 hex digits over the names and bytes of all files but ``hash.yaml``."""
        digest = hashlib.sha256()
        for name, data in sorted(self.files.items()):
            if name != HASH_FILE:
                digest.update(f"{name}\0{len(data)}\0".encode())
                digest.update(data)
        return f"sha256:{digest.hexdigest()}"

    @property
    def states_hash(self) -> bool:
        """Whether there is a ``hash.yaml``."""
        return HASH_FILE in self.files

    def check_hash(self) -> None:
        """Raise InputError if ``hash.yaml`` states the hash of other files."""
        if self.states_hash and self.files[HASH_FILE] != _hash_file(self.content_hash):
            raise InputError(
                f"{self.source}: the files do not have the hash that {HASH_FILE} states; get the "
                f"pack again, or remove {HASH_FILE} if you meant to change it"
            )

    def with_hash(self) -> PackFiles:
        """The same files with a ``hash.yaml`` that fits them."""
        files = {**self.files, HASH_FILE: _hash_file(self.content_hash)}
        return PackFiles(self.source, files, self.left_out)

    def write(self, folder: Path, beside: Mapping[str, bytes] | None = None) -> None:
        """Make ``folder``, which must not be there, with all files: by one rename, whole or not.

        ``beside``: by path within the folder, files that are no part of the pack.
        Raises OSError if that fails.
        """
        temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
        try:
            for name, data in {**self.files, **(beside or {})}.items():
                path = temporary / name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(data)
            temporary.chmod(0o755)  # mkdtemp lets nobody else read it.
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def archive(self) -> bytes:
        """A .zip of the files; the same bytes for the same files on every machine.

        Files are stored, since what a compressor writes depends on its version. Raises
        InputError for an archive that is too large to be installed.
        """
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            archive.comment = ARCHIVE_COMMENT
            for name, data in sorted(self.files.items()):
                info = zipfile.ZipInfo(name, _FIRST_DATE)
                info.create_system = 3
                info.external_attr = (stat.S_IFREG | 0o644) << 16
                archive.writestr(info, data)
        written = buffer.getvalue()
        if len(written) > MAX_ARCHIVE_BYTES:
            raise InputError(f"{self.source}: {_too_large_archive()}")
        return written


def read_pack_files(path: Path) -> PackFiles:
    """Read the pack in the folder or .zip archive ``path``.

    Raises InputError for anything that a pack cannot hold and if ``hash.yaml`` does not fit.
    """
    files = _read_folder(path) if path.is_dir() else _read_archive(path)
    if MANIFEST not in files.files:
        raise InputError(f"{path / MANIFEST} does not exist; a rule pack needs it at its top level")
    files.check_hash()
    return files


class _Reader:
    """Collects the files of one pack and counts what has been read."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._files: dict[str, bytes] = {}
        self._names: dict[str, str] = {}
        self._total = 0

    @property
    def files(self) -> dict[str, bytes]:
        return self._files

    def read(self, name: str, stream: IO[bytes]) -> None:
        """Read ``stream`` in chunks and stop at the first that is one too many."""
        twin = self._names.setdefault(name.lower(), name)
        if name in self._files or twin != name:
            raise InputError(
                f"{self._source}: holds {twin} and {name}; give every file a name of its own"
            )
        if len(self._files) >= MAX_FILES:
            raise InputError(f"{self._source}: holds more than {MAX_FILES} files; split the pack")
        data = bytearray()
        while chunk := stream.read(_CHUNK):
            data += chunk
            self._total += len(chunk)
            if len(data) > MAX_ENTRY_BYTES:
                raise InputError(f"{self._source}: {name} is larger than 1 MiB; a rule is a page")
            if self._total > MAX_TOTAL_BYTES:
                raise InputError(f"{self._source}: holds more than 20 MiB; split the pack")
        self._files[name] = bytes(data)


def _read_folder(folder: Path) -> PackFiles:
    reader = _Reader(folder)
    left_out: list[str] = []
    try:
        for path in sorted(folder.iterdir()):
            if not _belongs(path.name):
                if not path.name.startswith("."):  # Nobody expects hidden files in a pack.
                    left_out.append(path.name)
                continue
            _check_regular(path, folder)
            with path.open("rb") as stream:
                reader.read(path.name, stream)
    except OSError as error:
        raise InputError(
            f"cannot read rule pack {folder}: {error}; check who may read it"
        ) from error
    return PackFiles(folder, reader.files, tuple(left_out))


def unread_rules(folder: Path) -> list[str]:
    """YAML files in ``folder`` that look like rules and are none, since packs are flat.

    Those called .yml or .YAML, and those in its folders, hidden ones and links aside.
    """
    unread: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.is_symlink():
            continue
        inside = itertools.islice(path.iterdir(), MAX_FILES) if path.is_dir() else (path,)
        unread += [
            file.relative_to(folder).as_posix()
            for file in sorted(inside)
            if file.suffix.lower() in (".yaml", ".yml")
            and not (file.parent == folder and _belongs(file.name))
        ]
    return unread


def _check_regular(path: Path, folder: Path) -> None:
    if path.is_symlink():
        inside = real_path(path).is_relative_to(real_path(folder))
        points = "is a link" if inside else "points outside its rule pack"
        raise InputError(f"{path} {points}; replace the link by a file")
    if not path.is_file():
        raise InputError(f"{path} is not a regular file; remove it from the rule pack")


def _read_archive(path: Path) -> PackFiles:
    if not path.is_file():
        raise InputError(f"{path} does not exist; give a rule pack's folder or .zip file")
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_ARCHIVE_BYTES + 1)
        if len(data) > MAX_ARCHIVE_BYTES:
            raise InputError(f"{path}: {_too_large_archive()}")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return PackFiles(path, _unpack(archive, path))
    except _BROKEN_ARCHIVE as error:
        raise InputError(
            f"{path} is not a .zip archive that can be read; get it again or make it with "
            "`placer rules pack`"
        ) from error


def _unpack(archive: zipfile.ZipFile, path: Path) -> dict[str, bytes]:
    reader = _Reader(path)
    entries = archive.infolist()
    if len(entries) > MAX_FILES:
        raise InputError(f"{path}: holds more than {MAX_FILES} files; split the pack")
    for entry in entries:
        _check_entry(entry, path)
    for entry in entries:
        with archive.open(entry) as stream:
            reader.read(entry.filename, stream)
    return reader.files


def _check_entry(entry: zipfile.ZipInfo, path: Path) -> None:
    # zipfile cuts names at a NUL and rewrites separators; the original tells what was meant.
    name = entry.orig_filename
    parts = re.split(r"[/\\]", name)
    if ".." in parts or not parts[0] or ":" in name:
        raise InputError(
            f"{path}: entry {name!r} leads out of the archive; do not trust whoever made it"
        )
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise InputError(f"{path}: entry {name!r} is a symbolic link; a pack holds files only")
    if kind not in (0, stat.S_IFREG) or not _belongs(name):
        raise InputError(
            f"{path}: entry {name!r} is not a .yaml, .md or LICENSE file at the top level; make "
            "the archive with `placer rules pack`"
        )
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(
            f"{path}: entry {name!r} is compressed in a way other than deflate; make the archive "
            "with `placer rules pack`"
        )


def _belongs(name: str) -> bool:
    is_kind = name.endswith((".yaml", ".md")) or name.startswith("LICENSE")
    return is_kind and _NAME.fullmatch(name) is not None


def _hash_file(content_hash: str) -> bytes:
    text = f"# Written by `placer rules pack`.\nhash: {content_hash}\n"
    return text.encode()


def _too_large_archive() -> str:
    return f"the archive is larger than {MAX_ARCHIVE_BYTES // 2**20} MiB; split the pack"
