"""Models that several modules give data to, and data for them."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.calibration.dataset import Dataset, load_dataset
from placer.errors import InputError
from placer.graph.text import parse_model
from placer.model import Model, load_model

IMAGE = """
<ir_version: 8, opset_import: ["" : 17]>
image (float[{batch},3,2,2] x) => (float[{batch},3,2,2] y) {{ y = Relu(x) }}
"""
TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
text (int32[1,4] ids, bool[1,4] mask) => (int32[1,4] y) {
  zeros = Sub(ids, ids)
  y = Where(mask, ids, zeros)
}
"""


def model_of(text: str, folder: Path) -> Model:
    """The model that ONNX's text format describes, loaded from a file in ``folder``."""
    path = folder / "model.onnx"
    onnx.save(parse_model(text), path)
    return load_model(path)


@pytest.fixture
def image(tmp_path: Path) -> Model:
    """One float input 'x' of shape (1, 3, 2, 2)."""
    return model_of(IMAGE.format(batch=1), tmp_path)


@pytest.fixture
def batched(tmp_path: Path) -> Model:
    """One float input 'x' of shape (4, 3, 2, 2)."""
    return model_of(IMAGE.format(batch=4), tmp_path)


@pytest.fixture
def text(tmp_path: Path) -> Model:
    """Inputs 'ids' (int32) and 'mask' (bool), both of shape (1, 4)."""
    return model_of(TEXT, tmp_path)


def images(rows: int, first: int = 0) -> np.ndarray:
    """Row i holds the number first + i everywhere, so that a sample tells where it came from."""
    numbers = np.arange(first, first + rows, dtype=np.float32)
    return np.tile(numbers[:, None, None, None], (1, 3, 2, 2))


def saved(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path, allow_pickle=True, **arrays)
    return str(path)


def numbers(dataset: Dataset) -> list[int]:
    return [int(sample.inputs["x"].flat[0]) for sample in dataset]


def error_of(source: str, model: Model) -> str:
    with pytest.raises(InputError) as caught:
        load_dataset(source, model)
    return str(caught.value)
