"""The calibration method of each tensor, chosen by the error that it causes at the outputs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placer.recovery.crossfit import CrossFit, Methods, score, worst_db

log = logging.getLogger(__name__)

# Ranges that differ by less give the same integers nearly everywhere.
_SAME = 0.01
# So many batches in a row must agree on the best method.
_AGREEING = 3
# Over all groups; two or three are usual.
_PASSES = 20
_RESAMPLES = 400
_CONFIDENCE = 0.9

Group = tuple[str, ...]  # Tensors that share a scale.


@dataclass(frozen=True)
class Ranking:
    """Worst SQNR in dB by method, over ``batches`` batches; ``stable``: as the last one says too.

    ``best``: the method with the best score.
    """

    sqnr: Mapping[str, float]
    best: str
    batches: int
    stable: bool


@dataclass(frozen=True)
class Choice:
    """The method of each tensor, and the ranking of those that take one method for all.

    ``held_back``: worst SQNR in dB, on samples that took no part in choosing, of one method for
    each tensor and of ``ranking.best`` for all; None if nothing but that was tried.
    """

    methods: Methods
    ranking: Ranking
    held_back: tuple[float, float] | None = None


@dataclass(frozen=True)
class Effort:
    """Batches that each group of tensors is tried alone on, and those held back; groups tried.

    ``groups`` 0 compares single methods only.
    """

    alone: int
    held_back: int
    groups: int


def rank(crossfit: CrossFit, batches: int) -> Ranking:
    """Compare single methods on more and more of ``batches`` until the best one stays the best."""
    seen: dict[str, list[Mapping[str, float]]] = {name: [] for name in crossfit.methods}
    leaders: list[str] = []
    stable = False
    for batch in range(batches):
        for name, noises in seen.items():
            noises.append(crossfit.noises(crossfit.everywhere(name), [batch]))
        leaders.append(max(seen, key=lambda name: score(mean_noises(seen[name]))))
        stable = len(leaders) >= _AGREEING and len(set(leaders[-_AGREEING:])) == 1
        if stable:
            break
    sqnr = {name: worst_db(mean_noises(noises)) for name, noises in seen.items()}
    return Ranking(sqnr, leaders[-1], len(leaders), stable)


def choose(crossfit: CrossFit, effort: Effort) -> Choice:
    """The best single method, or one for each tensor if that is better on samples held back.

    The last batches, at most half of them, decide whether the mixture stands; they have no part in
    making it. Raises RunError if ONNX Runtime fails.
    """
    used = max(crossfit.batches - effort.held_back, (crossfit.batches + 1) // 2)
    ranking = rank(crossfit, used)
    single = crossfit.everywhere(ranking.best)
    if used == crossfit.batches or not effort.groups:
        return Choice(single, ranking)
    mixed = _mixture(crossfit, single, range(min(effort.alone, used)), effort.groups)
    kept = range(used, crossfit.batches)
    before, after = ([crossfit.noises(one, [batch]) for batch in kept] for one in (single, mixed))
    found = worst_db(mean_noises(after)), worst_db(mean_noises(before))
    log.info("held back: mixed %.2f dB, %s for all %.2f dB", found[0], ranking.best, found[1])
    return Choice(mixed if _is_better(after, before) else single, ranking, found)


def _is_better(after: Sequence[Mapping[str, float]], before: Sequence[Mapping[str, float]]) -> bool:
    """Whether ``after`` scores better in nearly all bootstrap samples of the batches.

    A few samples often carry most of the noise, so a mean over some may be luck.
    """
    rng = np.random.default_rng(0)
    better = 0
    for _ in range(_RESAMPLES):
        chosen = rng.integers(0, len(after), len(after))
        new, old = (score(mean_noises([one[i] for i in chosen])) for one in (after, before))
        better += new > old
    return better >= _CONFIDENCE * _RESAMPLES


def _mixture(
    crossfit: CrossFit, single: Methods, batches: Sequence[int], most: int
) -> dict[str, str]:
    """For each of the ``most`` noisiest groups the method that lowers the sum of all noise best.

    Errors of different tensors are nearly independent, so what each group does alone adds up. The
    sums are lowered group by group until no other method of any group scores better.
    """
    groups = [g for g in crossfit.activations.groups if not single.keys().isdisjoint(g)]
    # One batch tells which groups matter; those are looked at more closely.
    alone = {
        group: {single[group[0]]: crossfit.noises_alone(single, batches[:1], group)}
        for group in groups
    }
    by_share = _noisiest({group: found[single[group[0]]] for group, found in alone.items()})
    for group in by_share[:most]:
        others = _others(crossfit, group, single[group[0]])
        for method in [single[group[0]], *others] if others else ():
            tried = {**single, **dict.fromkeys(group, method)}
            alone[group][method] = crossfit.noises_alone(tried, batches, group)
    chosen = {group: single[group[0]] for group in groups}
    for _ in range(_PASSES):
        before = dict(chosen)
        for group, noises in alone.items():
            if len(noises) > 1:
                rest = total_noises(alone[g][m] for g, m in chosen.items() if g != group)
                chosen[group] = max(
                    noises, key=lambda name: score(total_noises([rest, noises[name]]))
                )
        if chosen == before:
            break
    return {**single, **{t: method for group, method in chosen.items() for t in group}}


def _noisiest(alone: Mapping[Group, Mapping[str, float]]) -> list[Group]:
    """Groups by their largest share of the noise of any part, the largest first."""
    total = total_noises(alone.values())

    def share(group: Group) -> float:
        return max((n / total[part] for part, n in alone[group].items() if n), default=0.0)

    return sorted(alone, key=share, reverse=True)


def mean_noises(noises: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each part's noise."""
    return {part: float(np.mean([one[part] for one in noises])) for part in noises[0]}


def total_noises(noises: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The sum of each part's noise."""
    total: dict[str, float] = {}
    for one in noises:
        for part, noise in one.items():
            total[part] = total.get(part, 0.0) + noise
    return total


def _others(crossfit: CrossFit, group: Group, single: str) -> list[str]:
    """The methods other than ``single`` that give ``group`` ranges of its own."""
    found = [single]
    for method in crossfit.methods:
        if not any(_is_same(crossfit, group, method, other) for other in found):
            found.append(method)
    return found[1:]


def _is_same(crossfit: CrossFit, group: Group, method: str, other: str) -> bool:
    for fold in crossfit.folds:
        for tensor in group:
            one, two = fold.ranges[method][tensor], fold.ranges[other][tensor]
            moved = max(abs(one.low - two.low), abs(one.high - two.high))
            if moved > _SAME * (two.high - two.low):
                return False
    return True
