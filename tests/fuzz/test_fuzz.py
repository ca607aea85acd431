"""Damaged inputs end in one sentence: a few of each kind here, thousands in benchmarks/fuzz.py."""

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.cases import KINDS, Case
from tests.fuzz.oracle import verdict
from tests.fuzz.outcome import FAULTS, run_case

# Cases per kind: together some 20 s on two cores.
QUICK = {"models": 30, "packs": 15, "placements": 10, "data": 10, "documents": 10}


def check(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outcome = verdict(case, run_case(case, Path(folder)), Path(folder))
    assert outcome.kind not in FAULTS, f"{outcome.kind}: {case.command}\n{outcome.text}"


def ways(cases: int) -> settings:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=cases,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=slow,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_inputs_end_in_one_sentence(kind: str):
    @ways(QUICK[kind])
    @given(st.integers(0, 2**32 - 1))
    def run(seed: int) -> None:
        check(KINDS[kind](Random(seed)))

    run()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_inputs_end_in_one_sentence(kind: str):
    for seed in range(10 * QUICK[kind]):
        check(KINDS[kind](Random(f"slow/{seed}")))
