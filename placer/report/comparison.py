"""Several runs on one page: their results side by side, their fronts, what each quantized."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import plotly.graph_objects as go

from placer.common.files import check_writable, paths_of, write_text
from placer.errors import InputError
from placer.report import summary
from placer.report.page import figure_data, render
from placer.report.run_folder import Run, load_run
from placer.report.style import INK, PALETTE, base_layout, milliseconds, number, per_second
from placer.results.folder import OnboardingFolder, OutputFolder
from placer.results.parts import BaselinePart, BestPart
from placer.results.result import Result
from placer.results.verdict import Verdict

MOST = len(PALETTE)
_ALL_RULES = 1000
_VERDICTS = {
    Verdict.FASTER: "faster",
    Verdict.CANNOT_TELL: "cannot tell",
    Verdict.INCONCLUSIVE: "inconclusive",
}


@dataclass(frozen=True)
class Column:
    """A run: its name, unique on the page, and where its own report is, from the page."""

    name: str
    link: str | None
    run: Run

    @property
    def result(self) -> Result:
        """What the run found."""
        return self.run.result

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if self.result.best is None:
            return "gate not met"
        return _VERDICTS.get(self.result.verdict, "float model kept")

    @property
    def speedup(self) -> str:
        """With its interval; empty where nothing meets the gates."""
        best = self.result.best
        if best is None:
            return ""
        low, high = best.speedup_interval
        return f"{best.speedup:.2f} ({low:.2f} to {high:.2f})"

    @property
    def before(self) -> str:
        """Latency or inferences per second of the float model."""
        return _measured(self.result.baseline)

    @property
    def after(self) -> str:
        """The same of the result."""
        return _measured(self.result.best)

    @property
    def size(self) -> str:
        """Of the result's model; empty where there is none."""
        return dict(summary.files(self.run)).get("optimized.onnx", "")


@dataclass(frozen=True)
class RuleRow:
    """A rule and, for each run, what was done at its sites and their times."""

    rule: str
    cells: tuple[str, ...]


def write_comparison(
    folders: Sequence[str | PathLike[str]], output: str | PathLike[str], *, replace: bool = False
) -> Path:
    """Write one page about the runs in ``folders``; returns where it is.

    ``replace``: whether a file that no run of placer wrote may be written over.
    Raises InputError for fewer than two or more than eight, for one given twice and for one that is
    no run's output folder, or if ``output`` is one of their files.
    """
    folders, output = paths_of(folders), Path(output)
    check_writable(output, replace=replace)  # Else that is noticed when all is read.
    if not 2 <= len(folders) <= MOST:
        raise InputError(f"{len(folders)} runs cannot be compared on a page; give 2 to {MOST}")
    for index, folder in enumerate(folders):
        if folder.resolve() in [other.resolve() for other in folders[:index]]:
            raise InputError(f"{folder} is given twice; give each run once")
        if OnboardingFolder(folder).summary.is_file():
            raise InputError(f"{folder} is an onboarding; give output folders of placer optimize")
        OutputFolder(folder).check_is_no_part(output)
    names = _names(folders)
    columns = [
        Column(name, _link(folder, output), load_run(folder))
        for name, folder in zip(names, folders, strict=True)
    ]
    write_text(output, comparison_page(columns))
    return output


def comparison_page(columns: Sequence[Column]) -> str:
    """The page as HTML."""
    figures = {"speedups": speedup_figure(columns), "fronts": front_figure(columns)}
    return render(
        "comparison.html.j2",
        title=f"{len(columns)} runs compared",
        columns=columns,
        differences=list(_differences([column.result for column in columns])),
        rules=_rules(columns),
        figures={n: figure_data(figure) for n, figure in figures.items() if figure is not None},
        number=number,
    )


