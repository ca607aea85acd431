"""Metrics below the final table: of an output of many parts the worst part alone."""

import io

from rich.console import Console

from placer.cli.console import _print_metrics


def told(parts: int) -> list[str]:
    metrics = {"sqnr y": 30.0, "cosine y": 1.0}
    for part in range(parts):
        metrics |= {f"sqnr y[{part}]": 40.0 - part, f"cosine y[{part}]": 0.5}
    console = Console(width=80, file=io.StringIO())
    _print_metrics(console, {}, metrics)
    return console.file.getvalue().splitlines()


def test_a_few_parts_are_listed():
    assert told(2) == [
        "sqnr y: 30",
        "cosine y: 1",
        "sqnr y[0]: 40",
        "cosine y[0]: 0.5",
        "sqnr y[1]: 39",
        "cosine y[1]: 0.5",
    ]


def test_of_many_the_worst_is():
    assert told(12) == [
        "sqnr y: 30",
        "cosine y: 1",
        "sqnr y[11]: 29",
        "23 more, of parts of outputs, in the report",
    ]
