"""``placer apply --recover``: other constants in the layers of a placement."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer import InputError, apply_placement
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.model import load_model
from placer.quantization.placement_file import read_placement
from placer.recovery.constants import same_layers
from tests.apply.placements import SEED1
from tests.apply.test_apply_command import placement_file
from tests.conftest import DIGITS, Finished

Run = Callable[..., Finished]
DATA = DIGITS / "calibration.npz"

__all__ = ["placement_file"]  # A fixture, found by its name.


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """32 calibration samples, and the rest for a test of what they recovered."""
    images = np.load(DATA)["image"]
    np.savez(tmp_path / "few.npz", image=images[:32])
    np.savez(tmp_path / "rest.npz", image=images[32:64])
    return tmp_path / "few.npz"


@pytest.mark.slow
def test_the_layers_stay_and_samples_not_given_gain(placer: Run, placement_file: Path, few: Path):
    given = ("apply", placement_file, SEED1, "--data", few, "--calibration", "minmax", "--no-cache")
    assert placer(*given, "-o", "plain").code == 0
    finished = placer(*given, "-o", "out", "--recover", "weight-rounding", "--json")
    assert finished.code == 0, finished.err
    part = json.loads(finished.out)["recovery"]
    assert (part["kept"], part["samples"], part["held_back"]) == (True, 16, 16)
    (step,) = part["steps"]
    before, after = step["held_back_sqnr"]
    assert after > before
    plain, recovered = (onnx.load(f"{name}/optimized.onnx") for name in ("plain", "out"))
    assert same_layers(plain, recovered)
    assert plain != recovered
    # The ranges of the model as it was given: they go with its own weights.
    groups = [read_placement(Path(f"{name}/placement.yaml")).groups for name in ("plain", "out")]
    assert groups[0] == groups[1]
    assert error(recovered, few) < error(plain, few)


def error(proto: onnx.ModelProto, few: Path) -> float:
    """Mean square at the outputs on samples that were not given."""
    images = np.load(few.with_name("rest.npz"))["image"]
    reference = OnnxRuntimeModel(load_model(SEED1).proto, SEED1.parent, 1).run
    run = OnnxRuntimeModel(proto, few.parent, 1).run
    pairs = [(run({"image": one[None]}), reference({"image": one[None]})) for one in images]
    return float(np.mean([np.square(a[name] - b[name]) for a, b in pairs for name in b]))


def test_what_was_recovered_is_printed(placer: Run, placement_file: Path, few: Path):
    given = ("apply", placement_file, SEED1, "--data", few, "--no-cache", "-o", "out")
    finished = placer(*given, "--recover", "smooth-quant")
    assert finished.code == 0, finished.err
    assert "nothing recovered: no step helps on samples held back" in finished.out


def test_recovery_needs_data_and_steps_that_there_are(placement_file: Path):
    with pytest.raises(InputError, match="`recover` needs data; give `data`"):
        apply_placement(placement_file, SEED1, recover="auto")
    with pytest.raises(InputError, match="unknown recover 'adaround'; use one of: auto, none, cro"):
        apply_placement(placement_file, SEED1, recover=["adaround"], data=DATA)
