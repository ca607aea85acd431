"""One command on one folder of inputs, in a process of its own, and what came of it."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
import placer.cli.report
import placer.cli.rules
import placer.cli.worker
import placer.engines.estimated.fusion_model
import placer.engines.onnxruntime
import placer.optimizer.run  # noqa: F401
from placer.cli.app import main
from tests.fuzz.processes import Ended, in_child

_ENDS = {0: "success", 1: "failed run", 2: "refused", 3: "gate not met", 130: "interrupted"}
# Classes that must be empty.
FAULTS = (
    "false success", "traceback", "crash", "files on refusal", "over limits", "bad sentence",
    "odd exit code",
)  # fmt: skip
OUTCOMES = (*_ENDS.values(), *FAULTS)
MOST_CHARACTERS = 600
_ERROR = "placer: error: "
_DIRECTIONS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# What ONNX Runtime says of memory that a process may not have.
_NO_MEMORY = ("memory is exhausted", "more memory than there is", "Failed to allocate", "bad_alloc")
CACHE = "cache"


@dataclass(frozen=True)
class Case:
    """Files by name, and the command that is run in their folder.

    ``classes``: what was done to the inputs. Files in ``cache`` are those of the user's cache.
    """

    name: str
    files: Mapping[str, bytes]
    command: Sequence[str]
    classes: Sequence[str] = ()


@dataclass(frozen=True)
class Outcome:
    """Class of how a case ended, its last lines, how long it took and how much memory.

    ``judged``: whether the oracle could compare what was written, and if not why; empty where
    nothing was written.
    """

    kind: str
    text: str
    seconds: float
    peak_bytes: int
    judged: str = field(default="")


def run_case(case: Case, folder: Path) -> Outcome:
    """Write the case's files into the empty ``folder`` and run its command there."""
    for name, data in case.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    before = _digests(folder)
    with tempfile.TemporaryDirectory() as aside:
        printed = Path(aside) / "printed"
        ended = in_child(lambda: _command(case.command, folder, printed, aside))
        text = printed.read_text(encoding="utf-8", errors="surrogateescape")
        left = next(Path(aside).glob("placer-error-*"), None)
        if left is not None:
            text += left.read_text(encoding="utf-8", errors="replace")[-1500:]
    kind = _kind(ended, text, left is not None)
    if kind == "refused":
        changed = {name for name, _ in _digests(folder) ^ before}
        if changed:
            kind, text = "files on refusal", f"{text}\nchanged: {', '.join(sorted(changed))}"
    return Outcome(kind, text[-2500:], ended.seconds, ended.peak_bytes)


def _digests(folder: Path) -> set[tuple[str, bytes]]:
    return {
        (str(path.relative_to(folder)), _digest(path))
        for path in folder.rglob("*")
        if path.relative_to(folder).parts[0] != CACHE
    }


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b""


def _command(command: Sequence[str], folder: Path, printed: Path, aside: str) -> int:
    os.chdir(folder)
    # ONNX Runtime and ONNX write to the descriptors themselves.
    target = os.open(printed, os.O_WRONLY | os.O_CREAT)
    os.dup2(target, 1)
    os.dup2(target, 2)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="surrogateescape")
    os.environ.update(XDG_CACHE_HOME=str(folder / CACHE), TMPDIR=aside, COLUMNS="200")
    tempfile.tempdir = aside
    return run_command(command)


def run_command(command: Sequence[str]) -> int:
    """Run the command line in this process; its exit code."""
    sys.argv = ["placer", *command]
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 98
    return 97


def _kind(ended: Ended, text: str, has_report: bool) -> str:
    if ended.is_over_limits or any(words in text for words in _NO_MEMORY):
        return "over limits"
    if ended.code is None:
        return "crash"
    if has_report or "Traceback (most recent call last)" in text or ended.code in (97, 98, 99):
        return "traceback"
    if ended.code not in _ENDS:
        return "odd exit code"
    return _ENDS[ended.code] if _is_well_said(text, ended.code) else "bad sentence"


def _is_well_said(text: str, code: int) -> bool:
    """Whether bad input ends in one short sentence, and nothing hidden reaches the terminal."""
    if any((unicodedata.category(c) == "Cc" and c not in "\n\t") or c in _DIRECTIONS for c in text):
        return False
    lines = text.split("\n")
    errors = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    if any(len(error) > MOST_CHARACTERS for error in errors):
        return False
    return code != 2 or "Usage: " in text or len(errors) == 1
