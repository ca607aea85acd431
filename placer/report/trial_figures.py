"""The search over its trials: what each took, and the best so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

from placer.report.style import BAD, FAINT, GOOD, INK, base_layout
from placer.report.trial_marks import (
    LOOKS,
    PERCENT,
    chosen_trials,
    hover,
    mark_chosen,
    share_title,
)
from placer.results.parts import TrialPart
from placer.results.result import Result


def trials_figure(result: Result) -> go.Figure:
    """Latency of each trial as a share of the float model's, the best so far, and what was not
    measured in a strip below.
    """
    figure = _empty_figure(result)
    for state, (name, colour, symbol) in LOOKS.items():
        of_state = [t for t in result.trials if t.state == state and t.ratio_to_float is not None]
        _add_trials(figure, result, of_state, name, colour, symbol)
    best = _best_so_far(result.trials)
    if best:
        figure.add_scatter(
            x=[trial for trial, _ in best],
            y=[share for _, share in best],
            mode="lines",
            line={"color": GOOD, "width": 2, "shape": "hv"},
            name="best so far that meets the gates",
            hoverinfo="skip",
        )
    _add_strip(figure, result)
    mark_chosen(figure, result, [t.number for t in chosen_trials(result)])
    return figure


def _empty_figure(result: Result) -> go.Figure:
    """The axes and the line of the float model."""
    ends = [-0.5, len(result.trials) - 0.5]
    figure = go.Figure()
    figure.layout = base_layout(
        400,
        xaxis={
            "title": {"text": "trial"},
            "range": ends,
            "tickformat": "d",
            **({"dtick": 1} if len(result.trials) <= 20 else {}),
        },
        yaxis={"title": {"text": share_title(result), "standoff": 16}, **PERCENT},
    )
    figure.add_scatter(
        x=ends,
        y=[1, 1],
        mode="lines",
        line={"color": INK, "dash": "dash", "width": 1},
        name="float model",
        hoverinfo="skip",
    )
    return figure


def _add_strip(figure: go.Figure, result: Result) -> None:
    """What was not measured, in a strip below all shares."""
    shares = [t.ratio_to_float for t in result.trials if t.ratio_to_float is not None]
    low, high = min([*shares, 1.0]), max([*shares, 1.0])
    strip = low - 0.12 * max(high - low, 0.05)
    unmeasured = [t for t in result.trials if t.ratio_to_float is None]
    skipped = [t for t in result.trials if t.skipped]
    if unmeasured or skipped:
        figure.add_hline(y=strip, line={"color": FAINT, "width": 14}, layer="below")
    _add_unmeasured(figure, result, unmeasured, strip)
    if skipped:
        _add_skipped(figure, skipped, strip)


def _add_trials(
    figure: go.Figure,
    result: Result,
    trials: Sequence[TrialPart],
    name: str,
    colour: str,
    symbol: str,
) -> None:
    if not trials:
        return
    above, below = [], []
    for trial in trials:
        share = trial.ratio_to_float or 0.0
        first, last = trial.ratio_interval or (share, share)
        above.append(last - share)
        below.append(share - first)
    figure.add_scatter(
        x=[t.number for t in trials],
        y=[t.ratio_to_float for t in trials],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": above,
            "arrayminus": below,
            "color": colour,
            "thickness": 1,
            "width": 0,
        },
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 9},
        name=name,
        text=[hover(t, result) for t in trials],
        hovertemplate="%{text}<extra></extra>",
    )


def _add_unmeasured(
    figure: go.Figure, result: Result, trials: Sequence[TrialPart], y: float
) -> None:
    for state, (name, colour, symbol) in LOOKS.items():
        of_state = [trial for trial in trials if trial.state == state]
        if of_state:
            figure.add_scatter(
                x=[t.number for t in of_state],
                y=[y] * len(of_state),
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 9, "line": {"width": 1}},
                name=f"{name}, not measured",
                text=[hover(t, result) for t in of_state],
                hovertemplate="%{text}<extra></extra>",
            )


def _add_skipped(figure: go.Figure, trials: Sequence[TrialPart], y: float) -> None:
    figure.add_scatter(
        x=[t.number - 0.5 for t in trials],
        y=[y] * len(trials),
        mode="markers",
        marker={"color": BAD, "symbol": "diamond-open", "size": 8},
        name="skipped as too noisy",
        text=[f"{t.skipped} skipped before trial {t.number}: too noisy" for t in trials],
        hovertemplate="%{text}<extra></extra>",
    )


def _best_so_far(trials: Iterable[TrialPart]) -> list[tuple[int, float]]:
    steps: list[tuple[int, float]] = []
    last = 0
    for trial in trials:
        last = trial.number
        share = trial.ratio_to_float
        if trial.state == "complete" and share is not None:
            steps.append((trial.number, min(share, steps[-1][1]) if steps else share))
    if steps:
        steps.append((last, steps[-1][1]))
    return steps
