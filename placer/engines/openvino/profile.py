"""Times of layers by OpenVINO's own counters, which tell running averages only.

After each inference a counter tells the mean of all so far, in whole microseconds: the first
inference, which is slow, stays in it forever, and so does each one that another process
interrupted. What single inferences took follows from one mean and the next.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from placer.engines.base import Tensors
from placer.engines.openvino.requests import infer, set_inputs

_WARM_UP = 2
# Few enough for a mean of whole microseconds to tell what the last inference took.
_RUNS = (3, 18)
_SECONDS = 1.0
# What an inference is longer than others that nothing interrupted, as a share.
_LONGER = 0.1


def layer_times(compiled: Any, inputs: Tensors) -> dict[str, float]:
    """Microseconds by name of the layer over some inferences after a warm-up.

    ``compiled``: a model with counters that has not run yet.
    """
    request = compiled.create_infer_request()
    set_inputs(request, inputs)
    means: dict[str, list[float]] = {}
    least, most = (_WARM_UP + runs for runs in _RUNS)
    start, runs = time.perf_counter(), 0
    while runs < least or (runs < most and time.perf_counter() - start < _SECONDS):
        infer(request)
        runs += 1
        for info in request.get_profiling_info():
            means.setdefault(info.node_name, []).append(info.real_time.total_seconds() * 1e6)
    if compiled.get_property("NUM_STREAMS") > 1:  # Each counts its own inferences.
        return {name: samples[-1] for name, samples in means.items()}
    return {name: usual_us(samples) for name, samples in means.items()}


def usual_us(means: Sequence[float]) -> float:
    """What an inference behind the warm-up takes that nothing interrupts.

    ``means[n]``: the mean of the first n + 1, cut to a whole number. So their sum is known to n
    microseconds, and n / 2 more than it tells on average; sums of inferences in a row are as well
    known as single ones. 0 for a layer that never took a microsecond, as those that do not run.
    """
    if not any(means):
        return 0.0
    counts = np.arange(1, len(means) + 1)
    sums = counts * np.array(means) + (counts - 1) / 2
    each, unsure = np.diff(sums)[_WARM_UP - 1 :], counts[_WARM_UP:]
    usual = float(np.median(each))
    kept = each <= usual * (1 + _LONGER) + unsure
    return max(float(np.mean(each[kept])), 0.0)
