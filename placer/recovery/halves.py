"""Halves of the calibration data: each gives ranges that samples of the other one judge."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from placer.calibration.collect import Calibration, Progress, calibrate
from placer.calibration.dataset import Dataset
from placer.model import Model

# Fewer samples leave nothing to hold back.
LEAST_SAMPLES = 4
# A seed of its own: folders are often sorted by class, and the split is not to follow that.
_SEED = 0x4A1F


@dataclass(frozen=True, eq=False)
class Half:
    """Statistics of one half, and batches of the other: single samples, so as to use few."""

    calibration: Calibration
    batches: Sequence[Dataset]


@dataclass(frozen=True, eq=False)
class SplitCalibration:
    """Statistics of all data, and of two halves; a single one with all data if that is little."""

    whole: Calibration
    halves: Sequence[Half]


def calibrate_halves(
    model: Model,
    tensors: Collection[str],
    data: Dataset,
    few: Dataset,
    batches: int,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    until: float = math.inf,
) -> SplitCalibration:
    """Calibrate on either half of ``data``; what both give together is as in a single pass.

    ``few``: what judges ranges that rest on all data, where that is too little to be split.
    ``batches``: at most so many batches of a sample of each half. ``until``: see ``calibrate``;
    each half has an equal part of the time. Raises what ``calibrate`` raises.
    """
    if len(data) < LEAST_SAMPLES:
        whole = calibrate(model, tensors, data, cache_dir, progress, until=until)
        return SplitCalibration(whole, [Half(whole, [few])])
    order = np.random.default_rng(_SEED).permutation(len(data)).tolist()
    parts = order[::2], order[1::2]
    calibrations, done, start = [], 0, time.monotonic()
    for part, end in zip(parts, ((start + until) / 2, until), strict=True):
        report = None if progress is None else _shifted(progress, done, len(data))
        half = data.choose(part)
        calibrations.append(calibrate(model, tensors, half, cache_dir, report, until=end))
        done += len(part)
    halves = [
        Half(calibration, [data.choose([position]) for position in other[:batches]])
        for calibration, other in zip(_completed(calibrations), reversed(parts), strict=True)
    ]
    return SplitCalibration(_merged(calibrations), halves)


def _completed(parts: Sequence[Calibration]) -> list[Calibration]:
    """Each half with the statistics of the other where a body runs on that one alone."""
    every = {name: known for part in parts for name, known in part.statistics.items()}
    return [replace(part, statistics={**every, **part.statistics}) for part in parts]


def _merged(parts: Sequence[Calibration]) -> Calibration:
    first, second = parts
    merged = dict(second.statistics)
    for name, statistics in first.statistics.items():
        merged[name] = statistics.merge(merged[name]) if name in merged else statistics
    return replace(first, statistics=merged, samples=first.samples + second.samples)


def _shifted(progress: Progress, before: int, samples: int) -> Callable[[int, int], None]:
    """``progress`` over all ``samples``, ``before`` of which are done by now."""

    def report(done: int, total: int) -> None:
        half = samples - before if before else samples // 2
        progress(before + round(done / total * half), samples)

    return report
