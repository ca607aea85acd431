"""What is said of a run in which no candidate meets the gates."""

from types import SimpleNamespace

import pytest

from placer.optimizer.outcome.missed_gates import missed_error, missed_sentence
from placer.quantization import EMPTY


@pytest.mark.parametrize(
    ("stopped", "advice"),
    [
        ("budget", "raise `budget`"),
        ("timeout", "raise `timeout`"),
        ("interrupted", "run the same command again to go on"),
        ("converged", "the search has nothing left to try"),
    ],
)
def test_where_nothing_was_measured_no_gate_is_to_blame(stopped: str, advice: str):
    task = SimpleNamespace(gate_texts=["sqnr>=15"])
    assert missed_sentence(task, [], stopped, None) == (
        f"no quantized candidate was measured, so none meets sqnr>=15; {advice}"
    )


@pytest.mark.parametrize(
    ("stopped", "code"), [("interrupted", 1), ("timeout", 1), ("budget", 3), ("converged", 3)]
)
def test_a_run_cut_short_before_it_measured_says_nothing_of_gates(stopped: str, code: int):
    task = SimpleNamespace(gate_texts=["sqnr>=15"])
    assert missed_error(task, [], stopped, None).exit_code == code


def test_a_budget_of_one_is_that_of_the_float_model():
    task, only = SimpleNamespace(gate_texts=["sqnr>=15"]), SimpleNamespace(placement_id=EMPTY.id)
    assert missed_sentence(task, [only], "budget", None) == (
        "no quantized candidate was measured, so none meets sqnr>=15; raise `budget`, of which the "
        "first trial is the float model's"
    )
