"""What a Python program gives in memory, kept in the output folder for the next call."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from onnx import ModelProto

from placer.common.file_groups import written_together
from placer.common.files import make_output_folder, remove_if_empty, write_bytes
from placer.common.folder_lock import locked
from placer.errors import InputError
from placer.model import save_model
from placer.results.folder import OutputFolder


@contextmanager
def kept_inputs(
    folder: OutputFolder, model: ModelProto | None, arrays: Mapping[Path, bytes], *, shared: bool
) -> Iterator[None]:
    """Keep ``model`` and ``arrays``, by where they go, in ``folder`` for the run in the block.

    If it fails before its study begins, they are removed, so that the next call may give others.
    ``shared``: the study is not in the folder. Raises InputError, before anything is written, if
    something else is there.
    """
    if model is None and not arrays:
        yield
        return
    was_begun = _is_begun(folder, shared)
    written = _written(folder, model, arrays)
    try:
        yield
    except BaseException as error:
        is_refused = was_begun and isinstance(error, InputError)
        if is_refused or not _is_begun(folder, shared):
            for path in written:
                path.unlink(missing_ok=True)
            remove_if_empty(folder.path)
        raise


def _is_begun(folder: OutputFolder, shared: bool) -> bool:
    """Whether there is a study, which others may go on with; its log is begun before."""
    begun = (folder.study, folder.result, *([folder.log] if shared else ()))
    return any(path.exists() for path in begun)


def _written(
    folder: OutputFolder, model: ModelProto | None, arrays: Mapping[Path, bytes]
) -> list[Path]:
    """The new files of ``model`` and ``arrays``, without those that are there already."""
    target = next(iter(arrays)) if model is None else folder.given_model
    is_new = not folder.path.exists()
    make_output_folder(folder.path)
    try:
        with locked(folder.path), written_together(target) as draft:
            if model is not None:
                save_model(model, folder.path, draft)
            for path, content in arrays.items():
                write_bytes(draft.with_name(path.name), content)
            new = []
            for file in sorted(draft.parent.iterdir()):
                path = folder.path / file.name
                if not path.exists():
                    new.append(path)
                elif not filecmp.cmp(file, path, shallow=False):
                    raise _other(path, folder)
        return new
    except BaseException:
        if is_new:
            remove_if_empty(folder.path)
        raise


def _other(path: Path, folder: OutputFolder) -> InputError:
    if folder.holds_records():
        return InputError(
            f"{folder.path} holds a run of another model or other data, since {path} is not what "
            "was given; choose another output"
        )
    return InputError(
        f"{path} is there and no run of placer wrote it; move the file or choose another output"
    )
