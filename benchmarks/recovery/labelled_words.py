"""Top-1 of a small network with labels, by tool and speed: spoken words that are synthesized.

The network has its features inside, as voice models often do: a Conv whose weights are sines and
cosines, their squares, a mel filterbank and a logarithm, and behind it a residual network that is
trained here, in a few minutes on one core. Loudness varies by 40 dB, which eight bits do not hold
before the logarithm. Words are triples of six sounds, many of them minimal pairs, under noise.
Training, calibration, evaluation and test samples are disjoint; gates look at the evaluation
samples, the table at the test samples, which neither placer nor another tool has seen.

    pip install torch nncf 'nvidia-modelopt[onnx]'
    python -m benchmarks.recovery.labelled_words make words/
    python -m benchmarks.recovery.labelled_words compare words/ --engine onnxruntime
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.recovery.front_peers import Peers
from placer.calibration.dataset import load_dataset
from placer.common.statistics import paired_ratio
from placer.engines.base import Compiled
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.run import optimize
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import set_up

RATE, SAMPLES, WINDOW, HOP, MELS = 8000, 4096, 128, 64, 40
# Two formants of each sound, in Hz, at its beginning and end.
SOUNDS = ((300, 2300), (600, 1700), (750, 1200), (500, 900), (350, 1100), (450, 1900))
WORDS = tuple(itertools.islice(itertools.permutations(range(6), 3), 0, 120, 5))
COUNTS = {"train": 6000, "calibration": 64, "evaluation": 512, "test": 2048}


def spoken(word: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """One word, shape (1, SAMPLES), float32: gliding formants over a pitch, in noise."""
    time_s = np.arange(SAMPLES) / RATE
    ends = np.sort(rng.uniform(0.9, 1.1, 4) * np.linspace(0.05, 0.95, 4)) * SAMPLES
    middles = (ends[:-1] + ends[1:]) / 2
    pitch = rng.uniform(90, 220)
    sound = np.zeros(SAMPLES)
    voices = [np.interp(np.arange(SAMPLES), middles, [SOUNDS[s][i] for s in word]) for i in (0, 1)]
    scale = rng.uniform(0.9, 1.1)  # Length of the vocal tract.
    for harmonic in range(1, int(RATE / 2 / pitch)):
        found = harmonic * pitch
        level = sum(
            np.exp(-(((found - voice * scale) / 130) ** 2)) / (1 + i)
            for i, voice in enumerate(voices)
        )
        sound += level * np.sin(2 * np.pi * found * time_s + rng.uniform(0, 2 * np.pi))
    sound *= (np.arange(SAMPLES) > ends[0]) & (np.arange(SAMPLES) < ends[-1])
    noise = rng.normal(size=SAMPLES) * np.std(sound) * 10 ** (-rng.uniform(-6, 12) / 20)
    loud = 10 ** rng.uniform(-2, 0) / np.abs(sound).max()
    mixed: np.ndarray = (sound + noise) * loud
    return mixed[None].astype(np.float32)


def samples(name: str, seed: int) -> dict[str, np.ndarray]:
    """Input ``wave``, shape (count, 1, SAMPLES), and ``labels``, shape (count, 1)."""
    rng = np.random.default_rng([seed, *name.encode()])
    labels = rng.integers(0, len(WORDS), COUNTS[name])
    waves = np.stack([spoken(WORDS[label], rng) for label in labels])
    return {"wave": waves, "labels": labels[:, None]}


def filters() -> tuple[np.ndarray, np.ndarray]:
    """Windowed sines and cosines, (2 x bins, 1, WINDOW), and mel filters, (MELS, bins, 1)."""
    bins = WINDOW // 2
    phase = 2 * np.pi * np.outer(np.arange(1, bins + 1), np.arange(WINDOW)) / WINDOW
    window = np.hanning(WINDOW)
    waves = np.concatenate([np.cos(phase), np.sin(phase)]) * window
    edges = 700 * (np.exp(np.linspace(0, np.log(1 + RATE / 2 / 700), MELS + 2)) - 1)
    hertz = np.arange(1, bins + 1) * RATE / WINDOW
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    mel = np.minimum((hertz - low) / (middle - low), (high - hertz) / (high - middle))
    mel = np.maximum(mel, 0) + 0.02 * np.exp(-(((hertz - middle) / 60) ** 2))
    return waves[:, None].astype(np.float32), mel[..., None].astype(np.float32)


def make(folder: Path, epochs: int, seed: int) -> None:
    """Write words.onnx, trained, and calibration.npz, evaluation.npz and test.npz."""
    import torch  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    torch.manual_seed(seed)
    torch.set_num_threads(1)

    class Residual(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
            )

        def forward(self, x: Any) -> Any:
            return torch.relu(x + self.body(x))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, values in zip(("waves", "mel"), filters(), strict=True):
                self.register_buffer(name, torch.from_numpy(values))
            self.body = nn.Sequential(
                nn.Conv2d(1, 32, 5, stride=2, padding=2, bias=False),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(64),
                nn.ReLU(),
                Residual(64),
                Residual(64),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(64, len(WORDS)),
            )

        def features(self, wave: Any) -> Any:
            parts = nn.functional.conv1d(wave, self.waves, stride=HOP)
            real, imaginary = parts.split(WINDOW // 2, 1)
            power = nn.functional.conv1d(real * real + imaginary * imaginary, self.mel)
            return (torch.log(power + 1e-7).unsqueeze(1) + 5) / 5

        def forward(self, wave: Any) -> Any:
            return self.body(self.features(wave))

    folder.mkdir(parents=True, exist_ok=True)
    train = samples("train", seed)
    network = Network()
    rate, size = 2e-3, 64
    optimizer = torch.optim.AdamW(network.parameters(), rate, weight_decay=1e-3)
    with torch.no_grad():
        features = torch.cat(
            [network.features(torch.from_numpy(part)) for part in np.split(train["wave"], 20)]
        )
    labels = torch.from_numpy(train["labels"][:, 0])
    steps = epochs * (len(labels) // size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps)
    for epoch in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(labels))[: steps // epochs * size].split(size):
            loss = nn.functional.cross_entropy(network.body(features[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss) / (steps // epochs)
        print(f"epoch {epoch}: loss {total:.3f}", flush=True)
    network.eval()
    torch.onnx.export(
        network,
        (torch.from_numpy(train["wave"][:1]),),
        folder / "words.onnx",
        input_names=["wave"],
        output_names=["logits"],
        opset_version=17,
        dynamo=False,
    )
    for name in ("calibration", "evaluation", "test"):
        np.savez(folder / f"{name}.npz", allow_pickle=False, **samples(name, seed))


def variants(folder: Path, engine: str, budget: int, seed: int) -> tuple[Task, dict[str, Compiled]]:
    """What each tool makes of the network with the same calibration samples, compiled."""
    request = Request(
        model=folder / "words.onnx",
        output=folder / f"placer-{engine}",
        data=str(folder / "calibration.npz"),
        evaluation_data=str(folder / "evaluation.npz"),
        gates=("top1_drop<=0.01",),
        engine=engine,
        preset="quick",
        budget=budget,
        seed=seed,
        threads=1,
    )
    task = prepare(request, QuietObserver())
    result = optimize(request, QuietObserver())
    setup = set_up(task, QuietObserver())
    placement = task.space.placement(task.space.defaults)
    compiled: dict[str, Compiled] = {
        "float": setup.baseline,
        "placer": task.engine.compile(onnx.load(result.optimized_model), folder),
        "placer, default placement": setup.candidates.compile_copies(placement, 1)[0],
    }
    peers = Peers(task, task.model.input_shapes, folder)
    for name, quantize in (
        ("quantize_static", partial(peers.quantize_static, per_channel=False)),
        ("quantize_static, per channel", peers.quantize_static),
        ("nncf", peers.nncf),
        ("nncf, accuracy control", partial(controlled, task, peers)),
        ("modelopt", peers.modelopt),
    ):
        try:
            compiled[name] = task.engine.compile(quantize(), folder)
        except Exception as error:  # Whatever a peer raises is its result.
            print(name, "refused:", f"{type(error).__name__}: {error}"[:300], flush=True)
    return task, compiled


def controlled(task: Task, peers: Peers) -> onnx.ModelProto:
    """NNCF's with accuracy control: the evaluation samples, and the drop that placer may have."""
    import nncf  # noqa: PLC0415

    calibration = [dict(sample.inputs) for sample in task.calibration_data]
    samples = list(task.evaluation_data)

    def judged(model: onnx.ModelProto, chosen: Iterable[Any]) -> tuple[float, list[float]]:
        found = is_right(task.engine.compile(model, peers.folder), chosen)
        return float(np.mean(found)), found

    quantized: onnx.ModelProto = nncf.quantize_with_accuracy_control(
        peers.fixed(),
        nncf.Dataset(calibration),
        nncf.Dataset(samples),
        judged,
        max_drop=0.01,
        subset_size=len(calibration),
    )
    return quantized


