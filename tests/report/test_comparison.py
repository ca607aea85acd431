"""Several runs on one page."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import placer as package
from placer.errors import InputError
from placer.report.comparison import Column, front_figure
from placer.report.run_folder import load_run
from placer.report.summary import what_changed
from placer.results.result import Result
from tests.conftest import Finished
from tests.report.test_report import Text

Placer = Callable[..., Finished]


def test_runs_stand_side_by_side(estimated: Path, missed: Path, tmp_path: Path):
    page = package.write_comparison([estimated, missed], tmp_path / "compared.html")
    text = Text(page.read_text()).text
    assert text.startswith("2 runs compared - placer")
    best = Result.read(estimated).best
    low, high = best.speedup_interval
    assert f"{best.speedup:.2f} ({low:.2f} to {high:.2f})" in text
    assert "gate not met ESTIMATE" in text
    assert "The runs do not share everything: 2 different gates." in text
    # Both folders are called the same: as much of their paths as tells them apart is their name.
    for folder in (estimated, missed):
        assert f"{folder.parent.name}/{folder.name}" in text


def test_rules_are_compared_by_their_sites(estimated: Path, tmp_path: Path):
    other = Path(shutil.copytree(estimated, tmp_path / "other.placer"))
    page = package.write_comparison([estimated, other], tmp_path / "compared.html").read_text()
    assert "do not share" not in page
    rows = [line for line in page.splitlines() if line.startswith("<tr><td>")]
    lines = what_changed(load_run(estimated), limit=100)
    assert len(rows) == len(lines) > 0
    for row in rows:
        rule, first, second = (
            row.removeprefix("<tr><td>").removesuffix("</td></tr>").split("</td><td>")
        )
        assert first == second
        (line,) = [line for line in lines if line.name == rule]
        assert first.startswith(f"{line.quantized} of {line.sites} sites") == bool(line.sites)


def test_a_front_joins_the_trials_that_no_other_beats(estimated: Path):
    line, markers = front_figure([Column("estimated", None, load_run(estimated))]).data
    front, trials = (list(zip(trace.x, trace.y, strict=True)) for trace in (line, markers))
    for sqnr, ratio in trials:
        beaten = any(s >= sqnr and r <= ratio and (s, r) != (sqnr, ratio) for s, r in trials)
        assert ((sqnr, ratio) in front) == (not beaten)
    assert front == sorted(front, key=lambda point: point[1])


def test_the_command_takes_several_folders(placer: Placer, estimated: Path, missed: Path):
    finished = placer("report", estimated, missed)
    assert finished.code == 0, finished.err
    assert finished.out == "wrote comparison.html\n"


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, "1 runs cannot be compared on a page; give 2 to 8"), (2, "is given twice")],
)
def test_refusals(estimated: Path, tmp_path: Path, count: int, expected: str):
    with pytest.raises(InputError, match=expected):
        package.write_comparison([estimated] * count, tmp_path / "compared.html")
