"""``--recover``: other constants in the layers that the search has chosen."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import placer as library
from placer import GateError, InputError, optimize
from placer.graph.text import parse_model
from placer.quantization.placement_file import read_placement
from placer.recovery.constants import same_layers
from placer.results.result import Result
from tests.conftest import DIGITS
from tests.optimizer.test_optimize import MODEL, Placer

# Estimated times, so that no measurement decides whether there are layers to recover in.
ESTIMATED = ("--engine", "fusion-model", "--gpu", "a100")
QUICK = (*ESTIMATED, "--preset", "quick", "--budget", 2, "--calibration", "minmax")
DATA = ("--data", DIGITS / "calibration.npz", "--eval-data", DIGITS / "evaluation.npz")

# The channels of r differ in size.
TWO_CONVS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,16,8,8] x) => (float[1,32,8,8] y)
<float[32,16,3,3] a = {0}, float[32] c = {0}, float[32,32,3,3] b = {0}>
{
    [one] h = Conv<pads = [1, 1, 1, 1]>(x, a, c)
    [relu] r = Relu(h)
    [two] y = Conv<pads = [1, 1, 1, 1]>(r, b)
}
"""


def unequal_channels(folder: Path) -> None:
    """Writes the model, whose channels recovery can make alike, and data for it."""
    rng = np.random.default_rng(0)
    proto = parse_model(TWO_CONVS)
    sizes = np.exp(rng.normal(0, 1.3, 32))
    for tensor in proto.graph.initializer:
        values = rng.normal(size=tuple(tensor.dims))
        if tensor.name != "b":
            values *= sizes.reshape(-1, *[1] * (values.ndim - 1))
        tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float32), tensor.name))
    onnx.save(proto, folder / "m.onnx")
    np.savez(folder / "data.npz", x=rng.normal(size=(32, 16, 8, 8)).astype(np.float32))


@pytest.mark.slow
def test_the_result_is_more_accurate_in_the_same_layers(placer: Placer):
    run = ("optimize", MODEL, *DATA, *QUICK)
    assert placer(*run, "-o", "plain").code == 0
    finished = placer(*run, "-o", "recovered", "--recover", "auto")
    assert finished.code == 0, finished.err
    plain, recovered = Result.read("plain"), Result.read("recovered")
    assert plain.recovery is None
    part = recovered.recovery
    assert part.kept
    assert [step.step for step in part.steps] == [
        "cross-layer-equalization",
        "smooth-quant",
        "layer-reconstruction",
        "weight-rounding",
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
def test_the_placement_has_the_ranges_of_the_model_as_it_was_given(tmp_path: Path):
    """Of rescaled channels it would cut off most of what the model's own weights compute."""
    unequal_channels(tmp_path)
    run = {"engine": "fusion-model", "gpu": "a100", "preset": "quick", "budget": 3}
    data = {"data": tmp_path / "data.npz", "calibration": "minmax", "cache": False}
    for name, steps in (("plain", "none"), ("recovered", "cross-layer-equalization")):
        library.optimize(
            tmp_path / "m.onnx",
            **run,
            **data,
            gates="sqnr>=1",
            recover=steps,
            output=tmp_path / name,
        )
    part = Result.read(tmp_path / "recovered").recovery
    assert part.kept
    plain, recovered = (
        read_placement(tmp_path / n / "placement.yaml") for n in ("plain", "recovered")
    )
    assert recovered.groups == plain.groups


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


@pytest.mark.slow
def test_a_candidate_that_meets_the_gate_only_once_recovered_wins(tmp_path: Path):
    """The fastest candidate lacks less than the steps gain; without them nothing holds the gate."""
    unequal_channels(tmp_path)

    def run(name: str, gate: float, recover: str) -> Result:
        library.optimize(
            tmp_path / "m.onnx",
            engine="fusion-model",
            gpu="a100",
            preset="quick",
            budget=3,
            data=tmp_path / "data.npz",
            calibration="minmax",
            cache=False,
            gates=f"sqnr>={gate}",
            recover=recover,
            output=tmp_path / name,
        )
        return Result.read(tmp_path / name)

    first = run("first", 1, "auto")
    before, after = (min(pair) for pair in zip(*first.recovery.sqnr.values(), strict=True))
    assert after > before + 0.2
    gate = round((before + after) / 2, 3)
    with pytest.raises(GateError):
        run("plain", gate, "none")
    result = run("recovered", gate, "auto")
    assert result.recovery.kept
    assert all(one.passed for one in result.best.gates)
    trial = next(t for t in result.trials if t.number == result.best.trial)
    assert trial.state == "gate missed"
    assert trial.placement == result.best.placement
