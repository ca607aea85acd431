"""Figure of the layers that take most of the time, before and after."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go

from placer.plan.dtypes import reads_quantized
from placer.report.plans import Change, changes, has_times
from placer.report.run_folder import Run
from placer.report.style import CONVERSION, FLOAT, INTEGER, base_layout

MOST = 20


def time_figure(run: Run) -> go.Figure | None:
    """The layers with the longest times, float beside optimized; None without times of both."""
    before, after = run.float_plan, run.plan
    if before is None or after is None or not (has_times(before) and has_times(after)):
        return None
    top = changes(before, after)[:MOST]
    labels = [_label(change) for change in top]
    sides = [("float", [c.before_us for c in top], [FLOAT] * len(top))]
    sides.append(("optimized", [c.after_us for c in top], [_colour(change) for change in top]))
    figure = go.Figure()
    for name, times, colours in sides:
        figure.add_bar(
            y=list(range(len(labels))),
            x=times,
            orientation="h",
            name=name,
            marker={"color": colours, "opacity": 0.55 if name == "float" else 1},
            customdata=[_hover(change, name) for change in top],
            hovertemplate="%{customdata}<br>%{x:.1f} µs<extra>" + name + "</extra>",
            showlegend=False,
        )
    unit = "estimated µs" if run.result.engine.estimated else "measured µs"
    figure.layout = base_layout(
        90 + 27 * len(labels),
        xaxis={"title": {"text": unit}, "rangemode": "tozero"},
        yaxis={
            "tickmode": "array",
            "tickvals": list(range(len(labels))),
            "ticktext": labels,
            "range": [len(labels) - 0.4, -0.6],
            "ticks": "",
        },
        bargap=0.28,
        bargroupgap=0.05,
        dragmode=False,
    )
    return figure


def remaining(run: Run) -> str:
    """What the layers that the figure leaves out take, in a sentence; empty if there are none."""
    before, after = run.float_plan, run.plan
    if before is None or after is None or not (has_times(before) and has_times(after)):
        return ""
    rest = changes(before, after)[MOST:]
    if not rest:
        return ""
    times = sum(c.before_us for c in rest), sum(c.after_us for c in rest)
    return f"{len(rest)} more take {times[0]:.0f} µs in float and {times[1]:.0f} µs in the result."


def _label(change: Change) -> str:
    if not change.nodes:
        return "<b>conversions</b>"
    layers = change.after or change.before
    name = max(layers, key=lambda layer: layer.time_us or 0.0).name
    short = name if len(name) <= 44 else f"…{name[-43:]}"
    others = sum(node not in name for node in change.nodes)
    return escape(short) + (f" +{others}" if others else "")


def _colour(change: Change) -> str:
    if not change.nodes:
        return CONVERSION
    return INTEGER if any(map(reads_quantized, change.after)) else FLOAT


def _hover(change: Change, side: str) -> str:
    layers = change.before if side == "float" else change.after
    shown = [f"{escape(x.name[:90])} ({escape(x.op)})" for x in layers[:8]]
    if len(layers) > 8:
        shown.append(f"and {len(layers) - 8} more layers")
    return "<br>".join(shown) or "no layer"
