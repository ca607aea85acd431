"""Kill ``placer optimize`` at random moments, resume it each time, and look for what was lost.

    python -m benchmarks.robustness.kill_resume [--engine onnxruntime] [--kills 50] [--work kills]

The engine is ``fusion-model``, whose estimates are the same in every run, or ``onnxruntime``, of
which kinds and placements of trials are compared, by random sampling, not what it measured. A run
is started and gets SIGKILL after a random time, which is drawn from the time that an uninterrupted
run takes, by the latest that ended by itself; the same command is then started again. When a run
ends by itself, its study and its outputs are compared with those of the uninterrupted run, and the
kills go on with a new study.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import onnx

from benchmarks.command_line import parser_of, write_json
from placer.results.result import Result

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
COMMAND = (
    sys.executable,
    "-c",
    "from placer.cli.app import main; main()",
    "optimize",
    str(DIGITS / "digits.onnx"),
    *("--preset", "quick", "--quiet", "--no-cache"),
    *("--data", str(DIGITS / "calibration.npz"), "--eval-data", str(DIGITS / "evaluation.npz")),
)
ENGINES = {
    "fusion-model": ("--engine", "fusion-model", "--gpu", "a100", "--gate", "sqnr>=42"),
    "onnxruntime": ("--engine", "onnxruntime", "--sampler", "random", "--gate", "sqnr>=5"),
}
COMPARED = {
    "fusion-model": {
        *("kind", "placement", "state", "latency_ms", "ratio_to_float", "gates", "error"),
    },
    "onnxruntime": {"kind", "placement"},
}
TABLES = "SELECT count(*) FROM trials WHERE state IN ('COMPLETE', 'PRUNED')"


@dataclass
class Figures:
    """What the kills did; a difference is a study or an output that is not as it should be."""

    kills: int = 0
    studies: int = 0
    uninterrupted_s: float = 0.0
    trials: int = 0
    trials_at_kills: list[int] = field(default_factory=list)
    interrupted_trials: int = 0
    differences: list[str] = field(default_factory=list)


def main() -> None:
    """Run, print a summary and write the figures."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", choices=sorted(ENGINES), default="fusion-model")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--budget", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", type=Path, help="folder for the studies, which stay there")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    if arguments.work is None:
        with tempfile.TemporaryDirectory(prefix="placer-kills-") as folder:
            figures = run(Path(folder), arguments, rng)
    else:
        arguments.work.mkdir(parents=True)  # Studies of an earlier run would go on.
        figures = run(arguments.work, arguments, rng)
    moments = Counter(
        "before the first trial" if not n else "later" for n in figures.trials_at_kills
    )
    print(f"{figures.kills} kills in {figures.studies} studies of {figures.trials} trials")
    print(f"killed {dict(moments)}; {figures.interrupted_trials} trials were cut and made again")
    print(f"differences from the uninterrupted run: {figures.differences or 'none'}")
    if arguments.json:
        write_json(arguments.json, asdict(figures))
    if figures.differences:
        raise SystemExit(1)


def run(folder: Path, arguments: argparse.Namespace, rng: random.Random) -> Figures:
    """Kill so many times and compare every study that was finished, the last one included."""
    figures, kills, keys = Figures(), arguments.kills, COMPARED[arguments.engine]
    command = (*COMMAND, *ENGINES[arguments.engine], "--budget", str(arguments.budget))
    start = time.monotonic()
    if code := subprocess.run([*command, "-o", str(folder / "whole")], check=False).returncode:
        raise SystemExit(f"the uninterrupted run ended with exit code {code}; raise --budget")
    figures.uninterrupted_s = whole_s = time.monotonic() - start
    expected = study_of(folder / "whole", keys)
    figures.trials = len(expected)
    output = folder / "study0"
    while True:
        is_whole, start = not output.exists(), time.monotonic()
        process = subprocess.Popen([*command, "-o", str(output)])
        limit = rng.uniform(0.0, whole_s) if figures.kills < kills else None
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            figures.kills += 1
            figures.trials_at_kills.append(finished_trials(output))
            figures.differences += [f"after a kill: {p}" for p in broken_files(output)]
            continue
        # The machine may be busier by now, or less busy; a resumed run is a part of a whole one.
        took = time.monotonic() - start
        whole_s = took if is_whole else max(whole_s, took)
        if code != 0:
            figures.differences.append(f"{output.name} ended with exit code {code}")
        figures.differences += differences(expected, output, keys)
        figures.interrupted_trials += interrupted_trials(output)
        figures.studies += 1
        if arguments.json:  # What was found so far stays if time runs out.
            write_json(arguments.json, asdict(figures))
        if figures.kills >= kills:
            figures.differences += orphans()
            return figures
        output = folder / f"study{figures.studies}"


def orphans() -> list[str]:
    """Processes of engines whose run was killed; they go within a second."""
    time.sleep(3)
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_text().split("\0")
            if "placer.engines.isolation.server" in words and not Path("/proc", words[-3]).exists():
                found.append(f"process {path.parent.name} outlived the run that it worked for")
    return found


def study_of(output: Path, keys: set[str]) -> list[dict[str, Any]]:
    """``keys`` of each trial, in order."""
    result = Result.model_validate_json((output / "result.json").read_text())
    return [trial.model_dump(include=keys) for trial in result.trials]


def differences(expected: list[dict[str, Any]], output: Path, keys: set[str]) -> list[str]:
    """How a finished run's study differs, and which of its files are missing or damaged."""
    found = broken_files(output)
    files = ("result.json", "optimized.onnx", "placement.yaml", "study.db")
    found += [f"{name} is missing" for name in files if not (output / name).exists()]
    found += [f"{p.name} was left" for p in output.iterdir() if p.suffix == ".tmp"]
    if not found:
        got = study_of(output, keys)
        pairs = enumerate(zip(expected, got, strict=False))
        found += [f"trial {i}: {own}, not {other}" for i, (other, own) in pairs if own != other]
        if len(got) != len(expected):
            found.append(f"{len(got)} trials instead of {len(expected)}")
    return [f"{output.name}: {text}" for text in found]


def broken_files(output: Path) -> list[str]:
    """Outputs that exist and cannot be read: a kill must leave whole files or none."""
    found = []
    result, model = output / "result.json", output / "optimized.onnx"
    if result.exists():
        try:
            Result.model_validate_json(result.read_text())
        except ValueError as error:
            found.append(f"result.json: {error}")
    if model.exists():
        try:
            onnx.checker.check_model(onnx.load(model))
        except (onnx.checker.ValidationError, ValueError, OSError) as error:
            found.append(f"optimized.onnx: {error}")
    return found


def finished_trials(output: Path) -> int:
    """Trials with a result in the study's database."""
    return count(output, TABLES)


def interrupted_trials(output: Path) -> int:
    """Trials that a kill cut off."""
    return count(
        output,
        "SELECT count(*) FROM trials WHERE state = 'FAIL' AND NOT EXISTS (SELECT 1 FROM "
        "trial_user_attributes a WHERE a.trial_id = trials.trial_id AND a.key = 'outcome')",
    )


def count(output: Path, query: str) -> int:
    """The one number that ``query`` gives; 0 before the database has tables."""
    path = output / "study.db"
    if not path.exists():
        return 0
    connection = sqlite3.connect(os.fspath(path), timeout=60)
    try:
        return int(connection.execute(query).fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()


if __name__ == "__main__":
    main()
