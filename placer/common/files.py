"""Writing files so that a killed run never leaves half of one."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import platform
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from placer.common.limits import Limits, how_to_lift, in_bytes
from placer.common.own_files import is_own
from placer.errors import InputError, PlacerError, RunError

# A path has one slash where the URL that it was made of has two.
_GIT_LFS = b"version https://git-lfs.github.com/spec/"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_CHUNK = 1 << 20
# Reasons that lie in the disk, not in the path.
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def data_file(model: Path) -> Path:
    """The file beside ``model`` in which ``placer.model.save_model`` keeps large initializers."""
    return model.with_name(f"{model.name}.data")


def paths_of(given: str | PathLike[str] | Iterable[str | PathLike[str]]) -> tuple[Path, ...]:
    """Paths, of which one may be given by itself."""
    return tuple(map(Path, [given] if isinstance(given, str | PathLike) else given))


def text_of_source(data: str | PathLike[str], keyword: str = "data") -> str:
    """Where data is, a path or ``module:function``, as text.

    Raises InputError for anything else, such as arrays, which ``placer.optimize`` alone takes.
    """
    if not isinstance(data, str | PathLike):
        raise InputError(
            f"`{keyword}` is of type {type(data).__name__}, which only placer.optimize takes; give "
            "the path of a file, as numpy.savez writes it, or module:function"
        )
    return str(data)


def read_bytes(path: Path, what: str, field: str) -> bytes:
    """Content of the regular file ``path``, which is no larger than ``field`` of ``Limits`` says.

    ``what``: what to give instead, for messages. Raises InputError for what is no regular file
    (a pipe or a device would be waited for, or never end), is larger or cannot be read.
    """
    limit: int = getattr(Limits.from_environment(), field)
    with _readable(path, what):
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{path} is a folder; give {what}")
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path} is not a regular file; give {what}")
        if status.st_size > limit:
            raise InputError(
                f"{path} holds {in_bytes(status.st_size)}, more than {in_bytes(limit)}; "
                f"{how_to_lift(field, status.st_size)}"
            )
        refuse_pointer(path)
        with path.open("rb") as file:
            return file.read(limit + 1)


def check_utf8(path: Path) -> None:
    """Raise InputError unless the path is UTF-8, as results and NVIDIA's parsers need it."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"a file's or folder's name is not UTF-8: {path}; rename it") from error


def check_there(path: Path, what: str) -> None:
    """Raise InputError, as ``read_bytes`` does, if there is nothing at ``path``."""
    with _readable(path, what):
        path.stat()


@contextmanager
def _readable(path: Path, what: str) -> Iterator[None]:
    """Raise InputError for what the file system refuses."""
    try:
        yield
    except FileNotFoundError as error:
        if _URL.match(str(path)):
            raise InputError(f"{path} is a URL; download it and give {what}") from error
        if path.is_symlink():
            raise InputError(
                f"{path} is a link to {path.readlink()}, which does not exist; give {what}"
            ) from error
        raise InputError(f"{path} does not exist; give {what}") from error
    except (OSError, ValueError) as error:  # A NUL in the path is a ValueError.
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {path}: {reason}; give {what}") from error


def refuse_pointer(path: Path) -> None:
    """Raise InputError if the file is what Git LFS leaves in the place of one not yet fetched."""
    with path.open("rb") as file:
        if file.read(len(_GIT_LFS)) == _GIT_LFS:
            raise InputError(
                f"{path} is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"
            )


def sha256_of(path: Path) -> str:
    """SHA-256 of the file ``path`` in hexadecimal digits, as ``sha256sum`` prints it."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def read_text(path: Path, what: str, field: str) -> str:
    """Text of a UTF-8 file; InputError for other bytes and as ``read_bytes`` raises it."""
    try:
        return read_bytes(path, what, field).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error.reason}); give {what}") from error


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as ``write_bytes`` writes bytes."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` under a temporary name beside ``path`` and rename it.

    Makes the folder if there is none. Raises InputError if it cannot be made or written, RunError
    if the disk is full.
    """
    temporary = temporary_beside(path)
    if not path.parent.is_dir():
        make_folder(path.parent)
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def check_writable(*paths: Path | None, replace: bool = False) -> None:
    """Raise what writing ``paths`` later would, in folders that may be made then; makes nothing.

    None is an output that nobody asks for. Raises InputError for what cannot be written, is a
    folder or, without ``replace``, is a file that no run of placer wrote; RunError if the disk is
    full.
    """
    for path in paths:
        if path is not None:
            _check_writable(path)
            if not replace:
                _check_is_own(path)


def _check_writable(path: Path) -> None:
    if path == Path():
        raise InputError("the path of an output is empty, or '.'; give the file to write")
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the file to write")
    _check_folder(path.parent)
    if not path.parent.is_dir():
        return
    temporary = temporary_beside(path)
    try:
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise cannot_write(path, error) from error


