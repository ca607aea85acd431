"""Durations as users write them."""

from __future__ import annotations

import re

from placer.errors import InputError


def parse_duration(text: str, what: str = "time") -> float:
    """Seconds of ``90``, ``90s``, ``10m`` or ``1.5h``; InputError for anything else and for 0.

    ``what`` is called so in the error.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None or not float(match[1]):
        raise InputError(f"{what} '{text}' is not a duration; write e.g. 90s, 10m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def duration_text(seconds: float) -> str:
    """``seconds`` in the largest unit of which there are two or more, e.g. ``90 s``, ``10 min``."""
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            whole = round(seconds / unit, 1)
            return f"{whole:,.0f} {name}" if whole.is_integer() else f"{whole:,.1f} {name}"
    return f"{seconds:g} s"
