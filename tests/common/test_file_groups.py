"""Several files written as one: all of them or none, by one process at a time."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from placer.common.file_groups import written_together
from placer.common.files import cannot_write, check_writable, write_text
from placer.common.folder_lock import locked
from placer.errors import InputError, RunError
from tests.conftest import DIGITS, Finished

Placer = Callable[..., Finished]
QUANTIZED = Path(__file__).parents[1] / "artefacts" / "torch_fx.onnx"
EXTRACT = ("extract", DIGITS / "digits.onnx", "--outputs", "logits", "--data")
COMMANDS = {"import": ("import", QUANTIZED), "extract": (*EXTRACT, DIGITS / "calibration.npz")}


def written(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_all_files_go_beside_the_target_at_the_end(tmp_path: Path):
    target = tmp_path / "new" / "model"
    with written_together(target) as draft:
        draft.write_text("model")
        draft.with_suffix(".data").write_text("data")
        assert not target.exists()
    assert written(target.parent) == {"model": "model", "model.data": "data"}


def test_nothing_is_written_if_anything_goes_wrong(tmp_path: Path):
    (tmp_path / "old").mkdir()
    for name in ("old", "new"):
        with pytest.raises(ZeroDivisionError), written_together(tmp_path / name / "model") as draft:
            draft.write_text(str(1 // 0))
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert not list((tmp_path / "old").iterdir())


def test_a_pipe_is_not_replaced(tmp_path: Path):
    """Nor a device: root may rename a file to /dev/null."""
    pipe, opened = tmp_path / "pipe", tmp_path / "opened"
    os.mkfifo(pipe)
    opened.symlink_to("/proc/self/fd/1")  # As /dev/stdout.
    for path in (pipe, opened):
        for write in (lambda p: write_text(p, "x"), check_writable, write_with_others):
            with pytest.raises(InputError, match="is not a regular file; choose another output"):
                write(path)
    assert (pipe.is_fifo(), opened.is_symlink()) == (True, True)


def write_with_others(path: Path) -> None:
    with written_together(path) as draft:
        draft.write_text("x")


def test_errors_name_what_was_asked_for(tmp_path: Path):
    target = tmp_path / "model"
    with pytest.raises(RunError) as caught, written_together(target) as draft:
        raise cannot_write(draft, OSError(errno.ENOSPC, "No space left on device"))
    assert str(caught.value).startswith(f"cannot write {target}: No space left on device;")


def test_what_a_killed_process_left_is_removed(tmp_path: Path):
    """It writes in a folder whose name follows from the target's."""
    with written_together(tmp_path / "model") as draft:
        left = draft.parent
    left.mkdir()
    (left / "model.data").write_text("half")
    with written_together(tmp_path / "model") as draft:
        draft.write_text("model")
    assert written(tmp_path) == {"model": "model"}


def test_a_folder_in_the_way_is_named_before_anything_is_moved(tmp_path: Path):
    (tmp_path / "model").mkdir()
    with (
        pytest.raises(InputError, match="model is a folder"),
        written_together(tmp_path / "model") as draft,
    ):
        draft.write_text("model")
        draft.with_suffix(".data").write_text("data")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_process_that_writes_the_same_output_is_refused(placer: Placer, command: str):
    """It may write another one into the same folder."""
    output = Path("part.onnx")
    with locked(output):
        before = list(Path().iterdir())
        refused = placer(*COMMANDS[command], "-o", output)
        assert refused.code == 2
        assert "part.onnx is in use by process" in refused.err
        assert refused.err.count("\n") == 1
        assert list(Path().iterdir()) == before
        assert placer(*COMMANDS[command], "-o", "other.onnx").code == 0
    assert placer(*COMMANDS[command], "-o", output).code == 0
    assert not list(Path().glob(".*"))


@pytest.mark.parametrize(("data", "output"), [("part.npz", "part.onnx"), ("data.npz", "part.npz")])
def test_extract_overwrites_neither_its_data_nor_its_model(placer: Placer, data: str, output: str):
    with np.load(DIGITS / "calibration.npz") as file:
        np.savez(data, **file)
    before = Path(data).read_bytes()
    refused = placer(*EXTRACT, data, "-o", output)
    assert refused.code == 2
    assert "choose another output" in refused.err
    assert Path(data).read_bytes() == before
    assert [path.name for path in Path().iterdir()] == [data]
