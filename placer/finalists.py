"""Candidates compiled anew, several times each, for the measurements that end a run."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from placer.bench import Bench
from placer.engines.base import Compiled
from placer.errors import RunError
from placer.finals import Finalist
from placer.placement import Placement
from placer.search.records import TrialRecord
from placer.task import Task

log = logging.getLogger(__name__)

# Above this size of its weights a model is compiled once per finalist, to spare memory; for as many
# finalists as the preset races.
LARGE_MODEL_BYTES = 200_000_000


def compiled_finalists(
    task: Task, bench: Bench, records: Sequence[TrialRecord], copies: int
) -> list[Finalist[TrialRecord]]:
    """The records compiled anew; one that fails now, an engine having crashed, is left out.

    Raises RunError if all fail.
    """
    found = []
    for record in records:
        try:
            placement = task.space.placement(record.choices)
            found.append(Finalist(record, compile_copies(task, bench, placement, copies)))
        except RunError as error:
            log.warning("finalist %d left out: %s", record.number, error)
    if not found:
        raise RunError("the engine failed on every finalist; their reasons are in placer.log")
    return found


def compile_copies(task: Task, bench: Bench, placement: Placement, copies: int) -> list[Compiled]:
    """``placement`` compiled so many times; RunError if the engine refuses it."""
    candidate = bench.candidates.build(placement)
    return [task.engine.compile(candidate, task.model.base_dir) for _ in range(copies)]


def copies_of(task: Task, finalists: int) -> int:
    """How often each of so many finalists is compiled, and the float model."""
    preset = task.preset
    crowd = max(1.0, finalists / preset.finalists)
    return preset.copies if task.model.weight_bytes * crowd < LARGE_MODEL_BYTES else 1
