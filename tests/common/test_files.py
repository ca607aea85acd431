"""Files are written under a temporary name; what a killed process left of one is removed."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from placer.common.files import (
    cannot_write,
    check_writable,
    read_text,
    temporary_beside,
    temporary_folder,
    write_text,
)
from placer.errors import InputError, PlacerError, RunError


def killed_process() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


def temporary(path: Path, process: int) -> Path:
    """Where another process of this machine writes ``path``."""
    own = temporary_beside(path)
    return own.with_name(own.name.replace(f".{os.getpid()}.", f".{process}."))


def test_what_a_killed_process_left_is_removed_with_the_next_write(tmp_path: Path):
    report = tmp_path / "report.html"
    temporary(report, killed_process()).write_text("half")
    write_text(report, "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


KILLED = """
import os, signal, sys
from pathlib import Path
from placer.common.files import write_text
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_text(Path(sys.argv[1]), "new")
"""


def test_a_write_that_is_killed_leaves_the_file_as_it_was(tmp_path: Path):
    report = tmp_path / "report.html"
    report.write_text("old")
    killed = subprocess.run([sys.executable, "-c", KILLED, report], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert report.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    write_text(report, "newer")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_what_a_living_process_writes_and_other_files_are_left(tmp_path: Path):
    report, process = tmp_path / "report.html", killed_process()
    others = {
        temporary(report, os.getppid()),
        temporary(tmp_path / "result.json", process),
        tmp_path / f".report.html.another-machine.{process}.tmp",
        tmp_path / ".report.html.draft.tmp",
    }
    for path in others:
        path.write_text("")
    write_text(report, "whole")
    assert set(tmp_path.iterdir()) == {report, *others}


@pytest.mark.parametrize(
    ("number", "error", "advice"),
    [
        (errno.ENOSPC, RunError, "free some space and run the command again"),
        (errno.EIO, RunError, "free some space and run the command again"),
        (errno.EACCES, InputError, "choose another output"),
    ],
)
def test_a_full_disk_is_no_wrong_input(number: int, error: type[PlacerError], advice: str):
    told = cannot_write(Path("out/y"), OSError(number, os.strerror(number)))
    assert type(told) is error
    assert str(told) == f"cannot write out/y: {os.strerror(number)}; {advice}"


@pytest.mark.parametrize("folder", ["new/folder", "of/model.onnx"])
def test_a_file_is_written_into_a_new_folder(tmp_path: Path, folder: str):
    path = tmp_path / folder / "file.txt"
    check_writable(path)  # As commands do before they take long.
    write_text(path, "text")
    assert path.read_text() == "text"
    with pytest.raises(InputError, match=r"file\.txt is not a folder; choose another"):
        write_text(path / "below.txt", "text")


def test_what_is_no_text_is_told_with_what_to_give(tmp_path: Path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\xff")
    with pytest.raises(InputError, match=r"is not UTF-8 text \(invalid start byte\); give a place"):
        read_text(path, "a placement.yaml", "yaml_bytes")


def test_without_a_temporary_folder_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch):
    def refuse() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    with pytest.raises(RunError, match=r"files: No usable .* in \['/tmp'\]; free .* set TMPDIR to"):
        temporary_folder()


def test_temporary_folders_of_killed_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_folder() as folder:
        # What a killed process leaves differs from ours in the number of the process alone.
        left = folder.replace(f".{os.getpid()}-", f".{killed_process()}-")
        (Path(left) / "tmp").mkdir(parents=True)
        elsewhere = tmp_path / f"placer-elsewhere.{killed_process()}-x"
        elsewhere.mkdir()
        with temporary_folder():
            assert {path.name for path in tmp_path.iterdir()} > {Path(folder).name, elsewhere.name}
            assert not Path(left).exists()
    assert list(tmp_path.iterdir()) == [elsewhere]
