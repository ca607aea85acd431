"""Run commands on thousands of damaged inputs and count how they end.

Each case runs in a forked process with 20 s of time and 4 GiB of address space. It must end as
success, refused (exit code 2, nothing written), failed run (1) or gate (3), in one sentence of at
most 300 characters. Exit code 1 if a case ended in any other way; these are printed.

    python benchmarks/fuzz.py --cases 1000 --seed 1
    python benchmarks/fuzz.py --kind models --cases 1 --seed 1 --only 17 --keep /tmp/case
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fuzz.cases import KINDS, cases
from tests.fuzz.oracle import verdict
from tests.fuzz.outcome import FAULTS, Outcome, run_case


def main() -> None:
    """Run the cases and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=200, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=sorted(KINDS), action="append")
    parser.add_argument("--only", type=int, help="run this number alone")
    parser.add_argument("--keep", type=Path, help="write the files of faulty cases here")
    parser.add_argument("--show", type=int, default=20, help="how many faults to print")
    options = parser.parse_args()
    faults = 0
    for kind in options.kind or KINDS:
        faults += run_kind(kind, options)
    raise SystemExit(1 if faults else 0)


def run_kind(kind: str, options: argparse.Namespace) -> int:
    """Run the cases of one kind; return how many faults there were."""
    counts: Counter[str] = Counter()
    shown, start, slowest = 0, time.monotonic(), 0.0
    for number, case in enumerate(cases(kind, options.cases, options.seed)):
        if options.only not in (None, number):
            continue
        with tempfile.TemporaryDirectory() as folder:
            outcome = verdict(case, run_case(case, Path(folder)), Path(folder))
        counts[outcome.kind] += 1
        slowest = max(slowest, outcome.seconds)
        if outcome.kind in FAULTS or options.only is not None:
            if shown < options.show:
                report(kind, number, case.name, case.command, outcome)
            if options.keep is not None:
                target = options.keep / f"{kind}-{options.seed}-{number}"
                for name, data in case.files.items():
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    (target / name).write_bytes(data)
            shown += 1
    total = sum(counts.values())
    print(f"{kind}: {total} cases in {time.monotonic() - start:.0f} s, slowest {slowest:.1f} s")
    for name, count in sorted(counts.items()):
        print(f"  {name}: {count}")
    return sum(counts[name] for name in FAULTS)


def report(kind: str, number: int, name: str, command: object, outcome: Outcome) -> None:
    """Print one case."""
    tail = "\n    ".join(outcome.text.strip().splitlines()[-24:])
    print(f"{kind} {number} ({name}) {command}: {outcome.kind}\n    {tail}", flush=True)


if __name__ == "__main__":
    main()
