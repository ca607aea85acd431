"""Marks of trials in both figures of the search: colours, texts, the chosen one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import plotly.graph_objects as go

from placer.report.style import BAD, FLOAT, INK, INTEGER, milliseconds, per_second
from placer.results.gate_values import gate_value
from placer.results.parts import TrialPart, TrialState
from placer.results.result import Result

LOOKS: Mapping[TrialState, tuple[str, str, str]] = {
    "complete": ("meets the gates", INTEGER, "circle"),
    "gate missed": ("misses a gate", BAD, "x"),
    "ruled out": ("ruled out", FLOAT, "circle-open"),
    "failed": ("failed", INK, "triangle-down"),
}
PERCENT = {"tickformat": ".0%"}


def share_title(result: Result) -> str:
    """What the figures show of each trial, as a share of the float model's."""
    if result.objective == "throughput":
        return "time per inference at full load, of float"
    return f"latency, {'estimated' if result.engine.estimated else 'measured'}, of float"


def hover(trial: TrialPart, result: Result) -> str:
    """What is shown of ``trial`` under the pointer, in HTML."""
    unit = " (estimate)" if result.engine.estimated else ""
    lines = [f"<b>trial {trial.number}</b>, {escape(trial.kind)}: {trial.state}"]
    if trial.throughput is not None and trial.ratio_to_float is not None:
        rate = per_second(trial.throughput.batches_per_s)
        lines.append(f"{rate}, {1 / trial.ratio_to_float:.3f} of float")
    if trial.latency_ms is not None and trial.ratio_to_float is not None:
        lines.append(f"{milliseconds(trial.latency_ms)}{unit}, {trial.ratio_to_float:.3f} of float")
    lines += [
        f"{escape(gate.gate)}: {gate_value(gate.value, passed=gate.passed)} "
        f"{'met' if gate.passed else 'MISSED'}"
        for gate in trial.gates
    ]
    if trial.noise is not None and trial.noise > 0:
        lines.append(f"SQNR {decibels(trial.noise):.1f} dB")
    lines += [escape(text[:120]) for text in (trial.ruled_out, trial.error) if text]
    if trial.skipped:
        lines.append(f"{trial.skipped} placements skipped before it: too noisy")
    return "<br>".join(lines)


def chosen_trials(result: Result) -> list[TrialPart]:
    """The trial that became the result; none where the float model did."""
    number_of = None if result.best is None else result.best.trial
    return [t for t in result.trials if t.number == number_of and t.ratio_to_float is not None]


def mark_chosen(figure: go.Figure, result: Result, x: Sequence[float]) -> None:
    """Draw a star at the chosen trial, which is at ``x``."""
    chosen = chosen_trials(result)
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
            text=[hover(t, result) for t in chosen],
            hovertemplate="%{text}<br>chosen: confirmed against the float model<extra></extra>",
        )


def decibels(noise: float) -> float:
    """The SQNR of ``noise``, error power over signal power."""
    return -10 * math.log10(noise)