def _names(folders: Sequence[Path]) -> list[str]:
    """The last part of each path, or as many as tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    depth = 1
    while len({part[-depth:] for part in parts}) < len(parts):
        depth += 1
    return ["/".join(part[-depth:]) for part in parts]


def _link(folder: Path, output: Path) -> str | None:
    page = OutputFolder(folder).report
    if not page.is_file():
        return None
    return quote(Path(os.path.relpath(page.resolve(), output.resolve().parent)).as_posix())


def _measured(part: BaselinePart | BestPart | None) -> str:
    if part is None:
        return ""
    if part.latency is None:
        return per_second(part.throughput.batches_per_s)
    return milliseconds(part.latency.median_ms)


def _differences(results: Sequence[Result]) -> Iterator[str]:
    """What the runs do not share, so that their numbers do not compare like with like."""
    aspects: dict[str, set[object]] = {
        "float models": {result.model.fingerprint for result in results},
        "engines": {(r.engine.name, r.engine.version) for r in results},
        "devices": {result.engine.device for result in results},
        "clocks": {result.engine.clock for result in results},
        "input shapes": {str(sorted(r.model.input_shapes.items())) for r in results},
        "evaluation data": {(r.evaluation.data, r.evaluation.samples) for r in results},
        "gates": {tuple(result.gates) for result in results},
    }
    for name, values in aspects.items():
        if len(values) > 1:
            yield f"{len(values)} different {name}"


def _rules(columns: Sequence[Column]) -> list[RuleRow]:
    cells: dict[str, dict[str, str]] = {}
    for column in columns:
        for line in summary.what_changed(column.run, limit=_ALL_RULES):
            done = f"{line.quantized} of {line.sites} sites" if line.sites else ""
            times = ""
            if line.before_us is not None and line.after_us is not None:
                times = f"{line.before_us:.1f} → {line.after_us:.1f} µs"
            text = ", ".join(part for part in (done, times) if part)
            cells.setdefault(line.name, {})[column.name] = text
    # Rules in the order of the runs, then what is beside them.
    beside = {name: place for place, name in enumerate(summary.BESIDE_RULES, 1)}
    names = sorted(cells, key=lambda name: beside.get(name, 0))
    return [
        RuleRow(name, tuple(cells[name].get(column.name, "") for column in columns))
        for name in names
    ]


def speedup_figure(columns: Sequence[Column]) -> go.Figure | None:
    """A bar for each run that has a result, with its interval."""
    figure = go.Figure()
    for index, column in enumerate(columns):
        best = column.result.best
        if best is None:
            continue
        low, high = best.speedup_interval
        figure.add_bar(
            x=[best.speedup],
            y=[index],
            orientation="h",
            marker={"color": PALETTE[index]},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [high - best.speedup],
                "arrayminus": [best.speedup - low],
                "color": INK,
            },
            customdata=[escape(column.name)],
            hovertemplate="%{customdata}: %{x:.3f}<extra></extra>",
            showlegend=False,
        )
    if not figure.data:
        return None
    figure.add_vline(x=1, line={"color": INK, "dash": "dash", "width": 1})
    ticks = {
        "tickmode": "array",
        "tickvals": list(range(len(columns))),
        "ticktext": [escape(column.name[-40:]) for column in columns],
        "range": [len(columns) - 0.4, -0.6],
        "ticks": "",
    }
    speedups = {"title": {"text": "times as fast as the run's float model"}, "rangemode": "tozero"}
    figure.update_layout(base_layout(100 + 34 * len(columns), xaxis=speedups, yaxis=ticks))
    return figure


def front_figure(columns: Sequence[Column]) -> go.Figure | None:
    """SQNR and share of float's time of the trials that meet the gates, with each run's front."""
    figure = go.Figure()
    for index, column in enumerate(columns):
        points = list(_points(column.result))
        if not points:
            continue
        for part, mode, shown in ((_front(points), "lines", False), (points, "markers", True)):
            figure.add_scatter(
                x=[point.sqnr_db for point in part],
                y=[point.ratio for point in part],
                mode=mode,
                line={"color": PALETTE[index], "width": 1.5, "dash": "dot"},
                marker={"color": PALETTE[index], "size": 9},
                name=escape(column.name),
                legendgroup=column.name,
                showlegend=shown,
                customdata=[f"{escape(column.name)}, trial {point.trial}" for point in part],
                hovertemplate="%{customdata}<br>%{x:.1f} dB, %{y:.1%} of float<extra></extra>",
            )
    if not figure.data:
        return None
    y = {"title": {"text": "time, of the run's float model"}, "tickformat": ".0%"}
    figure.layout = base_layout(440, xaxis={"title": {"text": "SQNR, dB"}}, yaxis=y)
    return figure


class _Point(NamedTuple):
    """A trial that meets the gates. ``ratio``: of its time to the float model's."""

    trial: int
    sqnr_db: float
    ratio: float


def _points(result: Result) -> Iterator[_Point]:
    """The trials that a figure of noise and time can show."""
    for trial in result.trials:
        # Without noise an SQNR is infinite.
        if trial.state == "complete" and trial.noise and trial.ratio_to_float is not None:
            yield _Point(trial.number, -10 * math.log10(trial.noise), trial.ratio_to_float)


def _front(points: Sequence[_Point]) -> list[_Point]:
    """The points that no other one beats in time and accuracy, the fastest first."""
    front: list[_Point] = []
    for point in sorted(points, key=lambda point: (point.ratio, -point.sqnr_db)):
        if not front or point.sqnr_db > front[-1].sqnr_db:
            front.append(point)
    return front
