"""Files are written under a temporary name; what a killed process left of one is removed."""

import os
import subprocess
import sys
from pathlib import Path

from placer.files import write_text


def killed_process() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


def test_what_a_killed_process_left_is_removed_with_the_next_write(tmp_path: Path):
    (tmp_path / f".report.html.{killed_process()}.tmp").write_text("half")
    write_text(tmp_path / "report.html", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_what_a_living_process_writes_and_other_files_are_left(tmp_path: Path):
    others = {
        f".report.html.{os.getppid()}.tmp",
        f".result.json.{killed_process()}.tmp",
        ".report.html.draft.tmp",
    }
    for name in others:
        (tmp_path / name).write_text("")
    write_text(tmp_path / "report.html", "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", *others}
