"""Which of two tools is ahead on OpenVINO, from what openvino_real_models.py measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Table

from placer.common.statistics import paired_ratio

# What a placer variant may lack of NNCF's SQNR and still be as accurate: gates are judged on the
# engine's outputs, which another build rounds otherwise.
AS_ACCURATE_DB = 0.05


def against(
    rows: Mapping[str, Mapping[str, Any]], times: Mapping[str, np.ndarray]
) -> dict[str, dict[str, Any]]:
    """For each NNCF variant the fastest of placer's that is as accurate, and which is ahead."""
    ours = [name for name in rows if name.startswith("placer,")]
    found: dict[str, dict[str, Any]] = {}
    for name in (name for name in rows if name.startswith("nncf")):
        least = _decibels(rows[name]) - AS_ACCURATE_DB
        able = [one for one in ours if _decibels(rows[one]) >= least]
        if not able:
            found[name] = {"placer": None, "verdict": "behind: nothing as accurate was found"}
            continue
        best = min(able, key=lambda one: float(np.median(times[one])))
        ratio = ratio_of(times[best], times[name])
        _, low, high = ratio
        verdict = "ahead" if high < 1 else "behind" if low > 1 else "no difference"
        more = _decibels(rows[best]) - _decibels(rows[name])
        found[name] = {
            "placer": best,
            "ratio": ratio,
            "more_db": more if math.isfinite(more) else None,
            "verdict": verdict,
        }
    return found


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
    for variant, row in found["variants"].items():
        sqnr = "exact" if row["sqnr_db"] is None else f"{row['sqnr_db']:.1f}"
        ratio = "{:.3f} ({:.3f} to {:.3f})".format(*row["ratio_to_float"])
        seconds = f"{row['seconds']:.0f}" if "seconds" in row else ""
        recovered = {True: "yes", False: "no"}.get(row.get("recovered"), "")
        evaluations = str(row.get("evaluations", ""))
        drawn.add_row(variant, sqnr, ratio, evaluations, seconds, recovered)
    rivals = Table(title=f"{name}: placer against NNCF at NNCF's SQNR")
    for column in (
        "NNCF variant",
        "placer variant",
        "of NNCF's time (95%)",
        "more dB",
        "placer is",
    ):
        rivals.add_column(column)
    for variant, row in found["against"].items():
        if row["placer"] is None:
            rivals.add_row(variant, "", "", "", row["verdict"])
            continue
        ratio = "{:.3f} ({:.3f} to {:.3f})".format(*row["ratio"])
        more = "" if row["more_db"] is None else f"{row['more_db']:.1f}"
        rivals.add_row(variant, row["placer"], ratio, more, row["verdict"])
    return [drawn, rivals]
