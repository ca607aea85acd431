"""The result: the fastest candidate that keeps its gates, measured again and as it is on disk."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from placer.errors import RunError
from placer.optimizer.observer import Observer
from placer.optimizer.outcome.finals import (
    Final,
    Finalist,
    Rejected,
    compiled_finalists,
    confirm,
    contenders,
    copies_of,
    latency_gates,
    race,
)
from placer.optimizer.outcome.near_misses import NearMiss
from placer.optimizer.outcome.other_schemes import InScheme, compiled_in_schemes, in_other_schemes
from placer.optimizer.outcome.ties import tie_with_default
from placer.optimizer.outcome.written import Written, write_and_judge
from placer.optimizer.setup.auto_scheme import scheme_text
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.quantization import FLOAT_IDS
from placer.results.folder import OutputFolder
from placer.search.records import TrialRecord, by_latency

log = logging.getLogger(__name__)

Chosen = tuple[Final[TrialRecord] | None, Written | Rejected | None]


def chosen(
    task: Task,
    setup: TrialSetup,
    folder: OutputFolder,
    records: Sequence[TrialRecord],
    near: NearMiss | None,
    observer: Observer,
) -> tuple[Final[TrialRecord] | None, Written | Rejected | None, InScheme | None]:
    """The result and what is on disk of it, or why the fastest candidate is not the result.

    Last comes the scheme that the result is in, where that is another than the trials'.

    Where the fastest misses a gate when it is measured again or as it is written, the others race,
    and the fastest of them is the result if it is faster than the float model.
    """
    left, first = list(records), None
    rescaled = in_other_schemes(task, setup, records, observer)
    for _ in range(task.preset.finalists * max(1, len(task.schemes))):
        best, scheme = _final(task, left, setup, near, rescaled, observer)
        final, written = (
            written_and_judged(task, setup, folder, best, near, observer)
            if scheme is None
            else written_and_judged(scheme.task, scheme.setup, folder, best, None, observer)
        )
        if not isinstance(written, Rejected):
            is_other = first is not None and (final is None or not final.is_faster)
            return (None, first, None) if is_other else (final, written, scheme)
        first, number = first or written, written.number
        if number is None:
            break
        where = "" if scheme is None else f" in {scheme_text(scheme.name)}"
        observer.warn(
            f"trial {number} met the gates{where}, but {written.reason}, so it is no result"
        )
        if scheme is not None:  # In the trials' scheme it may be one.
            rescaled = [one for one in rescaled if one is not scheme]
            continue
        left = [record for record in left if record.number != number]
        rescaled = [one for one in rescaled if one.record.number != number]
        near = None if near is not None and near.record.number == number else near
    return None, first, None


def written_and_judged(
    task: Task,
    setup: TrialSetup,
    folder: OutputFolder,
    final: Final[TrialRecord] | Rejected | None,
    near: NearMiss | None,
    observer: Observer,
) -> Chosen:
    """``final`` and what is on disk of it, or why it is no result."""
    if not isinstance(final, Final):
        return None, final
    written = write_and_judge(task, setup, folder, final, observer, near)
    if isinstance(written, Written):
        return final, written
    return None, replace(written, number=final.entry.number if final.is_faster else None)


def _final(
    task: Task,
    records: Sequence[TrialRecord],
    setup: TrialSetup,
    near: NearMiss | None,
    rescaled: Sequence[InScheme],
    observer: Observer,
) -> tuple[Final[TrialRecord] | Rejected | None, InScheme | None]:
    """Race the fastest candidates that meet the gates; None if there are none.

    ``near``: one that meets them once recovered, which races as it then is. ``rescaled``: those in
    other schemes, which the second part of the result tells if one of them wins. The winner may
    miss a gate on latency when it is measured again.
    """
    best = [r for r in by_latency(records) if r.placement_id not in FLOAT_IDS]
    if not best and near is None and not rescaled:
        return None, None
    # A near miss is faster than the fastest by more than the error of estimates.
    tie = tie_with_default(task, records) if near is None else None
    if tie is not None and tie.default.placement_id not in FLOAT_IDS:
        observer.warn(str(tie))
        best = [tie.default]
    preset = task.preset
    copies = copies_of(task, preset.finalists)
    changed = compiled_in_schemes(rescaled, copies)
    finalists = [
        *_finalists(
            task, setup, contenders(best, preset.finalists), near, copies, alone=not changed
        ),
        *(finalist for finalist, _ in changed),
    ]
    if len(finalists) > 1:
        observer.stage(f"racing {len(finalists)} finalists")
    winner = race(task.engine, finalists, task.inputs, preset.race_rounds, preset.races)
    scheme = next((one for finalist, one in changed if finalist is winner), None)
    observer.stage("confirming the winner against the float model")
    final = _confirmed(task, setup, winner, copies)
    # The float model has no scheme.
    return final, scheme if isinstance(final, Rejected) or final.is_faster else None


def _confirmed(
    task: Task, setup: TrialSetup, winner: Finalist[TrialRecord], copies: int
) -> Final[TrialRecord] | Rejected:
    """``winner`` measured again beside the float model, or the gates on latency that it misses."""
    baseline = setup.candidates.compile_copies(task.float_placement, copies)
    rounds, others = task.preset.confirm_rounds, setup.latency_baselines.measured
    final = confirm(task.engine, winner, baseline, task.inputs, rounds, others)
    missed = [gate for gate in latency_gates(setup.latency_baselines, final) if not gate.passed]
    for gate in missed:
        log.warning("confirming the winner: gate %s is missed: %s", gate.gate.text(), gate.ratio)
    if not missed:
        return final
    names = ", ".join(gate.gate.text() for gate in missed)
    number = final.entry.number if final.is_faster else None
    return Rejected(f"measured again it misses {names}", number)


def _finalists(
    task: Task,
    setup: TrialSetup,
    best: Sequence[TrialRecord],
    near: NearMiss | None,
    copies: int,
    *,
    alone: bool,
) -> list[Finalist[TrialRecord]]:
    """``near`` and ``best`` compiled anew; what fails now, an engine having crashed, is left out.

    Raises RunError if all of ``best`` fail, or, if these race ``alone``, ``near`` and there is
    nothing else.
    """
    recovered = []
    if near is not None:
        try:
            recovered.append(near.finalist(task, copies))
        except RunError as error:
            log.warning("trial %d is not a finalist: %s", near.record.number, error)
    others = (
        compiled_finalists(task, setup, best, copies) if best or (alone and not recovered) else []
    )
    return [*others, *recovered]
