"""What was written is compared with its source, on data of the oracle's own or held out.

The models are hostile: they are run in a process with limits of its own. What cannot be compared,
for the source does not run, is told as well, so that nobody takes it for checked.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from tests.fuzz.judges import Unjudged, applied, imported, optimized, region
from tests.fuzz.outcome import Case, Outcome
from tests.fuzz.processes import in_child

_SECONDS = 20.0
_JUDGES: Mapping[str, Callable[[Case, Path], str]] = {
    "optimize": optimized,
    "apply": applied,
    "extract": region,
    "import": imported,
}


def verdict(case: Case, outcome: Outcome, folder: Path) -> Outcome:
    """``outcome`` and whether it could be judged; a false success with the reason."""
    judge = _JUDGES.get(case.command[0])
    if outcome.kind != "success" or judge is None:
        return outcome
    with tempfile.TemporaryDirectory() as aside:
        told, printed = Path(aside) / "told.json", Path(aside) / "printed.txt"
        printed.touch()  # The process may end before it writes anything.
        ended = in_child(lambda: _judge(judge, case, folder, told, printed), _SECONDS)
        if ended.code:  # A fault of the oracle's own: nobody shall take this for checked.
            text = f"the oracle failed: {printed.read_text(errors='replace')[-1500:]}"
            return replace(outcome, kind="false success", text=f"{outcome.text}\n{text}")
        if not told.is_file():
            died = "took too long" if ended.status is None else "died"
            return replace(outcome, judged=f"the oracle {died}")
        problem, unjudged = json.loads(told.read_text())
    if problem:
        return replace(outcome, kind="false success", text=f"{outcome.text}\n{problem}")
    return replace(outcome, judged=unjudged or "yes")


def _judge(
    judge: Callable[[Case, Path], str], case: Case, folder: Path, told: Path, printed: Path
) -> int:
    """Write what is wrong and why it could not be judged to ``told``, all else to ``printed``."""
    sink = os.open(printed, os.O_WRONLY | os.O_CREAT)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    # Tracebacks too, which pytest's own sys.stderr would keep from there.
    sys.stderr = os.fdopen(2, "w", closefd=False)
    os.chdir(folder)
    try:
        answer = (judge(case, folder), "")
    except Unjudged as reason:
        answer = ("", str(reason))
    except MemoryError:
        answer = ("", "the oracle has too little memory")
    told.write_text(json.dumps(answer))
    return 0
