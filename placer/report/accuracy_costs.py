"""Where the accuracy of a result went, and what the next decibel would cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from placer.accuracy.metrics import decibels
from placer.results.parts import TrialPart
from placer.results.result import Result
from placer.results.sensitivity import worst

# What counts as another level of accuracy, in dB.
STEP_DB = 1.0


@dataclass(frozen=True)
class SourceLine:
    """Sites of the result quantized alone.

    ``share``: of the noise of all lines at the part where they sum up to most.
    """

    name: str
    sites: int
    sqnr: str
    part: str
    share: float


def source_lines(result: Result) -> list[SourceLine]:
    """The noisiest first; shares are estimates, as errors of different tensors are added up."""
    sources = result.noise_sources
    parts = sorted({part for source in sources for part in source.noises})
    sums = {part: sum(_power(s.noises.get(part)) for s in sources) for part in parts}
    place = max(sums, key=lambda part: sums[part], default="")
    lines = []
    for source in sources:
        noise, part = worst(source.noises)
        power = _power(source.noises.get(place))
        share = power / sums[place] if place and 0 < sums[place] < math.inf else 0.0
        shown = "exact" if noise == 0 else f"{decibels(noise):.1f} dB"
        lines.append(SourceLine(source.name, source.sites, shown, part, share))
    return lines


def _power(noise: float | None) -> float:
    return math.inf if noise is None else noise


def next_decibel(result: Result) -> list[str]:
    """Sentences on the front of the trials, read at the result; none if the float model is it."""
    if result.best is None:
        return []
    trials = [t for t in result.trials if t.ratio_to_float is not None and t.noise is not None]
    chosen = next((trial for trial in trials if trial.number == result.best.trial), None)
    if chosen is None or math.isinf(level := _level(chosen)):
        return []
    better = [t for t in trials if _level(t) >= level + STEP_DB and _ratio(t) < 1]
    recovered = result.recovery is not None and result.recovery.kept
    text = (
        f"The result's trial holds {level:.1f} dB at the worst output part"
        f"{', before accuracy was recovered' if recovered else ''}. "
    )
    if not better:
        known = "No trial holds 1 dB more and is faster than the float model"
        return [f"{text}{known}: the trials offer no more accuracy than this."]
    sentences = [f"{text}{_compared(chosen, _fastest(better), result)}."]
    worse = [t for t in trials if _level(t) <= level - STEP_DB and _ratio(t) < _ratio(chosen)]
    if worse:
        sentences.append(f"{_compared(chosen, _fastest(worse), result)}.")
    return sentences


def _compared(chosen: TrialPart, other: TrialPart, result: Result) -> str:
    """How accuracy and time of ``other`` differ from those of ``chosen``."""
    gained = _level(other) - _level(chosen)
    exact = math.isinf(gained)
    accuracy = "is exact" if exact else f"holds {_level(other):.1f} dB"
    slower = _ratio(other) - _ratio(chosen)
    missed = ", but misses a gate" if other.state == "gate missed" else ""
    text = (
        f"Trial {other.number} {accuracy} and takes {_time(abs(slower), result)} "
        f"{'more' if slower > 0 else 'less'}{missed}"
    )
    if not exact and slower * gained > 0:
        text += f": {_time(slower / gained, result)} per dB"
    if _overlap(chosen, other):
        text += "; the intervals of both trials overlap, so the difference may be chance"
    return f"{text} ({'estimated' if result.engine.estimated else 'measured'})"


def _time(share: float, result: Result) -> str:
    """Microseconds, or with a throughput percent of the float model's time."""
    baseline = result.baseline
    if baseline is None or baseline.latency is None:
        return f"{share:.2%} of the float model's time"
    return f"{1e3 * share * baseline.latency.median_ms:.3g} µs"


def _overlap(first: TrialPart, second: TrialPart) -> bool:
    if first.ratio_interval is None or second.ratio_interval is None:
        return False
    (low, high), (start, end) = first.ratio_interval, second.ratio_interval
    return low < high and start < end and low <= end and start <= high


def _fastest(trials: Sequence[TrialPart]) -> TrialPart:
    return min(trials, key=_ratio)


def _ratio(trial: TrialPart) -> float:
    return math.inf if trial.ratio_to_float is None else trial.ratio_to_float


def _level(trial: TrialPart) -> float:
    """SQNR in dB."""
    return -math.inf if trial.noise is None else decibels(trial.noise)
