"""The points of the latency-accuracy front that a search found, confirmed together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from placer.accuracy.evaluation import Evaluation
from placer.accuracy.gates import AnyGateValue
from placer.accuracy.metrics import finite
from placer.engines.estimated.error import EstimateError
from placer.optimizer.observer import Observer
from placer.optimizer.outcome.finals import (
    Final,
    Finalist,
    Rejected,
    compiled_finalists,
    confirm_all,
    copies_of,
    latency_gates,
)
from placer.optimizer.outcome.written import write_and_judge
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.optimizer.trials.result_parts import decided_base, gate_parts, measured_parts
from placer.quantization import FLOAT_IDS
from placer.quantization.placement import edges_by_format
from placer.results.folder import OutputFolder
from placer.results.parts import FrontPart
from placer.search.pareto import Point, point_of, spread, useful_front
from placer.search.records import TrialRecord, by_latency

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class FrontPoint:
    """A candidate, measured in the same rounds as all others of its front, and judged afresh."""

    final: Final[TrialRecord]
    evaluation: Evaluation

    @property
    def point(self) -> Point:
        """Where it stands."""
        return Point(self.final.ratio.median, self.evaluation.noise)


def confirmed_front(
    task: Task, records: Sequence[TrialRecord], setup: TrialSetup, observer: Observer, count: int
) -> tuple[Final[TrialRecord] | Rejected | None, list[FrontPoint]]:
    """The result of a run and at most ``count`` points of its front, the fastest first.

    The result is the fastest point; without any, as no candidate is faster than the float model
    outside the noise, it is the fastest candidate that meets the gates, or why none does
    any more; None if none did in its trial. Raises RunError if the engine fails on every candidate.
    """
    records = _candidates(records, count, task.preset.finalists)
    if not records:
        return None, []
    copies = copies_of(task, len(records))
    baseline = setup.candidates.compile_copies(task.float_placement, copies)
    finalists = compiled_finalists(task, setup, records, copies)
    preset, others = task.preset, setup.latency_baselines.measured
    if len(finalists) > count:
        observer.stage(f"comparing {len(finalists)} candidates for the front")
        rounds = preset.races * preset.race_rounds
        compared = confirm_all(task.engine, finalists, baseline, task.inputs, rounds, others)
        finalists = _spread(finalists, compared, count)
    observer.stage(f"confirming {len(finalists)} points against the float model")
    rounds = preset.confirm_rounds
    finals = confirm_all(task.engine, finalists, baseline, task.inputs, rounds, others)
    judged = [FrontPoint(final, _evaluated(task, setup, final)) for final in finals]
    judged.sort(key=lambda p: p.final.ratio.median)
    held = [p for p in judged if _holds(p, setup)]
    if not held:
        return Rejected(f"confirmed once more it misses {_missed(judged[0], setup)}"), []
    faster = [p for p in held if p.final.is_faster]
    if not faster:
        return held[0].final, []
    # The result is a point of the front, however small its gain is.
    points = [faster[index] for index in useful_front([p.point for p in faster]) or [0]]
    return points[0].final, points


def _evaluated(task: Task, setup: TrialSetup, final: Final[TrialRecord]) -> Evaluation:
    placement = task.space.placement(final.entry.choices)
    return setup.evaluator.evaluate(setup.candidates.judged_run(placement, final.compiled))


def _candidates(records: Sequence[TrialRecord], count: int, finalists: int) -> list[TrialRecord]:
    """What is on the front by its trial, and the fastest ones, as luck may have ordered them.

    Twice as many as asked for: some may turn out to be no faster than the float model.
    """
    judged = [
        (record, point)
        for record in by_latency(records)
        if record.placement_id not in FLOAT_IDS and (point := point_of(record)) is not None
    ]
    useful = [judged[index] for index in useful_front([point for _, point in judged])]
    chosen = [useful[index] for index in spread([point for _, point in useful], 2 * count)]
    numbers = {record.number for record, _ in (*chosen, *judged[:finalists])}
    return [record for record, _ in judged if record.number in numbers]


def _spread(
    finalists: Sequence[Finalist[TrialRecord]], compared: Sequence[Final[TrialRecord]], count: int
) -> list[Finalist[TrialRecord]]:
    """The finalists that are faster than the float model, spread over their front."""
    faster = [i for i, final in enumerate(compared) if final.is_faster]
    placed = [
        (finalists[i], Point(compared[i].ratio.median, noise))
        for i in faster or range(len(compared))
        if (noise := compared[i].entry.noise) is not None
    ]
    return [placed[index][0] for index in spread([point for _, point in placed], count)]


def _holds(point: FrontPoint, setup: TrialSetup) -> bool:
    missed = _missed(point, setup)
    if missed:
        log.warning("confirming trial %d: it misses %s", point.final.entry.number, missed)
    return not missed


def _missed(point: FrontPoint, setup: TrialSetup) -> str:
    values = _gates(point, setup)
    return ", ".join(value.gate.text() for value in values if not value.passed)


def _gates(point: FrontPoint, setup: TrialSetup) -> tuple[AnyGateValue, ...]:
    return (*point.evaluation.gates, *latency_gates(setup.latency_baselines, point.final))


def write_front(
    task: Task,
    setup: TrialSetup,
    folder: OutputFolder,
    points: Sequence[FrontPoint],
    observer: Observer,
) -> tuple[list[FrontPoint], Rejected | None]:
    """Write ``points``; those of which the file meets all gates, with what the file scored.

    Also why the first of the others does not, None if all do.
    """
    held: list[FrontPoint] = []
    rejected: Rejected | None = None
    for point in points:
        place = OutputFolder(folder.path / _folder(task, len(held) + 1, point))
        written = write_and_judge(task, setup, place, point.final, observer)
        if isinstance(written, Rejected):
            rejected = rejected or written
        else:
            held.append(replace(point, evaluation=written.evaluation))
    return held, rejected


def _folder(task: Task, rank: int, point: FrontPoint) -> str:
    placement = task.space.placement(point.final.entry.choices)
    return OutputFolder(Path()).front_point(rank, placement.id).path.as_posix()


def front_parts(task: Task, setup: TrialSetup, points: Sequence[FrontPoint]) -> list[FrontPart]:
    """What result.json says of ``points``."""
    return [_part(task, setup, rank, point) for rank, point in enumerate(points, start=1)]


def _part(task: Task, setup: TrialSetup, rank: int, point: FrontPoint) -> FrontPart:
    final, evaluation = point.final, point.evaluation
    placement = task.space.placement(final.entry.choices)
    error = EstimateError.of(task.engine)
    measured, throughput = measured_parts(task, final.seconds[:, 1])
    return FrontPart(
        folder=_folder(task, rank, point),
        placement=placement.id,
        base=decided_base(task, placement),
        trial=final.entry.number,
        quantized_edges=len(placement.edges),
        formats=edges_by_format(task.pack.manifest.scheme, placement),
        latency=measured,
        throughput=throughput if measured is None else None,
        ratio_to_float=final.ratio.median,
        ratio_interval=error.interval(final.ratio.low, final.ratio.high),
        sqnr_db=finite(evaluation.sqnr),
        gates=gate_parts(value.result() for value in _gates(point, setup)),
        metrics={name: finite(value) for name, value in evaluation.metrics.items()},
    )
