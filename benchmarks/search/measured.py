r"""Ways to search on measured latency: the best placement after 10, 20 and 40 trials.

On ONNX Runtime, OpenVINO or another engine: placer's own search (surrogate), TPE by itself and from
the placements that placer starts with, greedy by sensitivity, and random. Greedy quantizes groups
of sites in the order of the noise that each makes alone. Evaluations are trials and noise measured
beside them; greedy's count towards its budget, placer's are told.

Models: the bundled digits network, PP-OCRv4 and networks of public topology (networks/real.py).
Per model, seed and sampler one study, as ``placer optimize --no-cache`` runs it, under one gate and
with the same ranges for all. What a run would have taken then, in a race of the fastest by their
own trials, is measured again at the end: each placement in interleaved rounds with the float model,
both compiled several times. The float model stands in where nothing faster held the gate, as it
does for a user.

    python -m benchmarks.search.measured --json results.json

``--engine`` takes plug-ins too, with their options, and ``--samplers`` some of the searches, where
an engine takes long to compile:

    python -m benchmarks.search.measured --engine iree --engine-option target=cuda --models rec \
        --samplers surrogate "tpe from the same starts" --budget 20 --json iree.json

On a machine with many cores, models and seeds run beside each other, each pinned to a core, and
their files are put together:

    taskset -c 2 python -m benchmarks.search.measured --models det --first-seed 1 --seeds 1 \
        --json det-1.json
    python -m benchmarks.search.measured --merge det-*.json --brief --json results.json

``--again`` measures what was found once more, in one process for each model, where the searches
ran in several.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.command_line import parser_of, write_json
from benchmarks.networks.real import NAMES, case
from benchmarks.search.measured_results import CHECKPOINTS, SAMPLERS, brief, merged, table
from placer.common.shapes import ShapeRange
from placer.common.statistics import Ratio, paired_ratio
from placer.engines.base import Compiled
from placer.optimizer.device_search import Device
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Preset, Request, Sampler
from placer.optimizer.outcome.finals import compiled_finalists, contenders, copies_of, race
from placer.optimizer.search_loop import search as run_search
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.study_settings import open_study
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup, set_up
from placer.optimizer.trials.proposer import probes_of
from placer.optimizer.trials.trial import TrialRunner
from placer.quantization import EMPTY, Placement
from placer.results.result import versions
from placer.search.proposals.surrogate import seed_proposals
from placer.search.records import TrialRecord, by_latency
from placer.search.samplers import Proposal, Proposer, TpeProposer
from placer.search.space import Choices, Space

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
DIGITS_NAME = "digits"
MODELS = (DIGITS_NAME, *NAMES)
GATE = "sqnr>=15"
_OWN: Mapping[str, Sampler] = {"surrogate": "surrogate", "random": "random"}


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

    ``probes``: how often noise was measured beside the trials.
    """

    sampler: str
    seed: int
    seconds: float
    records: tuple[TrialRecord, ...]
    stopped: str
    best: Mapping[int, Choices | None]
    probes: int


@dataclass(frozen=True)
class Target:
    """The engine, by name, with its own options."""

    engine: str
    options: Mapping[str, str] = field(default_factory=dict)


def make_task(name: str, effort: Effort, gate: str, folder: Path, target: Target) -> Task:
    """Load one of ``MODELS`` with its data; what has to be made is written to ``folder``."""
    request = Request(
        model=DIGITS / "digits.onnx",
        data=str(DIGITS / "calibration.npz"),
        evaluation_data=str(DIGITS / "evaluation.npz"),
        engine=target.engine,
        engine_options=target.options,
        gates=(gate,),
        preset=effort.preset,
    )
    if name != DIGITS_NAME:
        found = case(name, effort.samples, folder)
        request = replace(
            request,
            model=found.path,
            shape_ranges={tensor: ShapeRange.fixed(s) for tensor, s in found.shapes.items()},
            data=str(found.sources["calibration"]),
            evaluation_data=str(found.sources["evaluation"]),
        )
    return prepare(request, QuietObserver())


