"""Time calls in interleaved rounds on the host's clock, for engines that return when done."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from placer.common.collector import without_collection

# Shorter intervals than this are dominated by the clock and the call into the engine.
INTERVAL_S = 2e-3
_MAX_RUNS_PER_INTERVAL = 200
_WARM_UP_S = 0.05


def time_calls(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    now: Callable[[], float],
    interval_s: float = INTERVAL_S,
) -> np.ndarray:
    """Seconds per call by the clock ``now``, shape (rounds, len(calls)), after a warm-up.

    ``interval_s``: the least time that a call is repeated for.

    In each round every call is repeated for a short interval, one right after the other, in an
    order that rotates: a drift of the clock speed favours none.
    """
    counts = [_warm_up(call, interval_s) for call in calls]
    seconds = np.empty((rounds, len(calls)))
    with without_collection():
        for row in range(rounds):
            for position in range(len(calls)):
                column = (position + row) % len(calls)
                call, count = calls[column], counts[column]
                start = now()
                for _ in range(count):
                    call()
                seconds[row, column] = (now() - start) / count
    return seconds


def cpu_clock(threads: int) -> tuple[Callable[[], float], str]:
    """The clock for an engine on ``threads`` CPU threads, and what its seconds are.

    With one thread, in which the calls must run, it is that thread's CPU time, which other
    processes hardly disturb.
    """
    # Where thread time ticks coarsely (Windows: 15.6 ms) it cannot time a single inference.
    if threads == 1 and time.get_clock_info("thread_time").resolution <= 1e-5:
        return time.thread_time, "CPU time of one thread"
    return time.perf_counter, "wall time"


def _warm_up(call: Callable[[], object], interval_s: float) -> int:
    """Warm up; return how many calls one interval needs."""
    call()
    start, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < _WARM_UP_S or not count:
        call()
        count += 1
    per_call = max(elapsed / count, 1e-9)
    return min(max(1, math.ceil(interval_s / per_call)), _MAX_RUNS_PER_INTERVAL)
