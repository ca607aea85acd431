"""The front of the trials read at the result, and shares of noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from placer.report.accuracy_costs import next_decibel, source_lines
from placer.results.parts import NoiseSourcePart, RecoveryPart, TrialPart
from placer.results.result import Result


@pytest.fixture(scope="module")
def run(estimated: Path) -> Result:
    return Result.read(estimated)


def with_trials(run: Result, *points: tuple[float, float]) -> Result:
    """Trials of (ratio, noise), the first of which is the result; a float model of 1 ms."""
    trials = [
        trial(run, number, ratio, noise) for number, (ratio, noise) in enumerate(points, start=1)
    ]
    assert run.best is not None
    assert run.baseline is not None
    latency = run.baseline.latency.model_copy(update={"median_ms": 1.0})
    return run.model_copy(
        update={
            "trials": trials,
            "best": run.best.model_copy(update={"trial": 1}),
            "baseline": run.baseline.model_copy(update={"latency": latency}),
        }
    )


def trial(run: Result, number: int, ratio: float, noise: float) -> TrialPart:
    changes = {"number": number, "state": "complete", "ratio_to_float": ratio, "noise": noise}
    return run.trials[0].model_copy(update={**changes, "ratio_interval": None})


def test_the_next_decibel_is_told_both_ways(run: Result):
    # 20 dB at 0.5 ms; 30 dB at 0.52 ms is the fastest of those that hold more, 10 dB at 0.45 ms.
    found = with_trials(run, (0.5, 0.01), (0.6, 0.0001), (0.52, 0.001), (0.45, 0.1))
    more, less = next_decibel(found)
    assert more == (
        "The result's trial holds 20.0 dB at the worst output part. Trial 3 holds 30.0 dB and "
        "takes 20 µs more: 2 µs per dB (estimated)."
    )
    assert less == ("Trial 4 holds 10.0 dB and takes 50 µs less: 5 µs per dB (estimated).")


def test_trials_are_told_as_they_were_before_recovery(run: Result):
    part = RecoveryPart(samples=8, held_back=8, kept=True, reason="", steps=[])
    found = with_trials(run, (0.5, 0.01), (0.52, 0.001)).model_copy(update={"recovery": part})
    (sentence,) = next_decibel(found)
    assert "holds 20.0 dB at the worst output part, before accuracy was recovered. " in sentence


def test_that_nothing_holds_more_is_said(run: Result):
    found = with_trials(run, (0.5, 0.01), (1.2, 0.0001), (0.6, 0.009))
    (sentence,) = next_decibel(found)
    assert "No trial holds 1 dB more and is faster than the float model" in sentence


def test_differences_within_the_intervals_may_be_chance(run: Result):
    found = with_trials(run, (0.5, 0.01), (0.52, 0.001))
    wide = [t.model_copy(update={"ratio_interval": [0.4, 0.6]}) for t in found.trials]
    (sentence,) = next_decibel(found.model_copy(update={"trials": wide}))
    assert "the intervals of both trials overlap" in sentence


def test_a_result_that_is_exact_or_float_has_no_next_decibel(run: Result):
    assert next_decibel(with_trials(run, (0.5, 0.0), (0.6, 0.0))) == []
    assert next_decibel(run.model_copy(update={"best": None})) == []


def test_shares_are_of_the_part_with_most_noise(run: Result):
    sources = [
        NoiseSourcePart(name="a", rule="r", sites=2, noises={"left": 0.03, "right": 0.0}),
        NoiseSourcePart(name="b", rule="r", sites=1, noises={"left": 0.01, "right": 0.02}),
    ]
    lines = source_lines(run.model_copy(update={"noise_sources": sources}))
    assert [(line.name, line.part, round(line.share, 2)) for line in lines] == [
        ("a", "left", 0.75),
        ("b", "right", 0.25),
    ]
    assert [line.sqnr for line in lines] == ["15.2 dB", "17.0 dB"]
