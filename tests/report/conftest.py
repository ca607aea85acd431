"""Output folders of real runs, made once."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from placer.common.files import sha256_of
from placer.errors import GateError
from placer.optimizer.observer import QuietObserver
from placer.optimizer.run import Request, optimize
from placer.results.result import Result
from tests.conftest import DIGITS
from tests.few_digits import CALIBRATION, EVALUATION


def digits(output: Path, **changes: object) -> Request:
    """A short run on the bundled model."""
    settings = {
        "model": DIGITS / "digits.onnx",
        "data": CALIBRATION,
        "evaluation_data": EVALUATION,
        "engine": "onnxruntime",
        "calibration": "minmax",
        "preset": "quick",
        "budget": 3,
        "output": output,
    }
    return Request(**{**settings, **changes})


def put_model(folder: Path, proto: onnx.ModelProto) -> None:
    """Save ``proto`` as the model that the run in ``folder`` wrote."""
    path = folder / "optimized.onnx"
    onnx.save(proto, path)
    result = Result.read(folder)
    best = result.best.model_copy(update={"model_sha256": sha256_of(path)})
    result.model_copy(update={"best": best}).write(folder / "result.json")


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on ONNX Runtime; what it found, faster or not, is up to the machine."""
    folder = tmp_path_factory.mktemp("measured") / "digits.placer"
    optimize(digits(folder), QuietObserver())
    return folder


@pytest.fixture(scope="session")
def estimated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the fusion model, which is the same everywhere."""
    folder = tmp_path_factory.mktemp("estimated") / "digits.placer"
    optimize(digits(folder, engine="fusion-model", gpu="a100", budget=4), QuietObserver())
    return folder


@pytest.fixture(scope="session")
def missed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose gate nothing quantized meets."""
    folder = tmp_path_factory.mktemp("missed") / "digits.placer"
    with pytest.raises(GateError):
        optimize(
            digits(folder, engine="fusion-model", gpu="a100", gates=("sqnr>=90",)),
            QuietObserver(),
        )
    return folder
