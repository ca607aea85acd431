"""Name the best candidate: race the finalists, then confirm the winner against the float model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from placer.accuracy.gates import LatencyValue
from placer.common.statistics import Ratio, fastest, is_absurd, over_copies, paired_ratio, still_in
from placer.engines.base import Compiled, Engine, Tensors
from placer.engines.conditions import Conditions, conditions_of
from placer.engines.times import measured_seconds
from placer.errors import RunError
from placer.optimizer.setup.latency_baselines import CANDIDATE, FLOAT, LatencyBaselines
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.quantization import Placement
from placer.search.proposals.surrogate import DEFAULT
from placer.search.records import TrialRecord

T = TypeVar("T")
log = logging.getLogger(__name__)

# How often the confirming rounds are taken where they disagree too much.
ATTEMPTS = 3
# A share of the float model's time. Estimates of two builds of a network are off by 10% and more,
# so a smaller estimated gain says nothing, and the float model's outputs are exact.
LEAST_ESTIMATED_GAIN = 0.01


@dataclass(frozen=True, eq=False)
class Finalist(Generic[T]):
    """A candidate in the race, compiled several times, and what it stands for.

    Where a session's memory happens to lie moves its latency by a few percent for as long as it
    lives, which more rounds of the same session cannot average out.
    """

    entry: T
    copies: Sequence[Compiled]


@dataclass(frozen=True, eq=False)
class Final(Generic[T]):
    """The winner and fresh measurements of it and of the float model, in the same rounds.

    ``seconds``: shape (rounds, 2 + n), columns float model, winner and the n others.
    ``conditions``: how measuring went, where the engine tells. ``inconclusive``: the rounds
    disagree too much (``placer.common.statistics.is_absurd``), even when they were taken again.
    ``least_gain``: share of the float model's time by which a faster one is shorter at least.
    """

    entry: T
    compiled: Compiled
    seconds: np.ndarray
    ratio: Ratio
    conditions: Conditions | None = None
    inconclusive: bool = False
    least_gain: float = 0.0

    @property
    def is_faster(self) -> bool:
        """Whether the whole interval of the ratio to the float model shows the least gain."""
        return self.ratio.high < 1 - self.least_gain and not self.inconclusive


@dataclass(frozen=True)
class Rejected:
    """Why a candidate that met the gates in its trial is no result, as a clause about it.

    ``number``: of its trial; None of a front, whose points are rejected one by one.
    """

    reason: str
    number: int | None = None


def race(
    engine: Engine, finalists: Sequence[Finalist[T]], inputs: Tensors, rounds: int, races: int
) -> Finalist[T]:
    """Return the fastest of ``finalists``.

    Runs at most ``races`` times ``rounds`` interleaved rounds over those that remain and drops
    after each those that are slower than the leader outside the noise. Earlier rounds count.
    """
    running = list(finalists)
    seconds = np.empty((0, len(running)))
    for _ in range(races):
        if len(running) == 1:
            break
        copies = [finalist.copies for finalist in running]
        seconds = np.vstack([seconds, _means(_measure_copies(engine, copies, inputs, rounds))])
        kept = still_in(seconds)
        running = [running[i] for i in kept]
        seconds = seconds[:, kept]
    return running[fastest(seconds)] if len(running) > 1 else running[0]


def confirm(
    engine: Engine,
    winner: Finalist[T],
    baseline: Sequence[Compiled],
    inputs: Tensors,
    rounds: int,
    others: Sequence[Compiled] = (),
) -> Final[T]:
    """Measure the winner afresh, with the float model and ``others`` in the same rounds.

    Its race selected it partly for lucky rounds.
    """
    (final,) = confirm_all(engine, [winner], baseline, inputs, rounds, others)
    return final


def confirm_all(
    engine: Engine,
    finalists: Sequence[Finalist[T]],
    baseline: Sequence[Compiled],
    inputs: Tensors,
    rounds: int,
    others: Sequence[Compiled] = (),
) -> list[Final[T]]:
    """Measure all ``finalists``, the float model and ``others`` in the same rounds.

    Intervals hold for other copies, too (``over_copies``). Rounds that disagree too much are taken
    again, at most ``ATTEMPTS`` times in all.
    """
    copies = [finalist.copies for finalist in finalists]
    models = [baseline, *copies, *([other] for other in others)]
    for attempt in range(1, ATTEMPTS + 1):
        by_copy = _measure_copies(engine, models, inputs, rounds)
        seconds = _means(by_copy)
        absurd = [is_absurd(seconds[:, 1 + i], seconds[:, 0]) for i in range(len(copies))]
        if not any(absurd):
            break
        log.warning("confirming: the rounds disagree too much, attempt %d", attempt)
    conditions = conditions_of(engine)
    rest = range(1 + len(copies), len(models))
    least = LEAST_ESTIMATED_GAIN if engine.estimated else 0.0
    finals = []
    for column, finalist in enumerate(finalists, start=1):
        in_turn = seconds[:, [0, column, *rest]]
        ratio = paired_ratio(in_turn[:, 1], in_turn[:, 0])
        ratio = over_copies(ratio, by_copy[column], by_copy[0])
        compiled = finalist.copies[0]
        disagrees = absurd[column - 1]
        finals.append(Final(finalist.entry, compiled, in_turn, ratio, conditions, disagrees, least))
    return finals


def _measure_copies(
    engine: Engine, models: Sequence[Sequence[Compiled]], inputs: Tensors, rounds: int
) -> list[np.ndarray]:
    """Seconds of each model's copies, of shape (rounds, copies)."""
    flat = [compiled for copies in models for compiled in copies]
    seconds = measured_seconds(engine, flat, inputs, rounds)
    bounds = np.cumsum([len(copies) for copies in models])[:-1]
    return np.split(seconds, bounds, axis=1)


