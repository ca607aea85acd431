"""What was written is compared with its source, on data of the oracle's own or held out.

The models are hostile: they are run in a process with limits of its own. What cannot be compared,
for the source does not run, is told as well, so that nobody takes it for checked.
"""

from __future__ import annotations

import json
import os
import tempfile
import traceback
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
        told = Path(aside) / "told.json"
        ended = in_child(lambda: _judge(judge, case, folder, told), _SECONDS)
        if not told.is_file():
            died = "took too long" if ended.status is None else "died"
            return replace(outcome, judged=f"the oracle {died}")
        problem, unjudged = json.loads(told.read_text())
    if problem:
        return replace(outcome, kind="false success", text=f"{outcome.text}\n{problem}")
    return replace(outcome, judged=unjudged or "yes")


def _judge(judge: Callable[[Case, Path], str], case: Case, folder: Path, told: Path) -> int:
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.chdir(folder)
    try:
        answer = (judge(case, folder), "")
    except Unjudged as reason:
        answer = ("", str(reason))
    except MemoryError:
        answer = ("", "the oracle has too little memory")
    except Exception:  # Nobody shall take this for checked.
        answer = (f"the oracle failed: {traceback.format_exc()[-1500:]}", "")
    told.write_text(json.dumps(answer))
    return 0
