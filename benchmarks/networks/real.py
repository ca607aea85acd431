"""Networks that benchmarks search on, with data: calibration and evaluation are disjoint.

PP-OCRv4 detection, recognition and direction classifier as packed in rapidocr-onnxruntime
(ocr.py), and networks of public topology with random weights (topologies.py).
Data are rendered pages of text, and random tokens where the model takes no image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
NAMES = (*(subject.name for subject in SUBJECTS), *NETWORKS)


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
    path = folder / "model.onnx" if subject is None else ocr_models() / subject.file
    if subject is None and not path.exists():
        onnx.save(NETWORKS[name](), path)
    entry = onnx.load(path).graph.input[0]
    shape = tuple(dimension.dim_value for dimension in entry.type.tensor_type.shape.dim)
    if subject is not None:
        shape = (1, 3, subject.height, subject.width)
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
    """A page of text, or tokens where the model takes no image."""
    if subject is not None:
        return render(subject, seed)
    if len(shape) == 4:
        return render(Subject("image", "", shape[2], shape[3], 3), seed)
    return np.random.default_rng(seed).standard_normal(shape[1:]).astype(np.float32)
