"""Time calls in interleaved rounds on the host's clock, for engines that return when done."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from placer.common.collector import without_collection
from placer.engines.orders import balanced_orders

# Shorter intervals than this are dominated by the clock and the call into the engine.
INTERVAL_S = 2e-3
_MAX_RUNS_PER_INTERVAL = 200
WARM_UP_S = 0.05  # Of each model before its rounds.
# Models up to this long are called once before each interval. With OpenVINO, the call after
# another model's took up to 1.7 times as long (1 ms) and hardly longer than others from 15 ms on.
_CALLED_BEFORE_S = 0.02
# How ``time_calls`` times, said beside times that are kept: those taken otherwise do not compare.
TIMING = f"calls of up to {1e3 * _CALLED_BEFORE_S:g} ms after an untimed one"


def time_calls(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    now: Callable[[], float],
    interval_s: float = INTERVAL_S,
) -> np.ndarray:
    """Seconds per call by the clock ``now``, shape (rounds, len(calls)), after a warm-up.

    ``interval_s``: the least time that a call is repeated for.

    In each round every call is repeated for a short interval, one right after the other, in orders
    that are balanced: neither a drift of the clock speed nor what runs before favours one. A short
    call is made once before its interval: a model in use runs after itself, and finds its weights
    and code in the caches where another model has just put its own.
    """
    per_call = [_warm_up(call) for call in calls]
    counts = [_count(each, interval_s) for each in per_call]
    seconds = np.empty((rounds, len(calls)))
    with without_collection():
        for row, order in enumerate(balanced_orders(rounds, len(calls))):
            for column in order:
                call, count = calls[column], counts[column]
                if per_call[column] <= _CALLED_BEFORE_S:
                    call()
                start = now()
                for _ in range(count):
                    call()
                seconds[row, column] = (now() - start) / count
    return seconds


def expected_seconds(per_call: float) -> tuple[float, float]:
    """Seconds of the warm-up and of a round of ``time_calls``, for one call of ``per_call``."""
    untimed = per_call if per_call <= _CALLED_BEFORE_S else 0.0
    timed = per_call * _count(max(per_call, 1e-9), INTERVAL_S)
    return per_call + max(WARM_UP_S, per_call), untimed + timed


def cpu_clock(threads: int) -> tuple[Callable[[], float], str]:
    """The clock for an engine on ``threads`` CPU threads, and what its seconds are.

    With one thread, in which the calls must run, it is that thread's CPU time, which other
    processes hardly disturb.
    """
    # Where thread time ticks coarsely (Windows: 15.6 ms) it cannot time a single inference.
    if threads == 1 and time.get_clock_info("thread_time").resolution <= 1e-5:
        return time.thread_time, "CPU time of one thread"
    return time.perf_counter, "wall time"


def _warm_up(call: Callable[[], object]) -> float:
    """Warm up; return about how many seconds a call takes."""
    call()
    start, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < WARM_UP_S or not count:
        call()
        count += 1
    return max(elapsed / count, 1e-9)


def _count(per_call: float, interval_s: float) -> int:
    """How many calls one interval needs."""
    return min(max(1, math.ceil(interval_s / per_call)), _MAX_RUNS_PER_INTERVAL)
