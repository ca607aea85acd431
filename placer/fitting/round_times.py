"""What builds take, from interleaved rounds, by the rule under which copies of one model agree.

What else a machine does only adds, in CPU time, too, by what it leaves of the caches: there the
best round of each build tells most. Where nothing else runs, clocks that rise and fall make single
rounds lucky, for all builds of the round: there medians of ratios within rounds tell most. Two
copies of each float model differed by (median, and what 80% stay within):

| | best round | paired ratios |
|---|---|---|
| two busy cores of an EPYC, ONNX Runtime | 0.6, 1.4% | 1.6, 3.2% |
| the same, OpenVINO | 0.7, 2.2% | 1.7, 5.8% |
| cores of their own in a Xeon, ONNX Runtime | 1.5, 5.1% | 0.6, 1.4% |
| the same, OpenVINO | 2.0, 5.3% | 0.9, 1.8% |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from placer.fitting.records import NetworkRecord

RoundTimes = Literal["best round", "paired ratios"]
ALL_ROUND_TIMES: tuple[RoundTimes, ...] = ("best round", "paired ratios")
_SHARE = 0.8  # Of networks, whose copies are to agree.


def build_seconds(seconds: np.ndarray, how: RoundTimes) -> np.ndarray:
    """Seconds of each build, shape (builds,), of ``seconds``, shape (rounds, builds)."""
    if how == "best round":
        best: np.ndarray = seconds.min(axis=0)
        return best
    base = seconds[:, :1]
    paired: np.ndarray = np.median(base) * np.median(seconds / base, axis=0)
    return paired


def copies_differ(record: NetworkRecord, how: RoundTimes) -> float:
    """How far the ratio of the float model to a copy of itself is from 1, as a logarithm."""
    both = np.column_stack([record.copy_seconds, record.seconds[:, 0]])
    copy, base = build_seconds(both, how)
    return abs(float(np.log(copy / base)))


def steadier(records: Iterable[NetworkRecord]) -> RoundTimes:
    """The rule under which copies of one model differ less, in 80% of ``records``."""
    known = list(records)

    def off(how: RoundTimes) -> float:
        return float(np.quantile([copies_differ(record, how) for record in known], _SHARE))

    return min(ALL_ROUND_TIMES, key=off) if known else ALL_ROUND_TIMES[0]
