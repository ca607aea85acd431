"""A page about what ``placer sensitivity`` found: noise of each decision, and what it saves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from placer.accuracy.metrics import decibels
from placer.common.files import write_text
from placer.report.page import figure_data, render
from placer.report.style import INTEGER, PALETTE, base_layout
from placer.results.sensitivity import Kind, Sensitivity, SubjectPart, worst

# Rows of a figure, and parts of outputs that have a colour of their own.
MOST_ROWS, MOST_PARTS = 40, len(PALETTE)
_TITLES: dict[Kind, str] = {
    "rule": "SQNR with the sites of one rule quantized",
    "group": "SQNR with one group of equal sites quantized",
    "site": "SQNR with one site quantized",
}
_LONGEST = 44


def write_sensitivity(sensitivity: Sensitivity, path: Path) -> None:
    """Write the page, one file that needs nothing else."""
    figures: dict[str, go.Figure] = {}
    shown: list[tuple[str, str]] = []
    for kind, title in _TITLES.items():
        rows = [s for s in sensitivity.subjects if s.kind == kind and s.alone]
        if rows:
            figures[kind] = _noise_figure(rows[:MOST_ROWS])
            more = f"; the worst {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else ""
            shown.append((kind, f"{title}{more}"))
    timed = _finest(sensitivity)
    if timed:
        figures["times"] = _time_figure(timed, sensitivity.estimated)
        shown.append(("times", "What accuracy buys: noise against the time that it saves"))
    noise, part = worst(sensitivity.default)
    text = render(
        "sensitivity.html.j2",
        title=f"Sensitivity of {Path(sensitivity.model).name}",
        found=sensitivity,
        default=f"{decibels(noise):.1f}",
        part=part or "none",
        shown=shown,
        figures={name: figure_data(figure) for name, figure in figures.items()},
    )
    write_text(path, text)


def _finest(sensitivity: Sensitivity) -> list[SubjectPart]:
    """The finest kind of subject whose times are known."""
    for kind in reversed(_TITLES):
        rows = [s for s in sensitivity.subjects if s.kind == kind and s.saves and s.alone]
        if rows:
            return rows
    return []


def _noise_figure(rows: Sequence[SubjectPart]) -> go.Figure:
    """A dot for each part of the outputs in the row of each subject."""
    figure = go.Figure()
    parts = list(rows[0].alone or {})
    for part, colour in zip(parts[:MOST_PARTS], PALETTE, strict=False):
        figure.add_scatter(
            x=[_db((row.alone or {}).get(part)) for row in rows],
            y=list(range(len(rows))),
            mode="markers",
            marker={"color": colour, "size": 9},
            name=part,
            text=[row.name for row in rows],
            hovertemplate="%{text}<br>%{x:.1f} dB<extra></extra>",
        )
    figure.layout = base_layout(
        120 + 22 * len(rows),
        xaxis={"title": {"text": "SQNR with all else float, dB"}},
        yaxis={
            "range": [len(rows) - 0.5, -0.5],
            "tickvals": list(range(len(rows))),
            "ticktext": [_label(row) for row in rows],
        },
    )
    return figure


def _time_figure(rows: Sequence[SubjectPart], estimated: bool) -> go.Figure:
    figure = go.Figure()
    figure.add_scatter(
        x=[row.saves.microseconds for row in rows if row.saves],
        y=[_db(row.worst_alone[0]) for row in rows],
        mode="markers",
        marker={"color": INTEGER, "size": 9},
        text=[_label(row) for row in rows],
        hovertemplate="%{text}<br>%{x:.1f} µs, %{y:.1f} dB<extra></extra>",
        showlegend=False,
    )
    kind = "estimated" if estimated else "measured"
    figure.layout = base_layout(
        420,
        xaxis={"title": {"text": f"saved in the default placement, µs, {kind}"}},
        yaxis={"title": {"text": "SQNR alone at the worst part, dB"}},
    )
    return figure


def _db(noise: float | None) -> float | None:
    """None, a gap in the figure, for what is exact or not finite."""
    return None if noise is None or not 0 < noise < float("inf") else decibels(noise)


def _label(row: SubjectPart) -> str:
    name = row.name if len(row.name) <= _LONGEST else f"…{row.name[1 - _LONGEST :]}"
    return f"{row.sites} of {name}" if row.sites > 1 else name
