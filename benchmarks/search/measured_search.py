"""One search on an engine, what a run takes of it, and the measurement of that at the end."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.search.measured_results import CHECKPOINTS
from benchmarks.search.measured_rivals import OURS, SAMPLERS, make_rival, whole_trials
from placer.common.blas import one_blas_thread
from placer.common.statistics import Ratio, paired_ratio
from placer.engines.base import Compiled
from placer.optimizer.device_search import Device
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Preset
from placer.optimizer.outcome.finals import compiled_finalists, contenders, copies_of, race
from placer.optimizer.search_loop import search as run_search
from placer.optimizer.setup.study_settings import open_study
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.optimizer.trials.proposer import probes_of
from placer.quantization import EMPTY, Placement
from placer.search.records import TrialRecord, by_latency
from placer.search.space import Choices
from placer.search.study.study import Study


@dataclass(frozen=True)
class Effort:
    """``budget``: trials per study. ``rounds`` and ``copies``: of the measurement at the end.

    ``samplers``: some of ``SAMPLERS``, in the order in which they run.
    """

    first_seed: int
    seeds: int
    budget: int
    samples: int
    rounds: int
    copies: int
    preset: Preset
    samplers: tuple[str, ...] = SAMPLERS

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Numbers of trials after which the best placement is taken."""
        return (*(n for n in CHECKPOINTS if n < self.budget), self.budget)


@dataclass(frozen=True, eq=False)
class Searched:
    """One study. ``best``: choices by checkpoint, None where the float model was the best.

    ``stopped``: why it ended: ``budget``, ``converged`` where it had nothing left to try, or an
    error. ``probes``: how often noise was measured beside the trials.
    """

    sampler: str
    seed: int
    seconds: float
    records: tuple[TrialRecord, ...]
    stopped: str
    best: Mapping[int, Choices | None]
    probes: int


def search(task: Task, bench: TrialSetup, sampler: str, seed: int, effort: Effort) -> Searched:
    """Run one study in a fresh folder, without anything that other runs measured."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        request = replace(task.request, seed=seed, budget=effort.budget, output=Path(folder))
        own = replace(task, request=request)
        study = open_study(own)
        if sampler == OURS:
            device = Device(own, bench)
            stopped: str = run_search([device], study, QuietObserver(), "interrupted", show).stopped
            probes = probes_of(study)
        else:
            stopped, probes = _run_rival(sampler, own, bench, study)
        records = tuple(study.records())
    best = {}
    raced: dict[tuple[str, ...], Choices] = {}
    for n in effort.checkpoints:
        best[n] = best_of(records[:n], task, bench, raced)
    return Searched(sampler, seed, time.monotonic() - start, records, stopped, best, probes)


def _run_rival(sampler: str, task: Task, bench: TrialSetup, study: Study) -> tuple[str, int]:
    """Why it stopped, and how often it measured noise."""
    probes = 0
    try:
        with one_blas_thread():
            rival, probes = make_rival(sampler, task, bench)
            budget, runner = task.request.budget, whole_trials(task, bench)
            stopped = study.run(rival, runner, budget=budget, deadline=None, on_trial=show)
    except Exception as error:  # What it found until then counts, and the others go on.
        return f"failed: {type(error).__name__}: {error}", probes
    return stopped, probes


def show(record: TrialRecord) -> None:
    """A line for a trial, so that a run that is cut off has told what it found."""
    ratio = "not measured" if record.ratio is None else f"{record.ratio:.3f}"
    if record.error is not None:
        ratio = f"refused ({record.error})"
    holds = "holds the gate" if record.feasible else "does not hold the gate"
    print(f"{record.number} {record.kind}: {ratio}, {holds}, {record.seconds:.0f} s", flush=True)


def best_of(
    records: Sequence[TrialRecord],
    task: Task,
    bench: TrialSetup,
    raced: dict[tuple[str, ...], Choices],
) -> Choices | None:
    """The fastest placement that holds the gate, as a run names it; None for the float model.

    Of trials of nearly the same time the fastest by its own was also the luckiest, so the fastest
    race. ``raced``: winners by placement ids of who raced, which is added to.
    """
    quantized = [r for r in by_latency(records) if r.placement_id != EMPTY.id]
    if not quantized or (quantized[0].ratio or 0.0) >= 1:
        return None
    preset = task.preset
    racing = contenders(quantized, preset.finalists)
    key = tuple(record.placement_id for record in racing)
    if key not in raced:
        field = compiled_finalists(task, bench, racing, copies_of(task, preset.finalists))
        winner = race(task.engine, field, task.inputs, preset.race_rounds, preset.races)
        raced[key] = winner.entry.choices
    return raced[key]


def confirm(
    task: Task, bench: TrialSetup, found: Sequence[Searched], effort: Effort
) -> dict[str, Ratio]:
    """Ratio to the float model by placement id.

    Each is measured in the same rounds as the float model, with no other in memory: of 26 sessions
    the same placement was up to 28% slower than of four.
    """
    wanted = {
        task.space.placement(choices).id: task.space.placement(choices)
        for searched in found
        for choices in searched.best.values()
        if choices is not None
    }
    floats = _builds(bench, EMPTY, effort.copies)
    ratios = {EMPTY.id: Ratio(1.0, 1.0, 1.0, effort.rounds)}
    for name, placement in wanted.items():
        models = [*floats, *_builds(bench, placement, effort.copies)]
        seconds = task.engine.measure(models, task.inputs, effort.rounds)
        # Where a session's memory lies moves its latency for as long as it lives: see
        # placer.optimizer.outcome.finals.
        by_model = seconds.reshape(effort.rounds, 2, effort.copies).mean(axis=2)
        ratios[name] = paired_ratio(by_model[:, 1], by_model[:, 0])
    return ratios


def _builds(bench: TrialSetup, placement: Placement, copies: int) -> list[Compiled]:
    return [bench.candidates.compile(placement) for _ in range(copies)]
