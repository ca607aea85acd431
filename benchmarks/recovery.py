"""What accuracy each recovery step gains at equal layers, on data that it has not seen.

Each network's default placement, as TensorRT's or ONNX Runtime's rules have it, is simulated on
ONNX Runtime's CPU provider with the ranges of every calibration method, and with those that
``--calibration auto`` chooses. Networks: PP-OCRv4 detection and recognition from the PyPI package
rapidocr-onnxruntime on rendered text, detectors and a classifier with random weights on random
images. Only accuracy is looked at: layers and latency are the same.

    python benchmarks/recovery.py det rec yolox --pack tensorrt --json recovery.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from ort_real_models import FOLDER, SUBJECTS, render
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr
from topologies import mobilenet_v2, yolov8n, yolox

from placer.accuracy.evaluator import Evaluator
from placer.accuracy.metrics import decibels
from placer.common.shapes import ShapeRange
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.optimizer.calibrated import Calibrated, calibration_of, choose_ranges, ranges_of
from placer.optimizer.observer import QuietObserver
from placer.optimizer.request import Request
from placer.optimizer.task import Task, prepare
from placer.qdq import Inserter
from placer.quantization import Ranges
from placer.recovery.simulation import Simulation

RANDOM = {"yolox": yolox, "yolov8n": yolov8n, "mobilenet_v2": mobilenet_v2}
SIZE = 160
CALIBRATION, EVALUATION = 128, 64


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


def subject(
    name: str, folder: Path, size: int, seed: int
) -> tuple[Path, Mapping[str, tuple[int, ...]]]:
    """The model, and its input's shape; calibration.npz and evaluation.npz are in ``folder``."""
    if name in RANDOM:
        path, key, shape = folder / f"{name}.onnx", "image", (1, 3, size, size)
        onnx.save(RANDOM[name](size), path)
        draws = [images(CALIBRATION, size, seed), images(EVALUATION, size, seed + 1)]
    else:
        found = next(one for one in SUBJECTS if one.name == name)
        path, shape = FOLDER / found.file, (1, 3, found.height, found.width)
        key = onnx.load(path, load_external_data=False).graph.input[0].name
        starts = (seed * 100_000, seed * 100_000 + 50_000)
        draws = [
            np.stack([render(found, start + index) for index in range(count)])
            for start, count in zip(starts, (CALIBRATION, EVALUATION), strict=True)
        ]
    for file, values in zip(("calibration", "evaluation"), draws, strict=True):
        np.savez(folder / f"{file}.npz", **{key: values})
    return path, {key: shape}


def task_of(name: str, pack: str, preset: str, folder: Path, size: int, seed: int) -> Task:
    """A run of the network with the scheme of ``pack``, before its first trial."""
    path, shapes = subject(name, folder, size, seed)
    engine = {"tensorrt": ("fusion-model", "a100"), "onnxruntime": ("onnxruntime", None)}[pack]
    request = Request(
        model=path,
        output=folder / "out",
        shape_ranges={key: ShapeRange.fixed(shape) for key, shape in shapes.items()},
        data=str(folder / "calibration.npz"),
        evaluation_data=str(folder / "evaluation.npz"),
        engine=engine[0],
        gpu=engine[1],
        preset=preset,  # type: ignore[arg-type]
    )
    return prepare(request, QuietObserver())


def rows_of(task: Task) -> tuple[list[Row], Calibrated, float]:
    """Each method for all tensors, then the choice; what the choice is and its seconds."""
    inserter = Inserter(task.model, task.pack.manifest.scheme)
    reference = OnnxRuntimeModel(task.model.proto, task.model.base_dir, 1).run
    data = calibration_of(task, QuietObserver())
    start = time.process_time()
    chosen = choose_ranges(task, inserter, data, reference, QuietObserver())
    seconds = time.process_time() - start
    placement = task.space.placement(task.space.defaults)
    simulation = Simulation(inserter, placement, chosen.ranges)
    unseen = Evaluator(task.model.graph, (), task.evaluation_data, reference)

    def row(name: str, ranges: Ranges) -> Row:
        noises = unseen.evaluate(simulation.run(ranges)).noises
        parts = {part: round(decibels(noise), 3) for part, noise in noises.items()}
        whole = min(parts[output] for output in task.model.graph.outputs if output in parts)
        return Row(name, whole, min(parts.values()), parts)

    methods = chosen.part.sqnr_by_method
    rows = [row(name, ranges_of(task, data.whole, name)) for name in methods]
    return [*rows, row("chosen", chosen.ranges)], chosen, seconds


def main() -> None:
    """Print a table for each network and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="+", choices=["det", "rec", "cls", *RANDOM])
    parser.add_argument("--pack", default="tensorrt", choices=["tensorrt", "onnxruntime"])
    parser.add_argument("--preset", default="default", choices=["quick", "default", "thorough"])
    parser.add_argument("--size", type=int, default=SIZE, help="of random networks' images")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: list[dict[str, Any]] = []
    for name in arguments.networks:
        with tempfile.TemporaryDirectory() as folder:
            size, seed = arguments.size, arguments.seed
            task = task_of(name, arguments.pack, arguments.preset, Path(folder), size, seed)
            rows, chosen, seconds = rows_of(task)
        part = chosen.part
        ranked = list(part.sqnr_by_method.values())
        agreement = spearmanr(ranked, [row.worst for row in rows[:-1]]).statistic
        used = part.tensors_by_method or Counter({part.method: len(chosen.ranges)})
        table = Table(
            title=f"{name}, pack {arguments.pack}, preset {arguments.preset}",
            caption=f"rank correlation {agreement:.2f}; {dict(used)}; {seconds:.0f} s of CPU time",
        )
        for column in ("ranges", "whole, dB", "worst part, dB"):
            table.add_column(column)
        for row in rows:
            table.add_row(row.ranges, f"{row.whole:.2f}", f"{row.worst:.2f}")
        Console().print(table)
        entry = {"network": name, "pack": arguments.pack, "preset": arguments.preset}
        rows_json = [vars(row) for row in rows]
        found.append(
            {**entry, "rows": rows_json, "rank_correlation": float(agreement), "cpu_s": seconds}
            | {"part": part.model_dump()}
        )
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
