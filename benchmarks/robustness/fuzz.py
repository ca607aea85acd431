"""Run commands on thousands of damaged and random inputs and count how they end.

Each case runs in a forked process with 20 s of CPU time and 2 GB of memory. It must end as success,
refused (exit code 2, nothing written), failed run (1) or gate not met (3), in one sentence of at
most 300 characters. What a success wrote is compared with its source on other data, in a process
of its own; how many could not be compared, and why, is printed too. Exit code 1 if a case ended
in any other way; these are printed.

    python -m benchmarks.robustness.fuzz --cases 1000 --seed 1
    python -m benchmarks.robustness.fuzz --kind models --cases 1 --seed 1 --only 17 --keep /tmp/case
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.command_line import parser_of
from tests.fuzz.cases import KINDS, case
from tests.fuzz.oracle import verdict
from tests.fuzz.outcome import FAULTS, OUTCOMES, Case, Outcome, run_case
from tests.fuzz.runs import finished


def main() -> None:
    """Run the cases and print the counts."""
    parser = parser_of(__doc__)
    parser.add_argument("--cases", type=int, default=200, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=sorted(KINDS), action="append")
    parser.add_argument("--only", type=int, help="run this number alone")
    parser.add_argument("--keep", type=Path, help="write the files of faulty cases here")
    parser.add_argument("--show", type=int, default=20, help="how many faults to print")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    options = parser.parse_args()
    finished("fusion-model")  # Made once, before processes are forked; imports what runs import.
    faults = 0
    for kind in options.kind or KINDS:
        faults += run_kind(kind, options)
    raise SystemExit(1 if faults else 0)


def run_kind(kind: str, options: argparse.Namespace) -> int:
    """Run the cases of one kind; return how many faults there were."""
    outcomes: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    start, slowest, largest = time.monotonic(), 0.0, 0
    for number, (one, outcome) in enumerated(kind, options):
        outcomes[outcome.kind] += 1
        classes.update(set(one.classes))
        if outcome.judged:
            judged[outcome.judged] += 1
        slowest, largest = max(slowest, outcome.seconds), max(largest, outcome.peak_bytes)
        if outcome.kind in FAULTS or options.only is not None:
            if sum(outcomes[name] for name in FAULTS) <= options.show:
                report(kind, number, one, outcome)
            if options.keep is not None:
                keep(one, options.keep / f"{kind}-{options.seed}-{number}")
    seconds = time.monotonic() - start
    print(f"{kind}, seed {options.seed}: {sum(outcomes.values())} cases in {seconds:.0f} s, "
          f"the slowest {slowest:.1f} s, the largest {largest / 2**30:.2f} GiB")  # fmt: skip
    for name in OUTCOMES:
        print(f"  {name}: {outcomes[name]}")
    print(f"  successes that were compared with their source: {judged.pop('yes', 0)}")
    for reason, count in judged.most_common():
        print(f"  not compared, {reason}: {count}")
    print(
        "  inputs: " + ", ".join(f"{name} {n}" for name, n in sorted(classes.items())), flush=True
    )
    return sum(outcomes[name] for name in FAULTS)


def enumerated(
    kind: str, options: argparse.Namespace
) -> Iterator[tuple[int, tuple[Case, Outcome]]]:
    """Every case and what came of it, by number."""
    numbers = range(options.cases) if options.only is None else [options.only]
    if options.jobs == 1:
        yield from ((number, run_one(kind, options.seed, number)) for number in numbers)
        return
    forked = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(options.jobs, mp_context=forked) as pool:
        count = len(numbers)
        found = pool.map(run_one, [kind] * count, [options.seed] * count, numbers)
        yield from zip(numbers, found, strict=True)


def run_one(kind: str, seed: int, number: int) -> tuple[Case, Outcome]:
    """Run one case in an empty folder."""
    one = case(kind, seed, number)
    with tempfile.TemporaryDirectory() as folder:
        return one, verdict(one, run_case(one, Path(folder)), Path(folder))


def report(kind: str, number: int, one: Case, outcome: Outcome) -> None:
    """Print one case."""
    tail = "\n    ".join(outcome.text.strip().splitlines()[-24:])
    print(
        f"{kind} {number} ({one.name}; {', '.join(one.classes)}) {' '.join(one.command)}: "
        f"{outcome.kind} {outcome.judged}\n    {tail}",
        flush=True,
    )


def keep(one: Case, target: Path) -> None:
    """Write the files of a case."""
    for name, data in one.files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(data)


if __name__ == "__main__":
    main()
