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
        "sqnr y: 30 dB",
        "cosine y: 1",
        "sqnr y[0]: 40 dB",
        "cosine y[0]: 0.5",
        "sqnr y[1]: 39 dB",
        "cosine y[1]: 0.5",
    ]


def test_of_many_the_worst_is():
    assert told(12) == [
        "sqnr y: 30 dB",
        "cosine y: 1",
        "sqnr y[11]: 29 dB",
        "23 more, of parts of outputs, in the report",
    ]


def test_outputs_that_are_equal_have_a_line_together_instead_of_figures():
    """As a decoder's caches that no quantized node leads to, or those of the float model."""
    after = {"sqnr y": 30.0, "max_abs y": 0.5, "top1 y": 0.9, "argmax_agreement y": 1.0}
    for output in ("k0", "v0", "k1", "v1"):
        after |= {f"sqnr {output}": None, f"cosine {output}": 1.0, f"max_abs {output}": 0.0}
    console = Console(width=80, file=io.StringIO())
    _print_metrics(console, {"top1 y": 0.95}, after)
    lines = console.file.getvalue().splitlines()
    assert lines == [
        "sqnr y: 30 dB",
        "max_abs y: 0.5",
        "top1 y: 0.95 -> 0.9",
        "argmax_agreement y: 1",
        "outputs equal to the float model's: k0, v0, k1 and 1 more",
    ]
    of_float = Console(width=80, file=io.StringIO())
    _print_metrics(of_float, {"top1 y": 0.95}, after, is_float=True)
    assert of_float.file.getvalue().splitlines() == lines[:-1]
