r"""Ways to search on measured latency: the best placement after 10, 20 and 40 trials.

On ONNX Runtime, OpenVINO or another engine: placer's own search (surrogate); TPE, CMA-ES and local
search from the placements that placer starts with; greedy by sensitivity, which bisects how many of
the quietest groups meet the gate; TPE by itself; random; and the region scheme, from nothing and
from the pack's default (``measured_rivals``). Noise that is measured beside the trials, by placer
and by greedy, is counted.

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

Where the searches of a model and a seed ran in several processes, some of the ``--samplers`` in
each, ``--again`` measures what all of them found in one, with its ``--rounds`` and ``--copies``.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.command_line import parser_of, write_json
from benchmarks.networks.real import NAMES, case
from benchmarks.search.measured_results import brief, merged, table
from benchmarks.search.measured_rivals import SAMPLERS
from benchmarks.search.measured_search import Effort, Searched, confirm, search
from placer.common.shapes import ShapeRange
from placer.common.statistics import Ratio
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import set_up
from placer.quantization import EMPTY
from placer.results.result import versions
from placer.search.records import TrialRecord
from placer.search.space import Choices

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
DIGITS_NAME = "digits"
MODELS = (DIGITS_NAME, *NAMES)
GATE = "sqnr>=15"


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


def again(paths: Sequence[Path], target: Target, rounds: int, copies: int) -> dict[str, Any]:
    """``merged``, with the best of all runs measured in one process."""
    document = merged(paths)
    document["effort"].update(rounds=rounds, copies=copies)
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
        document = merged(arguments.merge)
        if arguments.again:
            document = again(arguments.merge, target, arguments.rounds, arguments.copies)
        write_json(arguments.json, brief(document) if arguments.brief else document)
    else:
        document = run_all(arguments, console)
    console.print(table(document))


if __name__ == "__main__":
    main()
