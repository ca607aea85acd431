"""Figures of the search: latency over trials, and latency against accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from placer.accuracy.gates import Gate
from placer.accuracy.latency_gates import BEATS
from placer.report.style import (
    BAD,
    FAINT,
    FLOAT,
    GOOD,
    INK,
    INTEGER,
    base_layout,
    milliseconds,
    number,
    per_second,
)
from placer.results.result import Result, TrialPart, TrialState

_LOOKS: Mapping[TrialState, tuple[str, str, str]] = {
    "complete": ("meets the gates", INTEGER, "circle"),
    "gate missed": ("misses a gate", BAD, "x"),
    "ruled out": ("ruled out", FLOAT, "circle-open"),
    "failed": ("failed", INK, "triangle-down"),
}
_PERCENT = {"tickformat": ".0%"}
_SQNR = "SQNR of all outputs, dB"


def trials_figure(result: Result) -> go.Figure:
    """Latency of each trial as a share of the float model's, the best so far, and what was not
    measured in a strip below.
    """
    figure = go.Figure()
    shares = [t.ratio_to_float for t in result.trials if t.ratio_to_float is not None]
    low, high = min([*shares, 1.0]), max([*shares, 1.0])
    strip = low - 0.12 * max(high - low, 0.05)
    figure.add_scatter(
        x=[-0.5, len(result.trials) - 0.5],
        y=[1, 1],
        mode="lines",
        line={"color": INK, "dash": "dash", "width": 1},
        name="float model",
        hoverinfo="skip",
    )
    for state, (name, colour, symbol) in _LOOKS.items():
        found = [t for t in result.trials if t.state == state and t.ratio_to_float is not None]
        _add_trials(figure, result, found, name, colour, symbol)
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
    unmeasured = [t for t in result.trials if t.ratio_to_float is None]
    skipped = [t for t in result.trials if t.skipped]
    if unmeasured or skipped:
        figure.add_hline(y=strip, line={"color": FAINT, "width": 14}, layer="below")
    _add_unmeasured(figure, result, unmeasured, strip)
    if skipped:
        _add_skipped(figure, skipped, strip)
    _mark_chosen(figure, result, [t.number for t in _chosen(result)])
    figure.update_layout(
        base_layout(
            400,
            xaxis={
                "title": {"text": "trial"},
                "range": [-0.5, len(result.trials) - 0.5],
                "tickformat": "d",
                **({"dtick": 1} if len(result.trials) <= 20 else {}),
            },
            yaxis={"title": {"text": _share(result), "standoff": 16}, **_PERCENT},
        )
    )
    return figure


def _share(result: Result) -> str:
    """What the figures show of each trial, as a share of the float model's."""
    if result.objective == "throughput":
        return "time per inference at full load, of float"
    return f"latency, {'estimated' if result.engine.estimated else 'measured'}, of float"


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
        text=[_hover(t, result) for t in trials],
        hovertemplate="%{text}<extra></extra>",
    )


def _add_unmeasured(
    figure: go.Figure, result: Result, trials: Sequence[TrialPart], y: float
) -> None:
    for state, (name, colour, symbol) in _LOOKS.items():
        found = [trial for trial in trials if trial.state == state]
        if found:
            figure.add_scatter(
                x=[t.number for t in found],
                y=[y] * len(found),
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 9, "line": {"width": 1}},
                name=f"{name}, not measured",
                text=[_hover(t, result) for t in found],
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


def _hover(trial: TrialPart, result: Result) -> str:
    unit = " (estimate)" if result.engine.estimated else ""
    lines = [f"<b>trial {trial.number}</b>, {escape(trial.kind)}: {trial.state}"]
    if trial.throughput is not None and trial.ratio_to_float is not None:
        rate = per_second(trial.throughput.batches_per_s)
        lines.append(f"{rate}, {1 / trial.ratio_to_float:.3f} of float")
    if trial.latency_ms is not None and trial.ratio_to_float is not None:
        lines.append(f"{milliseconds(trial.latency_ms)}{unit}, {trial.ratio_to_float:.3f} of float")
    lines += [
        f"{escape(gate.gate)}: {number(gate.value)} {'met' if gate.passed else 'MISSED'}"
        for gate in trial.gates
    ]
    if trial.noise is not None and trial.noise > 0:
        lines.append(f"SQNR {_decibels(trial.noise):.1f} dB")
    lines += [escape(text[:120]) for text in (trial.ruled_out, trial.error) if text]
    if trial.skipped:
        lines.append(f"{trial.skipped} placements skipped before it: too noisy")
    return "<br>".join(lines)


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


