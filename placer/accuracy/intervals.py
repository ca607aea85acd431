"""Metrics with intervals: what other samples of the same kind would have given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import betaincinv, ndtri

from placer.accuracy.channel_groups import ChannelGroup
from placer.accuracy.metrics import ClassCounts, Comparison, GroupSums

_RESAMPLES = 1000
_LEVEL = 95  # percent
_SEED = 0
# Of a bootstrap over samples of which fewer stand out nothing can be told: it may draw none.
_FEW = 5


@dataclass(frozen=True)
class Measure:
    """One metric, of an output or a part of one, over all samples.

    ``interval``: 95% by bootstrap over samples (B. Efron, "Bootstrap Methods", 1979, percentile
    method), but for shares of which a bootstrap says nothing or too little: see ``_share`` and
    ``_drop``. None with fewer than two samples, and for an extreme. Values may be infinite or NaN.
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
    columns = dict(zip(fields, rows.T, strict=True))
    measured = []
    if rows[:, 0].any():
        agreeing = columns["agreeing"], columns["positions"]
        measured.append(_share("argmax_agreement", output, *agreeing, chosen))
    if rows[:, 2].any():
        correct = columns["correct"], columns["labelled"]
        measured.append(_share("top1", output, *correct, chosen))
        measured.append(_drop(output, columns["reference_correct"], *correct, chosen))
    return measured


def _share(
    metric: str, where: str, parts: np.ndarray, wholes: np.ndarray, chosen: np.ndarray
) -> Measure:
    """``parts`` of ``wholes``, both counts by sample, shape (samples,).

    Where each sample has one position the interval is the exact binomial one (C. Clopper and E.
    Pearson, 1934), as a bootstrap's has no width where all are right. Where samples have many
    positions, which depend on each other, each counts as one observation for that interval, and it
    is only joined to the bootstrap's if fewer than ``_FEW`` samples have another value than most.
    """
    rows = np.stack([parts, wholes], axis=1)
    measure = _measure(metric, where, rows, chosen, lambda s: s[..., 0] / s[..., 1])
    count = int((wholes > 0).sum())
    successes = round(measure.value * count) if count else 0
    tail = (1 - _LEVEL / 100) / 2
    low = betaincinv(successes, count - successes + 1, tail) if successes else 0.0
    high = betaincinv(successes + 1, count - successes, 1 - tail) if successes < count else 1.0
    unlike = min(int((parts < wholes).sum()), int((parts > 0).sum()))
    return _joined(measure, (float(low), float(high)), wholes, unlike)


def _drop(
    where: str,
    before: np.ndarray,
    after: np.ndarray,
    wholes: np.ndarray,
    chosen: np.ndarray,
) -> Measure:
    """The share of ``before`` less that of ``after``, counts by sample of shape (samples,).

    As ``_share``, but with the adjusted Wald interval of a difference of matched proportions (A.
    Agresti and Y. Min, Statistics in Medicine 24, 2005): half an observation is added to each of
    the four combinations of right and wrong.
    """
    rows = np.stack([before - after, wholes], axis=1)
    measure = _measure("top1_drop", where, rows, chosen, lambda s: s[..., 0] / s[..., 1])
    change = np.divide(before - after, wholes, out=np.zeros(len(wholes)), where=wholes > 0)
    count = float((wholes > 0).sum()) + 2
    lost, gained = np.maximum(change, 0).sum() + 0.5, np.maximum(-change, 0).sum() + 0.5
    centre = (lost - gained) / count
    spread = np.sqrt(lost + gained - (lost - gained) ** 2 / count) / count
    reach = float(ndtri(0.5 + _LEVEL / 200) * spread)
    ends = max(-1.0, float(centre) - reach), min(1.0, float(centre) + reach)
    return _joined(measure, ends, wholes, int((change != 0).sum()))


def _joined(
    measure: Measure, by_formula: tuple[float, float], wholes: np.ndarray, unlike: int
) -> Measure:
    """``measure`` with the interval that ``_share`` describes; ``unlike``: samples that differ."""
    if measure.interval is None:
        return measure
    if wholes.max() == 1:
        return replace(measure, interval=by_formula)
    if unlike >= _FEW:
        return measure
    low, high = measure.interval
    return replace(measure, interval=(min(low, by_formula[0]), max(high, by_formula[1])))


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
    # NaN stays so: where nothing compares there is no angle.
    cosine = np.where(norm == 0, 0.0, sums[..., 2] / norm)
    return np.asarray(np.where(sums[..., 3] == 0, 1.0, cosine))
