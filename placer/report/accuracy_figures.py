"""Latency against accuracy: every judged trial, and the front of the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from placer.accuracy.gates import Gate
from placer.accuracy.latency_gates import BEATS
from placer.report.style import BAD, GOOD, base_layout
from placer.report.trial_marks import (
    LOOKS,
    PERCENT,
    chosen_trials,
    decibels,
    hover,
    mark_chosen,
    share_title,
)
from placer.results.parts import TrialPart, TrialState
from placer.results.result import Result

_SQNR = "SQNR of all outputs, dB"
_MENU = {
    "bgcolor": "#ffffff",
    "bordercolor": "#c3cad1",
    "x": 1,
    "xanchor": "right",
    "y": 1.02,
    "yanchor": "bottom",
}


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
    metrics = [
        _of_gate(Gate.parse_stored(text), result) for text in result.gates if _is_accuracy(text)
    ]
    noise = {t.number: t.noise for t in result.trials if t.noise is not None}
    if noise and (result.front or not any(m.title.startswith("sqnr,") for m in metrics)):
        values = {n: decibels(power) if power > 0 else math.inf for n, power in noise.items()}
        metrics.append(Accuracy(_SQNR, values, None, True))
    metrics = [metric for metric in metrics if metric.values]

    def key(metric: Accuracy) -> tuple[bool, bool]:
        is_of_front = bool(result.front) and metric.title.startswith(_SQNR)
        return not is_of_front, len(set(metric.values.values())) < 3

    return sorted(metrics, key=key)


def _is_accuracy(text: str) -> bool:
    # --beat's gates are on latency and written without a metric.
    return not text.startswith(tuple(f"{beat}<=" for beat in BEATS))


def _of_gate(gate: Gate, result: Result) -> Accuracy:
    values = {
        trial.number: math.inf if outcome.value is None else outcome.value
        for trial in result.trials
        for outcome in trial.gates
        if outcome.gate == gate.text() and (outcome.value is not None or outcome.passed)
    }
    higher = gate.comparison == ">="
    unit = ", dB" if gate.metric == "sqnr" else ""
    return Accuracy(f"{gate.metric}{unit} (gate {gate.text()})", values, gate.threshold, higher)


def accuracy_figure(result: Result) -> go.Figure | None:
    """Latency against accuracy with the front of the best; None if trials tell of no accuracy."""
    metrics = accuracies(result)
    groups = _judged_by_state(result, metrics)
    if not groups:
        return None
    first = metrics[0]
    place = _placed(first)
    everything = [trial for _, trials in groups for trial in trials]
    points = _front_trials(result)
    chosen = [trial for trial in chosen_trials(result) if _is_judged(trial, metrics)]
    figure = go.Figure()
    _add_front(figure, _front(everything, first), place)
    for state, of_state in groups:
        _add_state(figure, result, state, of_state, place)
    if points:
        _mark_front(figure, result, points, [place(t) for t in points])
    if chosen:
        places = map(place, chosen)
        mark_chosen(figure, result, [x for x in places if x is not None])
    figure.layout = base_layout(
        420,
        xaxis={"title": {"text": first.title}},
        yaxis={"title": {"text": share_title(result), "standoff": 16}, **PERCENT},
        shapes=_limits(first),
        annotations=_exact(everything, first),
    )
    if len(metrics) > 1:
        marked = [traces for traces in (points, chosen) if traces]
        buttons = [_button(metric, groups, everything, marked) for metric in metrics]
        figure.layout.updatemenus = [{"buttons": buttons, **_MENU}]
    return figure


def _judged_by_state(
    result: Result, metrics: Sequence[Accuracy]
) -> list[tuple[TrialState, list[TrialPart]]]:
    """Measured trials that a metric tells of, by how they ended; a state without any is left out.

    Without a metric there are none.
    """
    judged = [t for t in result.trials if t.ratio_to_float is not None and _is_judged(t, metrics)]
    groups = [(state, [t for t in judged if t.state == state]) for state in LOOKS]
    return [(state, of_state) for state, of_state in groups if of_state]


def _add_front(
    figure: go.Figure,
    front: Sequence[TrialPart],
    place: Callable[[TrialPart], float | None],
) -> None:
    figure.add_scatter(
        x=[place(t) for t in front],
        y=[t.ratio_to_float for t in front],
        mode="lines",
        line={"color": GOOD, "width": 1.5, "dash": "dot"},
        name="front: nothing is both faster and more accurate",
        hoverinfo="skip",
    )


def _add_state(
    figure: go.Figure,
    result: Result,
    state: TrialState,
    of_state: Sequence[TrialPart],
    place: Callable[[TrialPart], float | None],
) -> None:
    name, colour, symbol = LOOKS[state]
    figure.add_scatter(
        x=[place(t) for t in of_state],
        y=[t.ratio_to_float for t in of_state],
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 10, "opacity": 0.85},
        name=name,
        customdata=[hover(t, result) for t in of_state],
        hovertemplate="%{customdata}<extra></extra>",
    )


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
    traces = [_front(everything, metric), *(trials for _, trials in groups), *marked]
    x = [[place(t) for t in trace] for trace in traces]
    y = [[t.ratio_to_float for t in trace] for trace in traces]
    changes: dict[str, object] = {
        "xaxis.title.text": metric.title,
        "xaxis.autorange": True,
        "shapes": _limits(metric),
        "annotations": _exact(everything, metric),
    }
    return {"label": metric.title, "method": "update", "args": [{"x": x, "y": y}, changes]}


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
        customdata=[hover(t, result) for t in points],
        hovertemplate="%{customdata}<br>point %{text} of the front<extra></extra>",
    )
