"""Damaged inputs end in one sentence, and what a success wrote is what was asked for.

A few cases of each kind here; thousands with ``benchmarks/robustness/fuzz.py``.
"""

import itertools
import tempfile
from pathlib import Path

import pytest

from tests.fuzz.cases import KINDS, case
from tests.fuzz.oracle import verdict
from tests.fuzz.outcome import FAULTS, run_case

# Whole runs take longer: those are among the many.
QUICK = {"models": 12, "graphs": 4, "packs": 4, "placements": 3, "data": 4, "documents": 4}
MANY = 60


def check(kind: str, seed: int, number: int) -> None:
    one = case(kind, seed, number)
    with tempfile.TemporaryDirectory() as folder:
        outcome = verdict(one, run_case(one, Path(folder)), Path(folder))
    assert outcome.kind not in FAULTS, f"{outcome.kind}: {one.command}\n{outcome.text}"


@pytest.mark.parametrize("kind", QUICK)
def test_damaged_inputs_end_in_one_sentence(kind: str):
    numbers = (n for n in itertools.count() if case(kind, 1, n).command[0] != "optimize")
    for number in itertools.islice(numbers, QUICK[kind]):
        check(kind, 1, number)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_inputs_end_in_one_sentence(kind: str):
    for number in range(MANY):
        check(kind, 2, number)
