"""Whether recovery makes a small network worse on data that no decision has seen, by seed.

The default placement of each network on one engine, with ``--recover auto``: steps learn from
calibration data and are kept on calibration data held back, and their file becomes the result if it
scores better on the evaluation data, as a run decides it. Both decisions are judged on further
samples: on many where a network is sure of most, since its noise is that of the few others. A seed
draws all three sets anew. SQNR in dB of the worst part of an output.

    python -m benchmarks.recovery.seeds digits orientation --seeds 5 --json seeds.json
    python -m benchmarks.recovery.seeds cls --unseen 400
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.recovery.methods import NETWORKS, prepared, subject
from placer.accuracy.evaluator import Evaluator
from placer.calibration.dataset import load_dataset
from placer.common.files import write_text
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.optimizer.observer import QuietObserver
from placer.optimizer.outcome.recovered import recover
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import set_up
from placer.recovery.crossfit import score, worst_db
from placer.recovery.recover import steps_of

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
# Judged by more than this, in dB, a file is another one.
WORSE = 0.2


def parts(
    name: str, folder: Path, seed: int, counts: tuple[int, int, int]
) -> tuple[Path, dict[str, tuple[int, ...]]]:
    """The model and its input shapes; its three sets of samples are in ``folder``.

    ``counts``: samples to calibrate with, to evaluate on, and that nothing sees.
    """
    calibration, evaluation, unseen = counts
    if name != "digits":
        path, shapes = subject(name, folder, 96, seed, (calibration, evaluation + unseen))
        with np.load(folder / "evaluation.npz") as file:
            samples = dict(file)
    else:
        path, shapes = DIGITS / "digits.onnx", {"image": (1, 1, 32, 32)}
        with np.load(DIGITS / "evaluation.npz") as file:
            images = file["image"]
        order = np.random.default_rng(seed).permutation(len(images))
        np.savez(folder / "calibration.npz", image=images[order[:calibration]])
        samples = {"image": images[order[calibration : calibration + evaluation + unseen]]}
    for file, part in (("evaluation", slice(evaluation)), ("unseen", slice(evaluation, None))):
        np.savez(folder / f"{file}.npz", **{key: all_[part] for key, all_ in samples.items()})
    return path, dict(shapes)


def row_of(task: Task, folder: Path) -> dict[str, Any]:
    """What recovery keeps, and the SQNR on unseen samples before and after."""
    setup = set_up(task, QuietObserver())
    placement = task.space.placement(task.space.defaults)
    found = recover(task, setup, placement, steps_of(("auto",)), QuietObserver())
    kept = [step.step for step in found.part.steps if step.kept]
    row: dict[str, Any] = {"kept": kept}
    reference = OnnxRuntimeModel(task.model.proto, task.model.base_dir, 1).run
    unseen = load_dataset(str(folder / "unseen.npz"), task.model)
    judges = {
        name: Evaluator(task.model.graph, (), data, reference)
        for name, data in (("evaluation", task.evaluation_data), ("unseen", unseen))
    }
    plain = setup.candidates.runner(placement)
    noises = {name: judge.evaluate(plain).noises for name, judge in judges.items()}
    row["before"] = worst_db(noises["unseen"])
    row["gain"] = row["gain_of_run"] = 0.0
    if found.candidates is not None:
        changed = found.candidates.runner(placement)
        after = {name: judge.evaluate(changed).noises for name, judge in judges.items()}
        row["gain"] = worst_db(after["unseen"]) - row["before"]
        if score(after["evaluation"]) > score(noises["evaluation"]):
            row["gain_of_run"] = row["gain"]
    return row


def table(name: str, engine: str, rows: list[dict[str, Any]]) -> Table:
    """The seeds of one network."""
    drawn = Table(title=f"{name} on {engine}")
    for column in ("seed", "before, dB", "kept on calibration data", "gain, dB", "of a run, dB"):
        drawn.add_column(column)
    for row in rows:
        figures = (f"{row[key]:+.1f}" for key in ("gain", "gain_of_run"))
        kept = ", ".join(row["kept"]) or "nothing"
        drawn.add_row(str(row["seed"]), f"{row['before']:.1f}", kept, *figures)
    worse = [sum(row[key] < -WORSE for row in rows) for key in ("gain", "gain_of_run")]
    drawn.caption = f"worse by more than {WORSE} dB: {worse[0]}, as a run decides {worse[1]}"
    return drawn


def main() -> None:
    """Print a table for each network and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="+", choices=["digits", *NETWORKS])
    parser.add_argument("--engine", default="onnxruntime", choices=["onnxruntime", "openvino"])
    parser.add_argument("--preset", default="quick", choices=["quick", "default", "thorough"])
    parser.add_argument("--calibration", type=int, default=32, help="samples")
    parser.add_argument("--evaluation", type=int, default=32, help="samples")
    parser.add_argument("--unseen", type=int, help="samples to judge with; as many as to evaluate")
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 0")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    found = []
    for name in arguments.networks:
        rows: list[dict[str, Any]] = []
        found.append({"network": name, "engine": arguments.engine, "rows": rows})
        for seed in range(arguments.seeds):
            with tempfile.TemporaryDirectory() as text:
                evaluation = arguments.evaluation
                counts = (arguments.calibration, evaluation, arguments.unseen or evaluation)
                path, shapes = parts(name, Path(text), seed, counts)
                task = prepared(path, shapes, Path(text), arguments.preset, arguments.engine)
                rows.append({"seed": seed, **row_of(task, Path(text))})
            print(name, rows[-1], flush=True)
            if arguments.json is not None:
                write_text(arguments.json, json.dumps(found, indent=2) + "\n")
        Console(width=120).print(table(name, arguments.engine, rows))


if __name__ == "__main__":
    main()
