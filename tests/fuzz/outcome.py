"""One command on one folder of inputs, in a forked process under limits, and what came of it."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import time
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# What commands import when they are asked for, imported once before processes are forked.
import placer.calibration.region
import placer.cli.apply
import placer.cli.check
import placer.cli.explain
import placer.cli.extract
import placer.cli.import_
import placer.cli.onboard
import placer.cli.optimize
import placer.cli.plan
import placer.cli.rules
import placer.engines.fusion_model
import placer.engines.onnxruntime
import placer.optimizer.run  # noqa: F401
from placer.cli.app import main

MEMORY_BYTES = 4 << 30  # Address space: libraries and threads' stacks take half of it.
SECONDS = 20
_ENDS = {0: "success", 1: "failed run", 2: "refused", 3: "gate", 130: "interrupted"}
# Classes that must be empty.
FAULTS = (
    "traceback", "crash", "over limits", "files on refusal", "bad sentence", "false success",
    "odd exit code",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Files by name, and the command that is run in their folder."""

    name: str
    files: Mapping[str, bytes]
    command: Sequence[str]


@dataclass(frozen=True)
class Outcome:
    """Class of how a case ended, its last lines and how long it took."""

    kind: str
    text: str
    seconds: float


def run_case(case: Case, folder: Path) -> Outcome:
    """Write the case's files into the empty ``folder`` and run its command there."""
    for name, data in case.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    before = _listing(folder)
    with tempfile.TemporaryDirectory() as aside:
        printed = Path(aside) / "printed"
        start = time.monotonic()
        status = _forked(case.command, folder, printed, aside)
        seconds = time.monotonic() - start
        text = printed.read_text(encoding="utf-8", errors="surrogateescape")
        left = next(Path(aside).glob("placer-error-*"), None)
        if left is not None:
            text += left.read_text(encoding="utf-8", errors="replace")[-1500:]
    kind = _kind(status, text, left is not None)
    if kind == "refused" and _listing(folder) != before:
        kind = "files on refusal"
    return Outcome(kind, text[-2500:], seconds)


def _listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _forked(command: Sequence[str], folder: Path, printed: Path, aside: str) -> int | None:
    """Wait status of the command; None if it took too long."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _become(command, folder, printed, aside)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _become(command: Sequence[str], folder: Path, printed: Path, aside: str) -> None:
    """Run the command in this, forked, process and end it."""
    code = 99
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(folder)
        # ONNX Runtime and ONNX write to the descriptors themselves.
        target = os.open(printed, os.O_WRONLY | os.O_CREAT)
        os.dup2(target, 1)
        os.dup2(target, 2)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape")
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="surrogateescape")
        os.environ.update(XDG_CACHE_HOME=f"{aside}/cache", TMPDIR=aside, COLUMNS="200")
        tempfile.tempdir = aside
        sys.argv = ["placer", *command]
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 98
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _kind(status: int | None, text: str, has_report: bool) -> str:
    if status is None or "memory is exhausted" in text:
        return "over limits"
    if os.WIFSIGNALED(status):
        return "crash"
    code = os.WEXITSTATUS(status)
    if has_report or "Traceback (most recent call last)" in text or code in (98, 99):
        return "traceback"
    if code not in _ENDS:
        return "odd exit code"
    said = [line for line in text.split("\n") if line.startswith("placer: ")]
    if any(len(line) > 320 for line in said) or (
        code in (2, 3) and not said and "Usage" not in text
    ):
        return "bad sentence"
    if any(
        (unicodedata.category(c) == "Cc" and c not in "\n\t\x1b\r") or c == "\u202e" for c in text
    ):
        return "bad sentence"
    return _ENDS[code]
