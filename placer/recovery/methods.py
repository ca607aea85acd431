"""The calibration method of each tensor, chosen by the error that it causes at the outputs."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placer.recovery.crossfit import CrossFit, Methods, score, worst_db

log = logging.getLogger(__name__)

# Ranges that differ by less give the same integers nearly everywhere.
_SAME = 0.01
# Over all groups; two or three are usual.
_PASSES = 20
_RESAMPLES = 400
_CONFIDENCE = 0.9

Group = tuple[str, ...]  # Tensors that share a scale.
Progress = Callable[[int, int], None]  # Runs done, and all.


@dataclass(frozen=True)
class Ranking:
    """Single methods compared on all batches.

    ``noises``: by method and batch. ``best``: the method with the best score.
    """

    noises: Mapping[str, Sequence[Mapping[str, float]]]
    best: str

    @property
    def sqnr(self) -> dict[str, float]:
        """Worst SQNR in dB by method."""
        return {name: worst_db(mean_noises(noises)) for name, noises in self.noises.items()}


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


def rank(crossfit: CrossFit, progress: Progress | None = None) -> Ranking:
    """Compare single methods.

    On all batches: a few samples often carry most of the noise, and while none of them has come up,
    the methods that cut off most look best.
    """
    runs = [(name, batch) for name in crossfit.methods for batch in range(crossfit.batches)]
    noises: dict[str, list[Mapping[str, float]]] = {name: [] for name in crossfit.methods}
    for done, (name, batch) in enumerate(runs, 1):
        noises[name].append(crossfit.noises(crossfit.everywhere(name), [batch]))
        if progress is not None:
            progress(done, len(runs))
    best = max(noises, key=lambda name: score(mean_noises(noises[name])))
    return Ranking(noises, best)


def mixes(crossfit: CrossFit, effort: Effort) -> bool:
    """Whether ``choose`` tries a method for each tensor; else it only takes the best one."""
    return bool(effort.groups) and _used(crossfit, effort) < crossfit.batches


def _used(crossfit: CrossFit, effort: Effort) -> int:
    """The number of batches that are not held back."""
    return max(crossfit.batches - effort.held_back, (crossfit.batches + 1) // 2)


def choose(
    crossfit: CrossFit,
    effort: Effort,
    ranking: Ranking | None = None,
    progress: Progress | None = None,
) -> Choice:
    """The best single method, or one for each tensor if that is better on samples held back.

    The last batches, at most half of them, decide whether the mixture stands; they have no part in
    making it, but for the method that most tensors keep. ``ranking``: of ``crossfit``, if it
    is known. Raises RunError if ONNX Runtime fails.
    """
    ranking = ranking or rank(crossfit)
    single = crossfit.everywhere(ranking.best)
    if not mixes(crossfit, effort):
        return Choice(single, ranking)
    used = _used(crossfit, effort)
    batches = _noisiest_batches(ranking, used, effort)
    crossfit.simulation.release()  # Two sessions at a time would hold all weights twice.
    mixed = _mixture(crossfit, single, batches, effort.groups, progress)
    crossfit.activations.release()
    kept = range(used, crossfit.batches)
    before = [ranking.noises[ranking.best][batch] for batch in kept]
    after = [crossfit.noises(mixed, [batch]) for batch in kept]
    held_back = worst_db(mean_noises(after)), worst_db(mean_noises(before))
    log.info(
        "held back: mixed %.2f dB, %s for all %.2f dB", held_back[0], ranking.best, held_back[1]
    )
    return Choice(mixed if _is_better(after, before) else single, ranking, held_back)


def _noisiest_batches(ranking: Ranking, used: int, effort: Effort) -> list[int]:
    """Those of the first ``used`` batches in which any method makes the most noise.

    They decide over the mean, and what tells methods apart is in them.
    """
    totals = {name: mean_noises(noise_of) for name, noise_of in ranking.noises.items()}

    def noise(batch: int) -> float:
        shares = (
            noise / totals[name][part]
            for name, batches in ranking.noises.items()
            for part, noise in batches[batch].items()
            if 0 < noise < np.inf
        )
        return max(shares, default=0.0)

    return sorted(range(used), key=noise, reverse=True)[: effort.alone]


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
    crossfit: CrossFit,
    single: Methods,
    batches: Sequence[int],
    most: int,
    progress: Progress | None,
) -> dict[str, str]:
    """For each of the ``most`` noisiest groups the method that lowers the sum of all noise best."""
    alone = _noises_by_method(crossfit, single, batches, most, progress)
    chosen = _best_sum(alone, {group: single[group[0]] for group in alone})
    return {**single, **{t: method for group, method in chosen.items() for t in group}}


def _noises_by_method(
    crossfit: CrossFit,
    single: Methods,
    batches: Sequence[int],
    most: int,
    progress: Progress | None,
) -> dict[Group, dict[str, dict[str, float]]]:
    """Noise of each group quantized alone, by method: for the ``most`` noisiest by all of them.

    The other groups have the method of ``single`` only.
    """
    # What an imported model gave a range keeps it, also where it shares a scale with others.
    free = (tuple(t for t in group if t in single) for group in crossfit.activations.groups)
    groups = [group for group in free if group]
    closely = len(crossfit.methods) * len(batches)  # Runs of a group.

    def tell(done: int) -> None:
        if progress is not None:
            progress(done, len(groups) + min(most, len(groups)) * closely)

    # One batch tells which groups matter; those are looked at more closely.
    alone: dict[Group, dict[str, dict[str, float]]] = {}

    def noise_of(group: Group) -> Mapping[str, float]:
        method = single[group[0]]
        alone[group] = {method: crossfit.noises_alone(single, batches[:1], group)}
        tell(min(len(alone), len(groups)))
        return alone[group][method]

    noisiest, others = noisiest_of(groups, most, noise_of)
    for done, group in enumerate(noisiest, 1):
        distinct = _others(crossfit, group, single[group[0]])
        for method in [single[group[0]], *distinct] if distinct else ():
            tried = {**single, **dict.fromkeys(group, method)}
            alone[group][method] = crossfit.noises_alone(tried, batches, group)
        tell(len(groups) + done * closely)
    order = {tensor: index for index, group in enumerate(groups) for tensor in group}
    found = sorted((*noisiest, *others), key=lambda group: order[group[0]])
    return {group: alone[group] for group in found}


def noisiest_of(
    groups: Sequence[Group], most: int, noise_of: Callable[[Group], Mapping[str, float]]
) -> tuple[list[Group], list[Group]]:
    """The ``most`` noisiest of ``groups``, the noisiest first, and all others.

    ``noise_of``: measures the noise of a group, or of several together. Noises add up, so no group
    has more than all of its neighbours together. Of many groups, runs of neighbours are measured
    first and only those taken apart that may hold one of the noisiest; others stay together.
    """
    size = round(math.sqrt(len(groups) / most)) if len(groups) > 4 * most else 1
    parts = [groups[start : start + size] for start in range(0, len(groups), size)]
    joined = {tuple(t for group in part for t in group): part for part in parts}
    noises = {run: noise_of(run) for run in joined}
    total = total_noises(noises.values())
    waiting = sorted(joined, key=lambda run: _share(noises[run], total), reverse=True)[::-1]
    single: list[Group] = []
    while waiting:
        least = _share(noises[single[most - 1]], total) if len(single) >= most else -1.0
        if _share(noises[waiting[-1]], total) < least:
            break
        part = joined[waiting.pop()]
        if len(part) > 1:
            noises.update((group, noise_of(group)) for group in part)
        single.extend(part)
        single.sort(key=lambda group: _share(noises[group], total), reverse=True)
    return single[:most], [*single[most:], *waiting]


def _share(noise: Mapping[str, float], total: Mapping[str, float]) -> float:
    """The largest share of ``total`` that a group has in any part."""
    return max((n / total[part] for part, n in noise.items() if n), default=0.0)


def _best_sum(
    alone: Mapping[Group, Mapping[str, Mapping[str, float]]], start: Mapping[Group, str]
) -> dict[Group, str]:
    """The methods of the groups whose noises of ``alone`` have the best sum, by coordinate descent.

    Errors of different tensors are nearly independent, so what each group does alone adds up.
    From ``start``, one group after the other takes its best method until none changes.
    """
    chosen = dict(start)
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
    return chosen


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
    distinct = [single]
    for method in crossfit.methods:
        if not any(_is_same(crossfit, group, method, other) for other in distinct):
            distinct.append(method)
    return distinct[1:]


def _is_same(crossfit: CrossFit, group: Group, method: str, other: str) -> bool:
    for fold in crossfit.folds:
        for tensor in group:
            one, two = fold.ranges[method][tensor], fold.ranges[other][tensor]
            moved = max(abs(one.low - two.low), abs(one.high - two.high))
            if moved > _SAME * (two.high - two.low):
                return False
    return True
