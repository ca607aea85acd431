"""Several files that belong together, written as one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from placer.common.files import (
    cannot_write,
    check_replaceable,
    make_folder,
    remove_if_empty,
)
from placer.common.folder_lock import locked
from placer.errors import InputError, PlacerError


@contextmanager
def written_together(target: Path) -> Iterator[Path]:
    """A path with the name of ``target`` in a new folder, whose files in the end go beside it.

    None of them does if the block raises, and ``target`` comes last. Another process that writes
    ``target`` meanwhile is refused. Raises InputError if that is so, if ``target`` is a device or
    the folder cannot be written, RunError if the disk is full.
    """
    check_replaceable(target)
    folder = target.parent
    is_new = not folder.exists()
    make_folder(folder)
    try:
        with locked(target), draft_folder(target) as draft:
            yield draft / target.name
            _move(draft, target)
    except BaseException:
        if is_new:
            remove_if_empty(folder)
        raise


@contextmanager
def draft_folder(target: Path) -> Iterator[Path]:
    """A new folder beside ``target`` to write it in, which is removed in the end.

    Its name follows from that of ``target``, so what a process left there that was killed meanwhile
    is removed, too. The caller holds the lock of ``target`` or of its folder. Raises InputError if
    the folder cannot be made, RunError if the disk is full.
    """
    draft = target.with_name(f".{target.name}.draft")
    beside = "" if target.parent == Path() else f"{target.parent}{os.sep}"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir()
    except OSError as error:
        raise cannot_write(target, error) from error
    try:
        yield draft
    except PlacerError as error:  # The user knows nothing of the draft.
        error.args = tuple(str(text).replace(f"{draft}{os.sep}", beside) for text in error.args)
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


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