def _chosen(result: Result) -> list[TrialPart]:
    number_of = None if result.best is None else result.best.trial
    return [t for t in result.trials if t.number == number_of and t.ratio_to_float is not None]


def _mark_chosen(figure: go.Figure, result: Result, x: Sequence[float]) -> None:
    chosen = _chosen(result)
    if chosen:
        figure.add_scatter(
            x=x,
            y=[t.ratio_to_float for t in chosen],
            mode="markers",
            marker={
                "symbol": "star",
                "size": 17,
                "color": "#f0b400",
                "line": {"color": INK, "width": 1},
            },
            name="chosen",
            text=[_hover(t, result) for t in chosen],
            hovertemplate="%{text}<br>chosen: confirmed against the float model<extra></extra>",
        )


def _front_trials(result: Result) -> list[TrialPart]:
    """The trials of the front's points, the fastest point first."""
    by_number = {trial.number: trial for trial in result.trials}
    return [by_number[part.trial] for part in result.front]


def _mark_front(
    figure: go.Figure,
    result: Result,
    points: Sequence[TrialPart],
    x: Sequence[float | None],
) -> None:
    figure.add_scatter(
        x=x,
        y=[t.ratio_to_float for t in points],
        mode="markers+text",
        marker={
            "symbol": "circle-open",
            "size": 19,
            "color": GOOD,
            "line": {"color": GOOD, "width": 2.5},
        },
        text=[str(rank) for rank in range(1, len(points) + 1)],
        textposition="bottom right",
        textfont={"color": GOOD, "size": 13},
        name="points of the front",
        customdata=[_hover(t, result) for t in points],
        hovertemplate="%{customdata}<br>point %{text} of the front<extra></extra>",
    )


# --- accuracy -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Accuracy:
    """A metric of all trials: by trial number, ``math.inf`` where it is exact.

    ``limit``: of the gate on it. ``higher``: whether more is better.
    """

    title: str
    values: Mapping[int, float]
    limit: float | None
    higher: bool


def accuracies(result: Result) -> list[Accuracy]:
    """What trials tell of accuracy; what a front is of, or tells them apart best, comes first."""
    found = [_of_gate(Gate.parse(text), result) for text in result.gates if _is_accuracy(text)]
    noise = {t.number: t.noise for t in result.trials if t.noise is not None}
    if noise and (result.front or not any(m.title.startswith("sqnr ") for m in found)):
        values = {n: _decibels(power) if power > 0 else math.inf for n, power in noise.items()}
        found.append(Accuracy(_SQNR, values, None, True))
    found = [metric for metric in found if metric.values]

    def key(metric: Accuracy) -> tuple[bool, bool]:
        is_of_front = bool(result.front) and metric.title.startswith(_SQNR)
        return not is_of_front, len(set(metric.values.values())) < 3

    return sorted(found, key=key)


def _is_accuracy(text: str) -> bool:
    # --beat's gates are on latency and written without a metric.
    return not text.startswith(tuple(f"{beat}<=" for beat in BEATS))


def _of_gate(gate: Gate, result: Result) -> Accuracy:
    values = {
        trial.number: math.inf if own.value is None else own.value
        for trial in result.trials
        for own in trial.gates
        if own.gate == gate.text() and (own.value is not None or own.passed)
    }
    higher = gate.comparison == ">="
    return Accuracy(f"{gate.metric} (gate {gate.text()})", values, gate.threshold, higher)


def _decibels(noise: float) -> float:
    return -10 * math.log10(noise)


