"""Top-1 that quantized networks keep, on a labelled task that tells them apart.

The task: characters (digits, upper and lower case: 62 classes) drawn in a random size, place and
slant over stripes, under noise. The network: MobileNetV2's inverted residuals with ReLU6 and few
channels, trained here. Many characters look alike, so small errors cost classes, and depthwise
layers with folded batch normalization are known to lose much by quantization.

    python benchmarks/glyphs.py train glyphs/        # needs torch; a few minutes
    python benchmarks/glyphs.py compare glyphs/ --engine onnxruntime --json glyphs.json

``compare`` quantizes with quantize_static (as it comes, and with a scale per channel) and NNCF (as
it comes) on the samples that placer calibrates with, runs placer with the gate
``top1_drop<=0.01``, and judges all on test samples that no one has seen, with times from one
interleaved run.
"""

from __future__ import annotations

import argparse
import json
import logging
import string
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont
from recovery_fronts import Peers
from rich.console import Console
from rich.table import Table

from placer.calibration.dataset import load_dataset
from placer.common.statistics import paired_ratio
from placer.engines.base import Compiled
from placer.optimizer.observer import QuietObserver
from placer.optimizer.request import Request
from placer.optimizer.run import optimize
from placer.optimizer.task import prepare
from placer.optimizer.trial_setup import set_up

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
SIDE = 32
# First seeds of the parts; a sample is drawn from a seed of its own.
PARTS = {"train": (0, 14_000), "calibration": (100_000, 256), "evaluation": (200_000, 2_000)}
TEST = (300_000, 4_000)


def drawn(seed: int) -> tuple[np.ndarray, int]:
    """One image, shape (1, SIDE, SIDE), of mean about 0, and its class."""
    rng = np.random.default_rng(seed)
    label = int(rng.integers(len(CHARACTERS)))
    image = Image.new("L", (SIDE, SIDE), 0)
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=int(rng.integers(18, 28)))
    at = (int(rng.integers(4, 12)), int(rng.integers(-2, 6)))
    draw.text(at, CHARACTERS[label], fill=255, font=font)
    angle, shear = float(rng.uniform(-18, 18)), float(rng.uniform(-0.25, 0.25))
    image = image.rotate(angle, Image.Resampling.BILINEAR)
    image = image.transform(
        (SIDE, SIDE),
        Image.Transform.AFFINE,
        (1, shear, -shear * SIDE / 2, 0, 1, 0),
        Image.Resampling.BILINEAR,
    )
    glyph = np.asarray(image, np.float32) / 255 * rng.uniform(0.35, 1.0)
    x, y = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
    waves, phase = rng.uniform(-0.6, 0.6, 2), rng.uniform(0, 2 * np.pi)
    stripes = 0.25 * np.sin(waves[0] * x + waves[1] * y + phase)
    values = glyph + stripes + rng.normal(0, 0.12, (SIDE, SIDE))
    return ((values - 0.15) * 3)[None].astype(np.float32), label