def _means(by_copy: Sequence[np.ndarray]) -> np.ndarray:
    """Seconds of each model, averaged over its copies, shape (rounds, models)."""
    return np.stack([seconds.mean(axis=1) for seconds in by_copy], axis=1)


def contenders(records: Sequence[TrialRecord], count: int) -> list[TrialRecord]:
    """Who races: the ``count`` first of ``records``, and the default unless it is slower for sure.

    ``records``: fastest first. Of many placements that take nearly the same time, those that are
    the fastest by their own trials were also the luckiest. The rules' default was tried before
    anything was known of it, so that its trial is no such choice.
    """
    first = list(records[:count])
    least = first[0].measurement if first else None
    return first + [
        record
        for record in records[count:]
        if record.kind == DEFAULT
        and record.measurement is not None
        and least is not None
        and record.measurement.ratio.low <= least.ratio.high
    ]


# Above this size of its weights a model is compiled once per finalist, to spare memory; for as many
# finalists as the preset races.
LARGE_MODEL_BYTES = 200_000_000


def compiled_finalists(
    task: Task, setup: TrialSetup, records: Sequence[TrialRecord], copies: int
) -> list[Finalist[TrialRecord]]:
    """The records compiled anew; one that fails now, an engine having crashed, is left out.

    Raises RunError if all fail.
    """
    finalists = []
    for record in records:
        try:
            placement = task.space.placement(record.choices)
            compiled = setup.candidates.compile_copies(placement, copies)
            finalists.append(Finalist(record, compiled))
        except RunError as error:
            log.warning("trial %d is not a finalist: %s", record.number, error)
    if not finalists:
        raise RunError("the engine failed on every finalist; their reasons are in placer.log")
    return finalists


def copies_of(task: Task, finalists: int) -> int:
    """How often each of so many finalists is compiled, and the float model.

    Once where latencies are estimates, which no memory moves.
    """
    preset = task.preset
    if task.engine.estimated:
        return 1
    crowd = max(1.0, finalists / preset.finalists)
    return preset.copies if task.model.weight_bytes * crowd < LARGE_MODEL_BYTES else 1


def latency_gates(
    latency_baselines: LatencyBaselines, final: Final[TrialRecord]
) -> tuple[LatencyValue, ...]:
    """The gates on latency for the result, which is the float model if the final is not faster."""
    return latency_baselines.gates(final.seconds, CANDIDATE if final.is_faster else FLOAT)


def chosen_placement(task: Task, final: Final[TrialRecord]) -> Placement:
    """The final's placement, or that of the float model if that is the result."""
    if final.is_faster:
        return task.space.placement(final.entry.choices)
    return task.float_placement
