"""Which of two tools is ahead on OpenVINO, from what openvino_models.py measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from placer.common.statistics import paired_ratio

# What a placer variant may lack of NNCF's SQNR and still be as accurate: gates are judged on the
# engine's outputs, which another build rounds otherwise.
AS_ACCURATE_DB = 0.05
# Before the name of a variant: the same file, compiled once more.
AGAIN = "again: "


def against(
    rows: Mapping[str, Mapping[str, Any]], times: Mapping[str, np.ndarray]
) -> dict[str, dict[str, Any]]:
    """For each NNCF variant the fastest of placer's that is as accurate, and which is ahead.

    ``as_fast`` is the most accurate of placer's that is not measurably slower; None if all are.
    ``again`` is the ratio of the same file compiled once more, where it was.
    """
    ours = [name for name in rows if name.startswith("placer,")]
    found: dict[str, dict[str, Any]] = {}
    for name in (name for name in rows if name.startswith("nncf")):
        least = _decibels(rows[name]) - AS_ACCURATE_DB
        pairs = {one: _pair(one, name, rows, times) for one in ours}
        able = [one for one in ours if _decibels(rows[one]) >= least]
        fast = [one for one in ours if pairs[one]["ratio"][1] <= 1]
        as_fast = pairs[max(fast, key=lambda one: _decibels(rows[one]))] if fast else None
        if not able:
            found[name] = {"placer": None, "verdict": "behind: nothing as accurate was found"}
        else:
            # By paired ratios, as they are reported: medians of times drift with the machine.
            best = pairs[min(able, key=lambda one: float(pairs[one]["ratio"][0]))]
            _, low, high = best["ratio"]
            verdict = "ahead" if high < 1 else "behind" if low > 1 else "no difference"
            found[name] = {**best, "verdict": verdict}
        found[name]["as_fast"] = as_fast
        if AGAIN + name in times:
            found[name]["again"] = ratio_of(times[AGAIN + name], times[name])
    return found


def _pair(
    one: str,
    other: str,
    rows: Mapping[str, Mapping[str, Any]],
    times: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    more = _decibels(rows[one]) - _decibels(rows[other])
    return {
        "placer": one,
        "ratio": ratio_of(times[one], times[other]),
        "more_db": more if math.isfinite(more) else None,
    }


def _decibels(row: Mapping[str, Any]) -> float:
    return math.inf if row["sqnr_db"] is None else float(row["sqnr_db"])


def ratio_of(seconds: np.ndarray, others: np.ndarray) -> list[float]:
    """Median of paired ratios and its 95% interval."""
    found = paired_ratio(seconds, others)
    return [found.median, found.low, found.high]


def tables(name: str, found: Mapping[str, Any]) -> list[Table]:
    """The variants of one model, and who is ahead."""
    drawn = Table(title=f"{name} {found['shapes']}, {found['rounds']} interleaved rounds")
    for column in ("variant", "SQNR, dB", "of float (95%)", "evaluations", "seconds", "recovered"):
        drawn.add_column(column)
    drawn.add_column("layers as NNCF's")
    for variant, row in found["variants"].items():
        sqnr = "exact" if row["sqnr_db"] is None else f"{row['sqnr_db']:.1f}"
        ratio = _ratio(row["ratio_to_float"])
        seconds = f"{row['seconds']:.0f}" if "seconds" in row else ""
        recovered = {True: "yes", False: "no"}.get(row.get("recovered"), "")
        evaluations = str(row.get("evaluations", ""))
        layers = row.get("layers_as_nncf")
        drawn.add_row(
            variant, sqnr, ratio, evaluations, seconds, recovered, f"{layers:.3f}" if layers else ""
        )
    rivals = _rivals(f"{name}: placer against NNCF at NNCF's SQNR")
    rivals.add_column("placer is")
    rivals.add_column("the same file again")
    at_latency = _rivals(f"{name}: the most accurate of placer's not measurably slower than NNCF")
    for variant, row in found["against"].items():
        again = _ratio(row["again"]) if "again" in row else ""
        rivals.add_row(variant, *_cells(row), row["verdict"], again)
        at_latency.add_row(variant, *_cells(row["as_fast"] or {"placer": None}))
    return [drawn, rivals, at_latency]


def _rivals(title: str) -> Table:
    table = Table(title=title)
    for column in ("NNCF variant", "placer variant", "of NNCF's time (95%)", "more dB"):
        table.add_column(column)
    return table


def _cells(row: Mapping[str, Any]) -> tuple[str, str, str]:
    if row["placer"] is None:
        return "", "", ""
    more = "exact" if row["more_db"] is None else f"{row['more_db']:.1f}"
    return row["placer"], _ratio(row["ratio"]), more


def _ratio(found: Sequence[float]) -> str:
    return "{:.3f} ({:.3f} to {:.3f})".format(*found)
