"""PP-OCRv4's models, as packed in the PyPI package rapidocr-onnxruntime, and images for them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

IMAGENET_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
IMAGENET_STD = np.array([0.229, 0.224, 0.225], np.float32)
WORDS = tuple(
    "placer moves scales where integer kernels run and leaves float what must stay".split()
)


def has_ocr_models() -> bool:
    """Whether the package is installed, which Python 3.13 does not have."""
    return find_spec("rapidocr_onnxruntime") is not None


def ocr_models() -> Path:
    """The folder of the models.

    The package is not imported, because it loads OpenCV, which the models do not need.
    """
    package = find_spec("rapidocr_onnxruntime")
    if package is None or package.origin is None:
        raise SystemExit(
            "PP-OCRv4's models are in rapidocr-onnxruntime, which is not installed: "
            "pip install --no-deps rapidocr-onnxruntime (Python up to 3.12)"
        )
    return Path(package.origin).parent / "models"


@dataclass(frozen=True)
class Subject:
    """A model, its input size and how its images look."""

    name: str
    file: str
    height: int
    width: int
    lines: int


SUBJECTS = (
    Subject("det", "ch_PP-OCRv4_det_infer.onnx", 320, 320, 8),
    Subject("rec", "ch_PP-OCRv4_rec_infer.onnx", 48, 320, 1),
    Subject("cls", "ch_ppocr_mobile_v2.0_cls_infer.onnx", 48, 192, 1),
)


def render(subject: Subject, seed: int) -> np.ndarray:
    """One image of random words as the model wants it, shape (3, height, width)."""
    rng = np.random.default_rng(seed)
    light, dark = rng.integers(170, 256, 3), rng.integers(0, 90, 3)
    image = Image.new("RGB", (subject.width, subject.height), tuple(int(v) for v in light))
    draw = ImageDraw.Draw(image)
    step = subject.height // subject.lines
    for line in range(subject.lines):
        text = " ".join(rng.choice(WORDS, 4)) + f" {rng.integers(10**6)}"
        font = ImageFont.load_default(size=int(step * rng.uniform(0.45, 0.8)))
        at = (int(rng.integers(0, 12)), line * step + int(rng.integers(0, max(1, step // 5))))
        draw.text(at, text, fill=tuple(int(v) for v in dark), font=font)
    if subject.name == "cls" and rng.random() < 0.5:
        image = image.rotate(180)
    pixels = np.asarray(image, np.float32) / 255 + rng.normal(0, 0.02, (*image.size[::-1], 3))
    mean, std = (IMAGENET_MEAN, IMAGENET_STD) if subject.name == "det" else (0.5, 0.5)
    return np.transpose(((pixels - mean) / std).astype(np.float32), (2, 0, 1))