def samples(first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (count, 1, SIDE, SIDE) and labels (count,)."""
    found = [drawn(first + i) for i in range(count)]
    return np.stack([image for image, _ in found]), np.array([label for _, label in found])


def train(folder: Path, epochs: int) -> None:
    """Write glyphs.onnx, calibration.npz, evaluation.npz and test.npz."""
    import torch  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)

    def conv(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Module:
        layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        return nn.Sequential(layer, nn.BatchNorm2d(outputs))

    class Block(nn.Module):
        """An inverted residual: wide, depthwise, narrow."""

        def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
            super().__init__()
            wide = inputs * expansion
            self.same = stride == 1 and inputs == outputs
            self.layers = nn.Sequential(
                conv(inputs, wide, 1),
                nn.ReLU6(),
                conv(wide, wide, 3, stride, wide),
                nn.ReLU6(),
                conv(wide, outputs, 1),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.layers(x) if self.same else self.layers(x)

    plan = [
        (16, 16, 1, 2),
        (16, 24, 2, 4),
        (24, 24, 1, 4),
        (24, 32, 2, 4),
        (32, 32, 1, 4),
        (32, 48, 1, 4),
        (48, 48, 1, 4),
    ]
    network = nn.Sequential(
        conv(1, 16, 3, 2),
        nn.ReLU6(),
        *(Block(*line) for line in plan),
        conv(48, 128, 1),
        nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, len(CHARACTERS)),
    )
    images, labels = map(torch.from_numpy, samples(*PARTS["train"]))
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3, weight_decay=1e-4)
    steps = epochs * (len(images) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, steps)
    for epoch in range(epochs):
        network.train()
        order, total = torch.randperm(len(images)), 0.0
        for start in range(0, len(images) - 127, 128):
            chosen = order[start : start + 128]
            loss = nn.functional.cross_entropy(network(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        print(f"epoch {epoch}: loss {total / (len(images) // 128):.3f}", flush=True)
    network.eval()
    torch.onnx.export(
        network,
        (torch.zeros(1, 1, SIDE, SIDE),),
        folder / "glyphs.onnx",
        dynamo=False,
        input_names=["image"],
        output_names=["scores"],
        opset_version=17,
    )
    for part, where in (*list(PARTS.items())[1:], ("test", TEST)):
        values, classes = samples(*where)
        np.savez(folder / f"{part}.npz", image=values, labels=classes)


def compare(folder: Path, engine: str, budget: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Top-1 on the test samples, and time over the float model's, of each tool's file."""
    request = Request(
        model=folder / "glyphs.onnx",
        output=folder / f"placer-{engine}",
        data=str(folder / "calibration.npz"),
        evaluation_data=str(folder / "evaluation.npz"),
        gates=("top1_drop<=0.01",),
        engine=engine,
        preset="quick",
        budget=budget,
        threads=1,
        recover=("auto",),
    )
    task = prepare(request, QuietObserver())
    result = optimize(request, QuietObserver())
    if result.recovery is not None:
        print([(step.step, step.kept, step.held_back_sqnr) for step in result.recovery.steps])
    setup = set_up(task, QuietObserver())
    placement = task.space.placement(task.space.defaults)
    runs: dict[str, Compiled] = {
        "float": setup.baseline,
        "placer": task.engine.compile(onnx.load(result.optimized_model), folder),
        "placer, default placement": setup.candidates.compile_copies(placement, 1)[0],
    }
    peers = Peers(task, task.model.input_shapes, folder)
    for name, make in (
        ("quantize_static", partial(peers.quantize_static, per_channel=False)),
        ("quantize_static, per channel", peers.quantize_static),
        ("nncf", peers.nncf),
        ("modelopt", peers.modelopt),
    ):
        try:
            runs[name] = task.engine.compile(make(), folder)
        except Exception as error:  # Whatever a peer raises is its result.
            print(name, "refused:", f"{type(error).__name__}: {error}"[:200])
    test = load_dataset(str(folder / "test.npz"), task.model)
    seconds = task.engine.measure(list(runs.values()), task.inputs, rounds)
    rows = {}
    for column, (name, compiled) in enumerate(runs.items()):
        right = [
            int(np.argmax(compiled.run(sample.inputs)["scores"])) == int(sample.labels[0])
            for sample in test
            if sample.labels is not None
        ]
        found = paired_ratio(seconds[:, column], seconds[:, 0])
        rows[name] = {
            "top1": float(np.mean(right)),
            "ratio_to_float": [found.median, found.low, found.high],
        }
        print(name, rows[name], flush=True)
    return rows


def main() -> None:
    """Train, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("train")
    one.add_argument("folder", type=Path)
    one.add_argument("--epochs", type=int, default=10)
    two = commands.add_parser("compare")
    two.add_argument("folder", type=Path)
    two.add_argument("--engine", default="onnxruntime", choices=["onnxruntime", "openvino"])
    two.add_argument("--budget", type=int, default=24)
    two.add_argument("--rounds", type=int, default=101)
    two.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "train":
        train(arguments.folder, arguments.epochs)
        return
    logging.disable(logging.WARNING)
    rows = compare(arguments.folder, arguments.engine, arguments.budget, arguments.rounds)
    drawn = Table(title=f"glyphs on {arguments.engine}: top-1 of {TEST[1]} test samples")
    for column in ("variant", "top-1, %", "of float's time (95%)"):
        drawn.add_column(column)
    for name, row in rows.items():
        ratio = "{:.3f} ({:.3f} to {:.3f})".format(*row["ratio_to_float"])
        drawn.add_row(name, f"{100 * row['top1']:.1f}", ratio)
    Console(width=100).print(drawn)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
