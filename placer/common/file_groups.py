"""Several files that belong together, written as one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from placer.common.files import cannot_write, make_output_folder, remove_if_empty
from placer.common.folder_lock import locked
from placer.errors import InputError


@contextmanager
def written_together(target: Path) -> Iterator[Path]:
    """A path with the name of ``target`` in a new folder, whose files in the end go beside it.

    None of them does if the block raises, and ``target`` comes last. Another process that writes
    ``target`` meanwhile is refused. Raises InputError if that is so or the folder cannot be
    written, RunError if the disk is full.
    """
    folder = target.parent
    is_new = not folder.exists()
    make_output_folder(folder)
    try:
        with locked(target), TemporaryDirectory(prefix=".placer-", dir=folder) as draft:
            yield Path(draft) / target.name
            _move(Path(draft), target)
    except BaseException:
        if is_new:
            remove_if_empty(folder)
        raise


def _move(draft: Path, target: Path) -> None:
    files = sorted(draft.iterdir(), key=lambda file: file.name == target.name)
    for file in files:
        if (target.parent / file.name).is_dir():
            raise InputError(f"{target.parent / file.name} is a folder; choose another output")
    for file in files:
        try:
            file.replace(target.parent / file.name)
        except OSError as error:
            raise cannot_write(target.parent / file.name, error) from error
