"""What is said of layers that only convert tensors, and of what removes them."""

from __future__ import annotations

from placer.graph import Edge
from placer.prediction.explain import StandaloneConversion
from placer.prediction.remedies import Remedy

MOST_EDGES = 4


def conversion_text(conversion: StandaloneConversion, *, timed: bool) -> tuple[str, str]:
    """Why a conversion stays a layer, and what removes it, which may be nothing.

    ``timed``: whether there are estimates.
    """
    cost = f"est. {conversion.us:.1f} us; " if timed else ""
    remedy = ""
    if conversion.remedy is not None:
        remedy = f"remove it: {_remedy(conversion.remedy)}"
    elif conversion.goes_with_others:
        remedy = "it goes with the remedies of the others"
    return f"{conversion.name}: {cost}{conversion.because}", remedy


def _remedy(remedy: Remedy) -> str:
    parts = []
    added, removed = remedy.change.added, remedy.change.removed
    if added:
        parts.append(f"quantize {_edges(added)}")
    if removed:
        parts.append(f"leave {_edges(removed)} in float")
    what = " and ".join(parts) or "give the tensors one scale"
    return f"{what}; the engine gains est. {remedy.saves_us:.1f} us"


def _edges(edges: tuple[Edge, ...]) -> str:
    shown = ", ".join(map(str, edges[:MOST_EDGES]))
    more = len(edges) - MOST_EDGES
    return shown if more <= 0 else f"{shown} and {more} more"
