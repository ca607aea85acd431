"""Completion in real shells, installed as the user does it, and help at several widths."""

from __future__ import annotations

import os
import pty
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer

from placer.cli.app import app
from tests.conftest import Finished

# What a shell that waits for more input prints nothing for, in seconds.
QUIET_S, LONGEST_S = 8.0, 60.0
INTERACTIVE = {"bash": ("bash", "-i"), "zsh": ("zsh", "-i")}


@contextmanager
def terminal(shell: str, home: Path) -> Iterator[Callable[[str, str], str]]:
    """An interactive shell on a terminal of its own; types a text and reads until another comes."""
    environment = {
        **os.environ,
        "HOME": str(home),
        "ZDOTDIR": str(home),
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "TERM": "dumb",
        "PS1": "ready> ",
    }
    child, master = pty.fork()
    if child == 0:
        os.execvpe(INTERACTIVE[shell][0], INTERACTIVE[shell], environment)

    def typed(text: str, expected: str) -> str:
        os.write(master, text.encode())
        seen, end = "", time.monotonic() + LONGEST_S
        while expected not in seen and time.monotonic() < end:
            if not select.select([master], [], [], QUIET_S)[0]:
                break
            seen += os.read(master, 65536).decode(errors="replace")
        return seen

    try:
        yield typed
    finally:
        os.close(master)  # The shell is hung up on, and ends.
        os.waitpid(child, 0)


@pytest.mark.slow
@pytest.mark.parametrize("shell", INTERACTIVE)
def test_completion_is_installed_and_completes(shell: str, tmp_path: Path):
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    program = tmp_path / "bin" / "placer"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nfrom placer.cli.app import program\nprogram()\n", encoding="utf-8"
    )
    program.chmod(0o755)
    (tmp_path / ".zshrc").write_text("PS1='ready> '\n")
    (tmp_path / ".bashrc").write_text("PS1='ready> '\n")
    with terminal(shell, tmp_path) as typed:
        typed("", "ready> ")
        assert f"{shell} completion installed" in typed(
            "placer --install-completion\n", "installed"
        )
        typed("", "ready> ")
    with terminal(shell, tmp_path) as typed:
        typed("", "ready> ")
        if shell == "zsh":  # Typer's script only defines its function at the first Tab of a shell.
            typed("placer opt\t", "\a")
            assert "imize" in typed("\t", "imize")
        else:
            assert "optimize" in typed("placer opt\t", "optimize")
        assert "eval-data" in typed("--eval-d\t", "eval-data")
        assert "thorough" in typed("x.npz --preset th\t", "thorough")


@pytest.mark.parametrize(
    "width", [80, *(pytest.param(wide, marks=pytest.mark.slow) for wide in (100, 160))]
)
def test_the_help_of_every_command_fits_the_terminal(
    placer: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch, width: int
):
    monkeypatch.setenv("COLUMNS", str(width))
    for name in typer.main.get_command(app).commands:
        finished = placer(name, "--help")
        assert finished.code == 0, name
        lines = finished.out.splitlines()
        assert max(map(len, lines)) <= width, name
        assert not [line for line in lines if "…" in line], name
        assert [line for line in lines if line.lstrip("│ *").startswith("--help")], name
