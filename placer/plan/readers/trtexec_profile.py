"""Read the layer times that ``trtexec --exportProfile`` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from placer.errors import InputError
from placer.plan.plan import Plan


def profile_times(entries: Sequence[Any], path: Path) -> list[tuple[str, float]]:
    """Layer names and microseconds per inference, in order of execution."""
    count = 1
    times = []
    for index, entry in enumerate(entries):
        if isinstance(entry, dict) and "name" not in entry and isinstance(entry.get("count"), int):
            count = max(entry["count"], 1)
            continue
        milliseconds = _milliseconds(entry, count) if isinstance(entry, dict) else None
        if milliseconds is None:
            raise InputError(
                f"{path}: entry {index} has no name and time; give trtexec's --exportProfile JSON"
            )
        times.append((str(entry["name"]), milliseconds * 1e3))
    return times


def _milliseconds(entry: Mapping[str, Any], count: int) -> float | None:
    if "name" not in entry:
        return None
    for field, runs in (("medianMs", 1), ("averageMs", 1), ("timeMs", count)):
        value = entry.get(field)
        if isinstance(value, int | float):
            return float(value) / runs
    return None


def with_times(plan: Plan, times: Sequence[tuple[str, float]], path: Path, profile: Path) -> Plan:
    """Add times by name; layers of one name take theirs in order."""
    waiting: dict[str, list[float]] = {}
    for name, time in reversed(times):
        waiting.setdefault(name, []).append(time)
    if waiting and not any(layer.name in waiting for layer in plan.layers):
        raise InputError(f"{profile} times no layer of {path}; profile the same engine")
    layers = []
    for layer in plan.layers:
        known = waiting.get(layer.name)
        layers.append(replace(layer, time_us=known.pop()) if known else layer)
    return replace(plan, layers=tuple(layers))
