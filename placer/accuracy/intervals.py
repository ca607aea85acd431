"""Metrics with intervals: what other samples of the same kind would have given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placer.accuracy.channel_groups import ChannelGroup
from placer.accuracy.metrics import ClassCounts, Comparison, GroupSums

_RESAMPLES = 1000
_LEVEL = 95  # percent
_SEED = 0


@dataclass(frozen=True)
class Measure:
    """One metric, of an output or a part of one, over all samples.

    ``interval``: 95% by bootstrap over samples (B. Efron, "Bootstrap Methods", 1979, percentile
    method); None with fewer than two samples, and for an extreme, of which a bootstrap says
    nothing. Values may be infinite or NaN.
    """

    metric: str
    where: str
    value: float
    interval: tuple[float, float] | None


def measures(
    samples: Sequence[Comparison], functions: Mapping[str, Sequence[float]] | None = None
) -> list[Measure]:
    """All metrics of ``samples``, each of which compares a single sample.

    ``functions``: values by sample of the user's metrics, whose mean counts. A part that is zero on
    all samples has no signal to compare with and is left out of ``sqnr`` and ``cosine``.
    """
    rng = np.random.default_rng(_SEED)
    count = len(samples)
    # How often each bootstrap sample has each sample.
    chosen = rng.multinomial(count, np.full(count, 1 / count), _RESAMPLES)
    measured: list[Measure] = []
    for group in samples[0].groups:
        measured += _of_group(group, [sample.groups[group] for sample in samples], chosen)
    for output in samples[0].classes:
        measured += _of_classes(output, [sample.classes[output] for sample in samples], chosen)
    for name, values in (functions or {}).items():
        sums = np.array([values, np.ones(len(values))]).T
        measured.append(
            _measure(name, "all outputs", sums, chosen, lambda s: s[..., 0] / s[..., 1])
        )
    return measured


def _of_group(group: ChannelGroup, sums: Sequence[GroupSums], chosen: np.ndarray) -> list[Measure]:
    rows = np.array([(s.reference, s.candidate, s.product, s.error) for s in sums])
    largest = float(np.max([s.max_abs for s in sums]))
    measured = []
    if rows[:, 0].any() or not group.spans:
        measured.append(_measure("sqnr", group.name, rows, chosen, _sqnr))
        measured.append(_measure("cosine", group.name, rows, chosen, _cosine))
    return [*measured, Measure("max_abs", group.name, largest, None)]


def _of_classes(output: str, counts: Sequence[ClassCounts], chosen: np.ndarray) -> list[Measure]:
    fields = ("positions", "agreeing", "labelled", "correct", "reference_correct")
    rows = np.array([[getattr(count, name) for name in fields] for count in counts], np.float64)
    measured = []
    if rows[:, 0].any():
        measured.append(_measure("argmax_agreement", output, rows, chosen, _share(1, 0)))
    if rows[:, 2].any():
        measured.append(_measure("top1", output, rows, chosen, _share(3, 2)))
        measured.append(
            _measure(
                "top1_drop", output, rows, chosen, lambda s: (s[..., 4] - s[..., 3]) / s[..., 2]
            )
        )
    return measured


def _measure(
    metric: str,
    where: str,
    rows: np.ndarray,
    chosen: np.ndarray,
    of: Callable[[np.ndarray], np.ndarray],
) -> Measure:
    """``of`` the sums of ``rows``, shape (samples, sums), and of those of each bootstrap sample."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(of(rows.sum(axis=0)))
        drawn = of(chosen @ rows)
    if len(rows) < 2 or np.isnan(drawn).any():
        return Measure(metric, where, value, None)
    tail = (100 - _LEVEL) / 2
    # Infinite values have no line between them to interpolate on.
    low, high = np.percentile(drawn, [tail, 100 - tail], method="nearest")
    return Measure(metric, where, value, (float(low), float(high)))


def _sqnr(sums: np.ndarray) -> np.ndarray:
    """In dB, of sums (..., 4) as ``_of_group`` makes them; inf without error."""
    signal, error = sums[..., 0], sums[..., 3]
    ratio = np.where(error == 0, np.inf, signal / error)
    return np.asarray(10 * np.log10(ratio))


def _cosine(sums: np.ndarray) -> np.ndarray:
    norm = np.sqrt(sums[..., 0]) * np.sqrt(sums[..., 1])
    cosine = np.where(norm > 0, sums[..., 2] / norm, 0.0)
    return np.asarray(np.where(sums[..., 3] == 0, 1.0, cosine))


def _share(part: int, whole: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda sums: np.asarray(sums[..., part] / sums[..., whole])
