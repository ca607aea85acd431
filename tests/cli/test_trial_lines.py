"""What a search prints: a header, and each trial under the number that Optuna gives it."""

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

import placer
from placer.accuracy.gates import GateResult
from placer.common.statistics import Ratio
from placer.optimizer.options.request import Request
from placer.optimizer.setup.study_settings import dashboard_command
from placer.results.parts import LatencyPart
from placer.search.records import Judgement, Measurement, TrialRecord


def trial(number: int, kind: str, ratio: float | None = None, **more: object) -> TrialRecord:
    measurement = None
    if ratio is not None:
        latency = LatencyPart(median_ms=2 * ratio, p10_ms=ratio, p90_ms=3 * ratio, rounds=9)
        measurement = Measurement(Ratio(ratio, ratio, ratio, rounds=9), latency)
    gates = (GateResult("sqnr>=20", 31.5, "y", -1.0),)
    if kind == "everything":
        gates = (GateResult("sqnr>=20", 18.25, "y", 1.75),)
    judgement = None if "error" in more else Judgement(gates)
    return TrialRecord(
        number=number,
        kind=kind,
        choices={},
        placement_id="0" * 12,
        measurement=measurement,
        judgement=judgement,
        **more,
    )


def printed(*trials: TrialRecord, done: int = 0, **search: object) -> list[str]:
    console = Console(width=80, file=io.StringIO())
    observer = placer.ConsoleObserver(console)
    observer.search(
        **{
            "budget": 30,
            "done": done,
            "best": None,
            "estimated": False,
            "objective": "latency",
        }
        | search
    )
    for one in trials:
        observer.trial(one)
    observer.close()
    return console.file.getvalue().splitlines()


def test_trials_stand_under_a_header_by_their_numbers_in_the_study():
    told = printed(
        trial(0, "none", 1.0),
        trial(1, "default", 0.5),
        trial(2, "everything", 0.4),
        trial(4, "explore"),  # Number 3 was another worker's.
        trial(5, "explore", error="the engine refused node 'c'"),
        replace(trial(6, "near the best", 0.6), judgement=None),
        replace(trial(7, "explore", 0.7), choices={"base precision": "bfloat16"}),
    )
    assert told == [
        "· searching, 30 trials at most",
        "trial    latency, ms  speed-up      best  placement      gates",
        "    0          2.000     x1.00     x1.00  none           sqnr>=20: 31.5 ok",
        "    1          1.000     x2.00     x2.00  default        sqnr>=20: 31.5 ok",
        "    2          0.800     x2.50     x2.00  everything     sqnr>=20: 18.25 missed",
        "    4   not measured         -     x2.00  explore        sqnr>=20: 31.5 ok",
        "    5         failed         -     x2.00  explore        the engine refused node 'c'",
        "    6          1.200     x1.67     x2.00  near the best  slower than the best, not judged",
        "    7          1.400     x1.43     x2.00  explore        sqnr>=20: 31.5 ok  in bfloat16",
    ]


def test_after_a_resume_the_best_is_that_of_all_trials():
    told = printed(trial(3, "explore", 0.8), trial(4, "explore", 0.4), done=3, best=0.5)
    assert [line.split()[:4] for line in told[2:]] == [
        ["3", "1.600", "x1.25", "x2.00"],
        ["4", "0.800", "x2.50", "x2.50"],
    ]


def test_the_header_says_what_is_measured():
    assert printed(done=3, estimated=True)[:2] == [
        "· searching, 30 trials at most, resumed after 3",
        "trial  estimated, ms  speed-up      best  placement      gates",
    ]
    told = printed(trial(0, "none", 1.0), budget=None, objective="throughput")
    assert [line[:22].split() for line in told[1:]] == [
        ["trial", "inferences/s"],
        ["0", "500.0"],
    ]
    assert told[0] == "· searching"


def test_the_dashboards_command_names_the_study_and_no_password():
    request = Request(Path("models/a b.onnx"))
    assert dashboard_command(request) == "optuna-dashboard 'sqlite:///a b.placer/study.db'"
    shared = Request(Path("a.onnx"), storage="postgresql://me:secret@db/placer")
    assert dashboard_command(shared) == "optuna-dashboard 'postgresql://me:***@db/placer'"