def _check_is_own(path: Path) -> None:
    """Raise InputError for a file that no run of placer wrote."""
    if path.exists() and not is_own(path):
        raise InputError(
            f"{path} is there and no run of placer wrote it; give `replace` to write over it, or "
            "choose another output"
        )


def cannot_write(path: Path, error: OSError) -> PlacerError:
    """What to raise where ``path`` was not written: RunError if the disk is full or failed."""
    if error.errno in _DISK_ERRORS:
        return RunError(
            f"cannot write {path}: {error.strerror}; free some space and run the command again"
        )
    return InputError(f"cannot write {path}: {error.strerror}; choose another output")


def real_path(path: Path) -> Path:
    """``path`` without links. Unlike ``Path.resolve`` it takes links in a circle, as they are."""
    return Path(os.path.realpath(path))


def temporary_beside(path: Path) -> Path:
    """The name under which this process writes ``path`` before it is renamed.

    Removes what processes of this machine left there that were killed while they wrote ``path``.
    Raises InputError for what is not to be replaced (``check_replaceable``).
    """
    check_replaceable(path)
    prefix = f".{path.name}.{_machine()}"
    for left in path.parent.glob(f"{glob.escape(prefix)}.*.tmp"):
        process = left.name.split(".")[-2]
        if process.isdecimal() and not _is_alive(int(process)):
            with suppress(OSError):
                left.unlink()
    return path.with_name(f"{prefix}.{os.getpid()}.tmp")


def check_replaceable(path: Path) -> None:
    """Raise InputError for a device, a pipe, or a link to what a process has open.

    Files are written elsewhere and renamed, and root may give a new file the name of /dev/null.
    """
    with suppress(OSError, ValueError):  # There is none, or it cannot be looked at.
        is_open = path.is_symlink() and path.readlink().is_relative_to("/proc")  # As /dev/stdout.
        mode = path.stat().st_mode
        if is_open or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise InputError(f"{path} is not a regular file; choose another output")


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for temporary files, which is removed when it is closed or forgotten.

    Removes those of this machine's processes that were killed, whose number is in the name. Raises
    RunError where none can be made.
    """
    try:
        return _temporary_folder()
    except OSError as error:
        raise _no_temporary(error) from error


@contextmanager
def writing_temporary_files() -> Iterator[None]:
    """Raise RunError, which says what to do, where the disk is full or fails."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_ERRORS:
            raise _no_temporary(error) from error
        raise


def _no_temporary(error: OSError) -> RunError:
    where = f" {error.filename}" if error.filename else ""
    return RunError(
        f"cannot write temporary files{where}: {error.strerror}; free some space there, or set "
        "TMPDIR to a folder that has some and can be written"
    )


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    prefix = f"placer-{_machine()}."
    for left in Path(tempfile.gettempdir()).glob(f"{glob.escape(prefix)}*-*"):
        process = left.name.removeprefix(prefix).partition("-")[0]
        if process.isdecimal() and not _is_alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)  # Another user's stays.
    # An engine may still have a file open, which some systems then do not remove.
    return tempfile.TemporaryDirectory(prefix=f"{prefix}{os.getpid()}-", ignore_cleanup_errors=True)


def _machine() -> str:
    """A name, without dots, for all processes whose numbers mean the same.

    Containers that share a folder do not see each other's processes, and may be called the same;
    Linux numbers their namespaces (pid_namespaces(7)).
    """
    name = platform.node().replace(".", "-")
    with suppress(OSError):
        namespace = Path("/proc/self/ns/pid").stat()
        return f"{name}-{namespace.st_ino}"
    return name


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # Elsewhere asking for a process may end it.
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # It is another user's.
        pass
    return True


def remove_if_empty(path: Path) -> None:
    """Remove the folder ``path`` unless it holds something."""
    with suppress(OSError):
        path.rmdir()


def check_output_folder(path: Path) -> None:
    """Raise InputError if ``path`` cannot be made a folder of results; makes nothing.

    That is so if it has the name of a model, is no folder, or cannot be made or written.
    """
    if path.suffix.lower() == ".onnx" and not path.is_dir():
        raise InputError(
            f"output {path} is a folder, for optimized.onnx and what belongs to it; give a name "
            "without .onnx"
        )
    _check_folder(path)


def _check_folder(path: Path) -> None:
    """Raise InputError if ``path`` is no folder, or cannot be made or written."""
    there = next(one for one in (path, *path.absolute().parents) if os.path.lexists(one))
    if not there.is_dir():
        raise InputError(f"output {path}: {there} is not a folder; choose another")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"output {path}: {there} is not writable; choose another")


def make_output_folder(path: Path) -> None:
    """Create ``path``, a folder of results; raises as ``check_output_folder``."""
    check_output_folder(path)
    make_folder(path)


def make_folder(path: Path) -> None:
    """Create ``path`` and its parents; raises InputError if it cannot be written."""
    _check_folder(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot create {path}: {error.strerror}; choose another output"
        ) from error
