"""The best candidates of a search, judged in the schemes that its trials were not made in.

Trials are made in the scheme in which the default placement is the fastest. A candidate may be as
fast in another one, and meet a gate there that it missed. Ranges stay, and the scheme turns them
into scales; scales of a model that was quantized stay where the scheme has them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from placer.errors import RunError
from placer.optimizer.observer import Observer
from placer.optimizer.outcome.end_costs import kept_for_the_end
from placer.optimizer.outcome.finals import Finalist
from placer.optimizer.outcome.near_misses import MOST, meets_gates, near_misses
from placer.optimizer.setup.auto_scheme import in_scheme, scheme_text
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup, candidates_of
from placer.optimizer.trials.costs import TrialCosts
from placer.quantization import FLOAT_IDS, Ranges
from placer.search.records import TrialRecord, by_latency

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class InScheme:
    """The placement of a trial in another scheme, which meets the gates.

    ``name``: of that scheme, None for the pack's own. ``task``, ``setup``: the run's with it.
    """

    name: str | None
    record: TrialRecord
    task: Task
    setup: TrialSetup

    def finalist(self, copies: int) -> Finalist[TrialRecord]:
        """It as it is raced; raises RunError if the engine refuses it now."""
        placement = self.task.space.placement(self.record.choices)
        return Finalist(self.record, self.setup.candidates.compile_copies(placement, copies))


def in_other_schemes(
    task: Task, setup: TrialSetup, records: Sequence[TrialRecord], observer: Observer
) -> list[InScheme]:
    """The finalists, and the fastest that miss a gate narrowly, where other schemes meet it."""
    if task.request.front is not None:
        return []
    best = [r for r in by_latency(records) if r.placement_id not in FLOAT_IDS]
    near = [record for record, _ in near_misses(task, records)]
    wanted = [*near[:MOST], *best[: task.preset.finalists]]
    return [one for name in task.schemes[1:] for one in _met(task, setup, name, wanted, observer)]


def _met(
    task: Task,
    setup: TrialSetup,
    name: str | None,
    records: Sequence[TrialRecord],
    observer: Observer,
) -> Iterator[InScheme]:
    changed_task = in_scheme(task, name)
    ranges = _ranges(changed_task, setup)
    candidates = candidates_of(changed_task, task.model, ranges)
    changed = replace(
        setup,
        candidates=candidates,
        noise=setup.noise.of(candidates),
        calibrated=replace(setup.calibrated, ranges=ranges),
    )
    costs = TrialCosts.of(records, setup, task)
    end = task.limit.end - kept_for_the_end(replace(task, schemes=()), costs, len(records))
    for record in records:
        if time.monotonic() >= end:
            observer.warn(f"the time limit left no time for more trials in {scheme_text(name)}")
            return
        if meets_gates(changed_task, changed, record, candidates):
            observer.stage(f"trial {record.number} meets the gates in {scheme_text(name)}, too")
            yield InScheme(name, record, changed_task, changed)


def _ranges(task: Task, setup: TrialSetup) -> Ranges:
    """Those of the trials; of scales that a quantized model had, what gives them in this scheme."""
    imported, pinned = task.model.imported, task.pins.by_tensor
    known = {} if imported is None else imported.ranges(task.pack.manifest.scheme)
    return {**setup.ranges, **{name: known[name] for name in known.keys() - pinned.keys()}}


def compiled_in_schemes(
    candidates: Sequence[InScheme], copies: int
) -> list[tuple[Finalist[TrialRecord], InScheme]]:
    """Each as it is raced; what fails now, an engine having crashed, is left out."""
    made = []
    for one in candidates:
        try:
            made.append((one.finalist(copies), one))
        except RunError as error:
            log.warning("trial %d is not a finalist: %s", one.record.number, error)
    return made
