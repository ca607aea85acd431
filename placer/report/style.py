"""Colours and words that figures and text share."""

from __future__ import annotations

from typing import Any

# Okabe and Ito's palette, which holds for the colour-blind too; grey is what stays float.
INTEGER = "#0072b2"
FLOAT = "#9aa3ad"
CONVERSION = "#d55e00"
NO_OP = "#d8dce1"
GOOD = "#00795c"
BAD = "#b3261e"
INK = "#1c2733"
FAINT = "#e4e8ec"
# One colour for each of several runs.
PALETTE = (INTEGER, CONVERSION, GOOD, "#cc79a7", "#7a5c00", "#56b4e9", BAD, FLOAT)
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

CONFIG: dict[str, Any] = {
    "scrollZoom": True,
    "displaylogo": False,
    "responsive": True,
    # Named one by one: later versions of plotly may add buttons that need a network.
    "modeBarButtons": [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
}


def base_layout(height: int, **changes: Any) -> dict[str, Any]:
    """Layout that all figures share; ``height`` in pixels."""
    axis = {
        "gridcolor": FAINT,
        "zerolinecolor": FAINT,
        "linecolor": "#c3cad1",
        "ticks": "outside",
        "tickcolor": "#c3cad1",
        "automargin": True,
    }
    layout: dict[str, Any] = {
        "height": height,
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "margin": {"l": 64, "r": 48, "t": 16, "b": 56},
        "modebar": {"orientation": "v", "bgcolor": "#ffffff", "color": "#a9b2bb"},
        "hoverlabel": {
            "align": "left",
            "bgcolor": "#ffffff",
            "font": {"family": FONT, "size": 12, "color": INK},
        },
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "xaxis": dict(axis),
        "yaxis": dict(axis),
        "dragmode": "zoom",
    }
    for key, value in changes.items():
        known = layout.get(key)
        layout[key] = {**known, **value} if isinstance(known, dict) else value
    return layout


def milliseconds(value: float) -> str:
    """A time with three digits that count."""
    return f"{value:.3f} ms" if value < 100 else f"{value:.0f} ms"


def per_second(value: float) -> str:
    """Inferences per second."""
    return f"{value:.1f} inferences/s"


def number(value: float | None) -> str:
    """A metric of a result; one that is not finite is exact there."""
    return "exact" if value is None else f"{value:.4g}"


def gate_number(gate: str, value: float | None) -> str:
    """What ``gate``, as the user writes it, was judged by, with its unit."""
    unit = " dB" if gate.startswith("sqnr>=") and value is not None else ""
    return f"{number(value)}{unit}"