def search(task: Task, bench: TrialSetup, sampler: str, seed: int, effort: Effort) -> Searched:
    """Run one study in a fresh folder, without anything that other runs measured."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        known = _OWN.get(sampler, "tpe")
        request = replace(
            task.request, sampler=known, seed=seed, budget=effort.budget, output=Path(folder)
        )
        own = replace(task, request=request)
        study = open_study(own)
        if sampler == known:
            device = Device(own, bench)
            stopped = run_search([device], study, QuietObserver(), "interrupted", show).stopped
            probes = probes_of(study)
        else:
            rival, probes = _rival(sampler, own, bench)
            budget = effort.budget - probes
            runner = TrialRunner(
                bench.candidates, bench.evaluator, bench.baseline, own.inputs, own.preset.rounds
            )
            stopped = study.run(rival, runner, budget=budget, deadline=None, on_trial=show)
        records = tuple(study.records())
    counted = 0 if sampler == "surrogate" else probes
    best = {}
    raced: dict[tuple[str, ...], Choices] = {}
    for n in effort.checkpoints:
        best[n] = best_of(records[: max(0, n - counted)], task, bench, raced)
    return Searched(sampler, seed, time.monotonic() - start, records, stopped, best, probes)


def show(record: TrialRecord) -> None:
    """A line for a trial, so that a run that is cut off has told what it found."""
    ratio = "refused" if record.ratio is None else f"{record.ratio:.3f}"
    holds = "holds the gate" if record.feasible else "does not hold the gate"
    print(f"{record.number} {record.kind}: {ratio}, {holds}, {record.seconds:.0f} s", flush=True)


def _rival(sampler: str, task: Task, bench: TrialSetup) -> tuple[Proposer, int]:
    """A search that is not placer's, and how often it has measured noise beside its trials."""
    space = task.space
    if sampler == "tpe from the same starts":
        return Started(space, TpeProposer(space, task.request.seed)), 0
    budget = task.request.budget or 0
    groups = list(space.groups)
    if len(groups) > budget // 2:  # The order of the rest is not known: they come last.
        groups = groups[: budget // 2]
    noise = {
        group.name: bench.noise({**space.floats, group.name: space.defaults[group.name]})
        for group in groups
    }
    return Greedy(space, noise, budget - len(noise)), len(noise)


@dataclass(frozen=True, eq=False)
class Started:
    """Another search, after the placements that placer starts with."""

    space: Space
    then: Proposer

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``Proposer``."""
        tried = {trial.placement_id for trial in trials}
        for start in seed_proposals(self.space):
            if self.space.placement(start.choices).id not in tried:
                return start
        return self.then.propose(trials)


@dataclass(frozen=True, eq=False)
class Greedy:
    """Groups quantized by sensitivity, those that make the least noise first.

    ``noise``: of each group alone. ``trials``: so many numbers of groups are tried, spread evenly
    from all to none.
    """

    space: Space
    noise: Mapping[str, float]
    trials: int

    def propose(self, trials: Sequence[TrialRecord]) -> Proposal | None:
        """See ``Proposer``."""
        names = sorted(self.space.defaults, key=lambda name: self.noise.get(name, math.inf))
        tried = {trial.placement_id for trial in trials}
        for count in np.linspace(len(names), 0, self.trials).round().astype(int):
            chosen = {name: self.space.defaults[name] for name in names[:count]}
            choices = {**self.space.floats, **chosen}
            if self.space.placement(choices).id not in tried:
                return Proposal(f"{count} groups", choices)
        return None


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


def run_model(
    name: str, effort: Effort, gate: str, console: Console, target: Target
) -> dict[str, Any]:
    """All samplers and seeds on one model, and the measurement at the end."""
    with tempfile.TemporaryDirectory() as folder:
        task = make_task(name, effort, gate, Path(folder), target)
        bench = set_up(task, QuietObserver())
        found = []
        # Seeds outside, so that what drifts with time drifts for all samplers alike.
        for seed in range(effort.first_seed, effort.first_seed + effort.seeds):
            for sampler in effort.samplers:
                found.append(search(task, bench, sampler, seed, effort))
                last = found[-1]
                console.print(
                    f"{name}, seed {seed}, {sampler}: {len(last.records)} trials, {last.stopped}, "
                    f"{last.seconds:.0f} s"
                )
        start = time.monotonic()
        ratios = confirm(task, bench, found, effort)
        console.print(f"{name}: {len(ratios)} models confirmed in {time.monotonic() - start:.0f} s")
    return {
        "device": task.engine.device,
        "clock": task.engine.clock,
        "file": task.model.path.name,
        "input_shapes": {n: list(shape) for n, shape in task.model.input_shapes.items()},
        "decided_sites": sum(len(group.sites) for group in task.space.groups),
        "groups": len(task.space.groups),
        "gate": gate,
        "studies": [_study(task, searched, ratios) for searched in found],
        "confirmed": {name: asdict(ratio) for name, ratio in ratios.items()},
    }


def _id(task: Task, choices: Choices | None) -> str:
    return EMPTY.id if choices is None else task.space.placement(choices).id


def _study(task: Task, found: Searched, ratios: Mapping[str, Ratio]) -> dict[str, Any]:
    best = {}
    for trials, choices in found.best.items():
        name = _id(task, choices)
        best[trials] = {
            "placement": name,
            "choices": None if choices is None else dict(choices),
            "confirmed": asdict(ratios[name]),
        }
    return {
        "sampler": found.sampler,
        "seed": found.seed,
        "seconds": found.seconds,
        "stopped": found.stopped,
        "evaluations": {"trials": len(found.records), "noise": found.probes},
        "best": best,
        "trials": [_trial(record) for record in found.records],
    }


def _trial(record: TrialRecord) -> dict[str, Any]:
    ratio = None if record.measurement is None else record.measurement.ratio
    return {
        "number": record.number,
        "kind": record.kind,
        "placement": record.placement_id,
        "ratio": record.ratio,
        "interval": None if ratio is None else [ratio.low, ratio.high],
        "noise": record.noise,
        "feasible": record.feasible,
        "ruled_out": record.ruled_out,
        "error": record.error,
        "skipped": len(record.skipped),
        "seconds": record.seconds,
    }


def again(paths: Sequence[Path], target: Target) -> dict[str, Any]:
    """``merged``, with the best of all runs measured in one process for each model."""
    document = merged(paths)
    effort = Effort(**{**document["effort"], "samplers": tuple(document["effort"]["samplers"])})
    for name, model in document["models"].items():
        with tempfile.TemporaryDirectory() as folder:
            task = make_task(name, effort, model["gate"], Path(folder), target)
            bench = set_up(task, QuietObserver())
            found = [
                Searched(
                    "", 0, 0.0, (), "", {int(n): b["choices"] for n, b in s["best"].items()}, 0
                )
                for s in model["studies"]
            ]
            ratios = confirm(task, bench, found, effort)
        model["confirmed"] = {name: asdict(ratio) for name, ratio in ratios.items()}
        for study in model["studies"]:
            for best in study["best"].values():
                # Another pack may make another placement of the same choices.
                best["placement"] = _id(task, best["choices"])
                best["confirmed"] = model["confirmed"][best["placement"]]
    return document


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep log messages of trials off the terminal."""
    logger = logging.getLogger("placer")
    before = logger.propagate
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = before


def parse() -> argparse.Namespace:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--engine", default="onnxruntime")
    parser.add_argument("--engine-option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS), choices=SAMPLERS)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--samples", type=int, default=32, help="images, but for digits")
    parser.add_argument("--copies", type=int, default=3, help="builds of each in the last run")
    parser.add_argument("--rounds", type=int, default=61, help="of the last run")
    parser.add_argument("--gate", default=GATE)
    parser.add_argument("--merge", type=Path, nargs="+", help="files of earlier runs; runs nothing")
    parser.add_argument("--again", action="store_true", help="merge, and measure the best again")
    parser.add_argument("--brief", action="store_true", help="merge, and leave placements out")
    parser.add_argument("--quick", action="store_true", help="little effort, to see that it runs")
    return parser.parse_args()


def run_all(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """All models; what is done is written after each."""
    seeds = (arguments.first_seed, arguments.seeds)
    options = dict(option.split("=", 1) for option in arguments.engine_option)
    target = Target(arguments.engine, options)
    samplers = tuple(arguments.samplers)
    effort = Effort(
        *seeds,
        arguments.budget,
        arguments.samples,
        arguments.rounds,
        arguments.copies,
        "default",
        samplers,
    )
    if arguments.quick:
        budget = min(arguments.budget, 14)
        effort = Effort(arguments.first_seed, 1, budget, 8, 21, 2, "quick", samplers)
    document: dict[str, Any] = {
        "engine": target.engine,
        "engine_options": dict(target.options),
        "effort": asdict(effort),
        "versions": dict(versions()),
        "models": {},
    }
    start = time.monotonic()
    with _quiet():
        for name in arguments.models:
            found = run_model(name, effort, arguments.gate, console, target)
            document["models"][name] = found
            document["seconds"] = time.monotonic() - start
            write_json(arguments.json, document)
    # As it is read again: with texts as keys.
    return dict(json.loads(arguments.json.read_text(encoding="utf-8")))


def main() -> None:
    """Run the benchmark, print a table and write JSON."""
    arguments = parse()
    console = Console(width=120)
    if arguments.merge:
        options = dict(option.split("=", 1) for option in arguments.engine_option)
        target = Target(arguments.engine, options)
        document = again(arguments.merge, target) if arguments.again else merged(arguments.merge)
        write_json(arguments.json, brief(document) if arguments.brief else document)
    else:
        document = run_all(arguments, console)
    console.print(table(document))


if __name__ == "__main__":
    main()