def is_right(compiled: Compiled, samples: Iterable[Any]) -> list[float]:
    """1 for each sample whose label is the largest logit, else 0."""
    return [
        float(np.argmax(compiled.run(sample.inputs)["logits"]) == np.ravel(sample.labels)[0])
        for sample in samples
    ]


def compare(folder: Path, task: Task, compiled: dict[str, Compiled], rounds: int) -> Any:
    """Top-1 on the test samples, and time over the float model's."""
    seconds = task.engine.measure(list(compiled.values()), task.inputs, rounds)
    test = load_dataset(str(folder / "test.npz"), task.model)
    rows = {}
    for column, (name, one) in enumerate(compiled.items()):
        found = paired_ratio(seconds[:, column], seconds[:, 0])
        ratio = [found.median, found.low, found.high]
        rows[name] = {"top1": float(np.mean(is_right(one, test))), "ratio_to_float": ratio}
        print(name, rows[name], flush=True)
    return rows


def main() -> None:
    """Train, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("make", help="train the network, write it and its data")
    first.add_argument("--epochs", type=int, default=6)
    second = commands.add_parser("compare", help="placer with other tools")
    second.add_argument("--engine", default="onnxruntime", choices=["onnxruntime", "openvino"])
    second.add_argument("--budget", type=int, default=24)
    second.add_argument("--rounds", type=int, default=101)
    second.add_argument("--json", type=Path)
    for one in (first, second):
        one.add_argument("folder", type=Path)
        one.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.command == "make":
        make(arguments.folder, arguments.epochs, arguments.seed)
        return
    logging.disable(logging.WARNING)
    given = (arguments.engine, arguments.budget, arguments.seed)
    task, compiled = variants(arguments.folder, *given)
    rows = compare(arguments.folder, task, compiled, arguments.rounds)
    drawn = Table(title=f"words on {arguments.engine}: {COUNTS['test']} test samples")
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