def accuracy_figure(result: Result) -> go.Figure | None:
    """Latency against accuracy with the front of the best; None if trials tell of no accuracy."""
    metrics = accuracies(result)
    if not metrics:
        return None
    figure = go.Figure()
    groups = [(state, [t for t in result.trials if t.state == state]) for state in _LOOKS]
    groups = [
        (state, [t for t in found if t.ratio_to_float is not None and _is_judged(t, metrics)])
        for state, found in groups
    ]
    groups = [(state, found) for state, found in groups if found]
    if not groups:
        return None
    everything = [t for _, found in groups for t in found]
    first = metrics[0]
    front = _front(everything, first)
    place = _placed(first)
    figure.add_scatter(
        x=[place(t) for t in front],
        y=[t.ratio_to_float for t in front],
        mode="lines",
        line={"color": GOOD, "width": 1.5, "dash": "dot"},
        name="front: nothing is both faster and more accurate",
        hoverinfo="skip",
    )
    for state, found in groups:
        name, colour, symbol = _LOOKS[state]
        figure.add_scatter(
            x=[place(t) for t in found],
            y=[t.ratio_to_float for t in found],
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 10, "opacity": 0.85},
            name=name,
            customdata=[_hover(t, result) for t in found],
            hovertemplate="%{customdata}<extra></extra>",
        )
    points = _front_trials(result)
    if points:
        _mark_front(figure, result, points, [place(t) for t in points])
    chosen = [t for t in _chosen(result) if _is_judged(t, metrics)]
    if chosen:
        _mark_chosen(figure, result, [x for t in chosen for x in [place(t)] if x is not None])
    figure.update_layout(
        base_layout(
            420,
            xaxis={"title": {"text": first.title}},
            yaxis={"title": {"text": _share(result), "standoff": 16}, **_PERCENT},
            shapes=_limits(first),
            annotations=_exact(everything, first),
        )
    )
    if len(metrics) > 1:
        marked = [own for own in (points, chosen) if own]
        buttons = [_button(metric, groups, everything, marked) for metric in metrics]
        corner = {"x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"}
        menu = {"buttons": buttons, "bgcolor": "#ffffff", "bordercolor": "#c3cad1", **corner}
        figure.update_layout(updatemenus=[menu])
    return figure


def _is_judged(trial: TrialPart, metrics: Sequence[Accuracy]) -> bool:
    return any(trial.number in metric.values for metric in metrics)


def _placed(metric: Accuracy) -> Callable[[TrialPart], float | None]:
    """Where a trial stands on the axis; what is exact stands right of all others."""
    finite = [value for value in metric.values.values() if math.isfinite(value)]
    top, low = max(finite, default=1.0), min(finite, default=0.0)
    beyond = top + max(0.15 * (top - low), 0.02 * abs(top), 1e-9)

    def place(trial: TrialPart) -> float | None:
        value = metric.values.get(trial.number)
        return beyond if value is not None and math.isinf(value) else value

    return place


def _front(trials: Iterable[TrialPart], metric: Accuracy) -> list[TrialPart]:
    sign = -1 if metric.higher else 1
    judged = [t for t in trials if t.number in metric.values]

    def key(trial: TrialPart) -> tuple[float, float]:
        return trial.ratio_to_float or 0.0, sign * metric.values[trial.number]

    front: list[TrialPart] = []
    for trial in sorted(judged, key=key):
        if not front or key(trial)[1] < key(front[-1])[1]:
            front.append(trial)
    return front


def _limits(metric: Accuracy) -> list[dict[str, object]]:
    if metric.limit is None:
        return []
    line = {"color": BAD, "width": 1, "dash": "dash"}
    place = {"x0": metric.limit, "x1": metric.limit, "yref": "paper", "y0": 0, "y1": 1}
    label = {"text": "gate", "textposition": "end", "font": {"color": BAD, "size": 11}}
    return [{"type": "line", "line": line, "label": label, **place}]


def _exact(trials: Iterable[TrialPart], metric: Accuracy) -> list[dict[str, object]]:
    """A word beside each trial that is exact, since the axis has no place for it."""
    place = _placed(metric)
    return [
        {
            "x": place(trial),
            "y": trial.ratio_to_float,
            "text": "exact",
            "showarrow": False,
            "yshift": 14,
            "font": {"size": 11},
        }
        for trial in trials
        if math.isinf(metric.values.get(trial.number, 0.0))
    ]


def _button(
    metric: Accuracy,
    groups: Sequence[tuple[TrialState, Sequence[TrialPart]]],
    everything: Sequence[TrialPart],
    marked: Sequence[Sequence[TrialPart]],
) -> dict[str, object]:
    place = _placed(metric)
    traces = [_front(everything, metric), *(found for _, found in groups), *marked]
    x = [[place(t) for t in found] for found in traces]
    y = [[t.ratio_to_float for t in found] for found in traces]
    changes: dict[str, object] = {
        "xaxis.title.text": metric.title,
        "xaxis.autorange": True,
        "shapes": _limits(metric),
        "annotations": _exact(everything, metric),
    }
    return {"label": metric.title, "method": "update", "args": [{"x": x, "y": y}, changes]}
