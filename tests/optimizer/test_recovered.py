"""``--recover``: other constants in the layers that the search has chosen."""

from pathlib import Path

import onnx
import pytest

from placer import InputError, optimize
from placer.recovery.constants import same_layers
from placer.results.result import Result
from tests.conftest import DIGITS
from tests.optimizer.test_optimize import MODEL, Placer

QUICK = ("--engine", "onnxruntime", "--preset", "quick", "--budget", 2, "--calibration", "minmax")
DATA = ("--data", DIGITS / "calibration.npz", "--eval-data", DIGITS / "evaluation.npz")


@pytest.mark.slow
def test_the_result_is_more_accurate_in_the_same_layers(placer: Placer):
    run = ("optimize", MODEL, *DATA, *QUICK)
    assert placer(*run, "-o", "plain").code == 0
    finished = placer(*run, "-o", "recovered", "--recover", "auto")
    assert finished.code == 0, finished.err
    plain, recovered = Result.read("plain"), Result.read("recovered")
    assert plain.recovery is None
    part = recovered.recovery
    assert part is not None
    assert part.kept
    assert [step.step for step in part.steps] == [
        "cross-layer-equalization",
        "smooth-quant",
        "bias-correction",
        "scale-correction",
    ]
    (values,) = part.sqnr.values()
    assert values[0] == pytest.approx(plain.best.metrics["sqnr logits"], abs=1e-6)
    assert values[1] == pytest.approx(recovered.best.metrics["sqnr logits"], abs=1e-6)
    assert values[1] > values[0] + 0.5
    one, other = (onnx.load(f"{name}/optimized.onnx") for name in ("plain", "recovered"))
    assert same_layers(one, other)
    assert plain.best.placement == recovered.best.placement
    assert "Accuracy recovered in the same layers" in Path("recovered/report.html").read_text()


@pytest.mark.slow
def test_random_inputs_recover_nothing_and_it_is_said(placer: Placer):
    finished = placer("optimize", MODEL, *QUICK, "--recover", "auto")
    assert finished.code == 0, finished.err
    part = Result.read("digits.placer").recovery
    assert not part.kept
    assert part.reason == "random inputs tell too little; give `data` of 8 or more"


def test_none_and_auto_stand_alone():
    with pytest.raises(InputError, match="none or auto beside other steps"):
        optimize(MODEL, recover=["auto", "bias-correction"])
