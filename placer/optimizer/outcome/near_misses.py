"""Candidates that miss a gate by less than recovery can give, recovered after the search."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placer.accuracy.metrics import decibels
from placer.engines.estimated.error import EstimateError
from placer.errors import RunError
from placer.optimizer.observer import Observer
from placer.optimizer.outcome.end_costs import finalists_of, kept_for_the_end
from placer.optimizer.outcome.finals import Finalist
from placer.optimizer.outcome.recovered import Recovered, recover
from placer.optimizer.setup.candidates import Candidates
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.optimizer.trials.costs import TrialCosts
from placer.optimizer.trials.proposer import noise_limit
from placer.quantization import FLOAT_IDS
from placer.recovery.recover import steps_of
from placer.search.models.noise_limits import allowed_noise
from placer.search.records import TrialRecord, by_latency

log = logging.getLogger(__name__)

# So many candidates are recovered at most, of those that lack at most so many dB.
MOST, MOST_DB = 3, 6.0
# One that lacks more than this many times what recovery gave another is left out.
HOPE = 1.5
# A candidate is worth it if it is faster than the best that meets the gates by this part.
WORTH = 0.01


@dataclass(frozen=True, eq=False)
class NearMiss:
    """A trial that missed a gate, and its candidate with other constants, which meets them all."""

    record: TrialRecord
    recovered: Recovered
    candidates: Candidates

    def finalist(self, task: Task, copies: int) -> Finalist[TrialRecord]:
        """It as it is raced; raises RunError if the engine refuses it now."""
        placement = task.space.placement(self.record.choices)
        return Finalist(self.record, self.candidates.compile_copies(placement, copies))


def recoverable_noise(task: Task) -> float:
    """Noise power up to which a candidate that misses the gates may meet them in the end.

    Once recovered, or in another scheme. 0 where there is neither, or the gates do not say it in
    terms of noise.
    """
    limit = noise_limit(task.gates)
    if limit is None or not (steps_of(task.request.recover) or task.schemes[1:]):
        return 0.0
    return float(limit * 10 ** (MOST_DB / 10))


def near_misses(task: Task, records: Sequence[TrialRecord]) -> list[tuple[TrialRecord, float]]:
    """What is faster than all that meets the gates, the fastest first, and the dB that it lacks.

    Only trials that quantize something and miss nothing but gates on accuracy, by at most
    ``MOST_DB`` of noise.
    """
    limit = allowed_noise(records, noise_limit(task.gates))
    held = [r for r in by_latency(records) if r.placement_id not in FLOAT_IDS]
    best = min((r.ratio for r in held if r.ratio is not None), default=math.inf)
    slowest = min(1.0, best / (1 + max(WORTH, EstimateError.of(task.engine).ratio)))
    misses = []
    for record in records if limit > 0 else ():
        if record.noise is None or not _misses_accuracy_alone(record, slowest):
            continue
        # A limit that is learned from other gates may lie above what missed one.
        lacks = max(0.0, decibels(limit) - decibels(record.noise))
        if lacks <= MOST_DB:
            misses.append((record, lacks))
    return sorted(misses, key=lambda pair: pair[0].ratio or 0.0)


def _misses_accuracy_alone(record: TrialRecord, slowest: float) -> bool:
    """Whether it quantizes, is faster than the ratio ``slowest`` and misses no gate on latency."""
    measured = record.measurement
    if measured is None or record.placement_id in FLOAT_IDS or not record.violation > 0:
        return False
    is_slow = measured.ratio.median >= slowest
    return not is_slow and not any(gate.violation > 0 for gate in measured.gates)


def recovered_near_miss(
    task: Task,
    setup: TrialSetup,
    records: Sequence[TrialRecord],
    observer: Observer,
) -> NearMiss | None:
    """The fastest near miss that meets all gates once recovered as asked for, if there is one."""
    steps = steps_of(task.request.recover)
    if not steps or task.request.front is not None:
        return None
    for record, recovered in _recovered(task, setup, records, steps, observer):
        candidates = recovered.candidates
        if candidates is not None and meets_gates(task, setup, record, candidates):
            observer.stage(f"trial {record.number} meets the gates once recovered")
            return NearMiss(record, recovered, candidates)
    return None


def _recovered(
    task: Task,
    setup: TrialSetup,
    records: Sequence[TrialRecord],
    steps: Sequence[str],
    observer: Observer,
) -> Iterator[tuple[TrialRecord, Recovered]]:
    """At most ``MOST`` near misses with what recovery made of them."""
    done, most = 0, MOST_DB
    costs = TrialCosts.of(records, setup, task)
    until = task.limit.end - kept_for_the_end(task, costs, finalists_of(records) + 1)
    for record, lacks in near_misses(task, records):
        if done == MOST or time.monotonic() >= until:
            return
        if lacks > most:
            continue
        observer.stage(
            f"trial {record.number} lacks about {lacks:.1f} dB and is faster than what meets the "
            "gates"
        )
        placement = task.space.placement(record.choices)
        recovered = recover(task, setup, placement, steps, observer, until)
        if not recovered.part.steps:
            return  # There is no data to recover with.
        yield record, recovered
        done += 1
        most = min(MOST_DB, HOPE * max(0.0, _gain(recovered)))


def _gain(recovered: Recovered) -> float:
    """dB that the steps gained on samples held back, on the worst part."""
    kept = [step.held_back_sqnr for step in recovered.part.steps if step.kept]
    pairs = [pair for pair in kept if pair is not None]
    return sum((after or 0.0) - (before or 0.0) for before, after in pairs)


def meets_gates(task: Task, setup: TrialSetup, record: TrialRecord, candidates: Candidates) -> bool:
    """Whether the placement of ``record``, as ``candidates`` build it, meets all gates."""
    placement = task.space.placement(record.choices)
    try:
        compiled = candidates.compile(placement)
        candidates.verify(placement, compiled, task.inputs)
        return setup.evaluator.evaluate(candidates.judged_run(placement, compiled)).passed
    except RunError as error:
        log.warning("trial %d does not run: %s", record.number, error)
        return False
