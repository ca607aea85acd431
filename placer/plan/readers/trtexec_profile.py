"""Read layer times: of trtexec, written (``--exportProfile``) or printed (``--dumpProfile``).

Also those that ``tensorrt.Profiler`` prints in Python, ``name: 0.12ms``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from placer.errors import InputError
from placer.plan.plan import Layer, Plan


def profile_times(entries: Sequence[Any], path: Path) -> list[tuple[str, float]]:
    """Layer names and microseconds per inference, in order of execution.

    Raises InputError for an entry without a name and a time.
    """
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


_TITLE = re.compile(r"=== Profile \(\d+ iterations ?\) ===")
_PREFIX = re.compile(r"^(\[[^\]]*\] ?)+")  # Of trtexec's logger.
_NUMBERS = r"(?P<total>\d+\.\d+)\s+(?P<average>\d+\.\d+)\s+((?P<median>\d+\.\d+)\s+)?\d+\.\d+"
# Names come first up to TensorRT 8.5, last since then.
_ROWS = (
    re.compile(rf"^\s*{_NUMBERS}\s{{2,}}(?P<name>\S.*?)\s*$"),
    re.compile(rf"^\s*(?P<name>\S.*?)\s+{_NUMBERS}\s*$"),
)


# Not what trtexec logs of its options: "[11/21/2026-08:00:00] [I] Idle time: 0ms".
_PYTHON = re.compile(r"^(?!\[\d|\[[A-Z]\] )(?P<name>\S.*): (?P<time>\d+(\.\d+)?(e-\d+)?)ms$")


def printed_times(text: str) -> list[tuple[str, float]]:
    """Layer names and microseconds of the last profile in a log; empty without one."""
    return _of_trtexec(text) or _of_python(text)


def _of_python(text: str) -> list[tuple[str, float]]:
    """What ``tensorrt.Profiler`` printed of the last run: each starts with the first layer.

    A line of this form by itself is a time that a script printed, such as that of the whole run.
    """
    times: list[tuple[str, float]] = []
    for line in text.split("\n"):
        match = _PYTHON.search(line.rstrip("\r"))
        if match is None:
            continue
        if times and match["name"] == times[0][0]:
            times = []
        times.append((match["name"], float(match["time"]) * 1e3))
    return times if len(times) > 1 else []


def _of_trtexec(text: str) -> list[tuple[str, float]]:
    times: list[tuple[str, float]] = []
    inside = False
    for line in text.split("\n"):
        if _TITLE.search(line):
            inside, times = True, []
            continue
        rest = _PREFIX.sub("", line)
        row = next((row_match for p in _ROWS if inside and (row_match := p.search(rest))), None)
        if row is None:
            continue
        if row["name"] == "Total":
            inside = False
        else:
            times.append((row["name"], float(row["median"] or row["average"]) * 1e3))
    return times


def with_times(plan: Plan, times: Sequence[tuple[str, float]], path: Path, profile: Path) -> Plan:
    """Add times, in microseconds, by name; layers of one name take theirs in order.

    Raises InputError if none is of a layer of ``plan``.
    """
    waiting: dict[str, list[float]] = {}
    for name, time in reversed(times):
        waiting.setdefault(name, []).append(time)
    if waiting and not any(layer.name in waiting for layer in plan.layers):
        raise InputError(f"{profile} times no layer of {path}; profile the same engine")
    layers = []
    for layer in plan.layers:
        known = waiting.get(layer.name)
        layers.append(_timed(layer, known.pop()) if known else layer)
    return replace(plan, layers=tuple(layers))


def _timed(layer: Layer, time_us: float) -> Layer:
    is_named_only = not (layer.op or layer.inputs or layer.outputs)
    kind = "no-op" if is_named_only and time_us == 0 else layer.kind
    return replace(layer, kind=kind, time_us=time_us)
