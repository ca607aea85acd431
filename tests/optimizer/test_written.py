"""What is on disk is what was judged, and a run that cannot say anything says so."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.engines.onnxruntime import OnnxRuntimeEngine, OnnxRuntimeModel
from placer.errors import RunError
from placer.model import load_model, save, save_model
from placer.optimizer.outcome import written
from placer.optimizer.setup.candidates import Candidates
from placer.quantization.placement_file import load_placement
from placer.results.result import Result
from tests.conftest import DIGITS, Finished, with_random_weights
from tests.few_digits import FEW_BY_MINMAX

Placer = Callable[..., Finished]

MODEL = DIGITS / "digits.onnx"
QUICK = (*FEW_BY_MINMAX, "--preset", "quick", "--no-cache")
RUN = ("optimize", MODEL, *QUICK, "--budget", 3, "-o", "out")
# Large enough that INT8 is estimated to be faster.
WIDE = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,64,96,96] x) => (float[1,64,96,96] y)
<float[64,64,3,3] v = {0.05}, float[64,64,3,3] w = {0.05}> {
  a = Conv<pads = [1, 1, 1, 1]>(x, v)
  b = Relu(a)
  y = Conv<pads = [1, 1, 1, 1]>(b, w)
}
"""
PREDICTED = ("--engine", "fusion-model", "--gpu", "t4", "--base", "float", "--preset", "quick")
GATE = "def agreement(outputs, batch):\n    return {value}\n"


@pytest.mark.slow
def test_a_file_that_is_not_what_was_measured_is_no_success(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    """Whatever goes wrong between the candidate and the disk, e.g. in the writer."""

    def spoil(proto: onnx.ModelProto, base_dir: Path, path: Path) -> None:
        for tensor in proto.graph.initializer:
            if tensor.name.endswith("/scale"):
                values = onnx.numpy_helper.to_array(tensor)
                tensor.CopyFrom(onnx.numpy_helper.from_array(values * 9, tensor.name))
        save.save_model(proto, base_dir, path)

    monkeypatch.setattr(written, "save_model", spoil)
    finished = placer(*RUN, "--gate", "sqnr>=20")
    assert finished.code == 3
    assert "the fastest candidate met the gates in its trial (sqnr>=20 has" in finished.err
    assert finished.err.endswith("but as it was written it misses sqnr>=20\n")
    assert Result.read("out").verdict == "gate not met"
    assert Result.read("out").best is None
    assert not Path("out/optimized.onnx").exists()
    assert not Path("out/placement.yaml").exists()


@pytest.mark.slow
def test_where_the_fastest_is_no_result_the_next_one_is(
    placer: Placer, monkeypatch: pytest.MonkeyPatch, save: Callable[..., Path]
):
    """The first file that is written is spoiled, the second is not."""
    spoiled = []

    def spoil_once(proto: onnx.ModelProto, base_dir: Path, path: Path) -> None:
        if path.name == "optimized.onnx" and not spoiled:
            for tensor in proto.graph.initializer:
                if tensor.name.endswith("/scale"):
                    values = onnx.numpy_helper.to_array(tensor)
                    tensor.CopyFrom(onnx.numpy_helper.from_array(values * 9, tensor.name))
            spoiled.append(path)
        save_model(proto, base_dir, path)

    monkeypatch.setattr(written, "save_model", spoil_once)
    path = save(WIDE)
    finished = placer("optimize", path, *PREDICTED, "--budget", 4, "-o", "out")
    assert finished.code == 0, finished.err
    result = Result.read("out")
    assert result.verdict == "faster"
    assert result.best is not None
    told = r"warning: trial (\d+) met the gates, but as it was written it misses sqnr>=15, so it is"
    (refused,) = re.findall(told, finished.out)
    assert result.best.trial != int(refused)
    kept = load_placement(Path("out/placement.yaml"), load_model(path).graph)
    assert kept.id == result.best.placement
    assert Path("out/optimized.onnx").exists()


@pytest.mark.slow
def test_a_file_that_cannot_be_run_is_told_with_the_reason(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    def no_memory(*_: object) -> None:
        raise RunError("onnxruntime took more than 100 MB of memory and was stopped")

    monkeypatch.setattr(Candidates, "run_written", no_memory)
    finished = placer(*RUN, "--gate", "sqnr>=20")
    assert finished.code == 3
    assert finished.err.endswith(
        "but as it was written it cannot be run: onnxruntime took more than 100 MB of memory and "
        "was stopped\n"
    )
    assert not Path("out/optimized.onnx").exists()


@pytest.mark.slow
def test_a_run_cut_short_before_its_file_is_judged_leaves_no_result_of_the_one_before(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    """What the earlier result.json said was of another file."""
    assert placer(*RUN).code == 0
    assert Path("out/result.json").exists()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Candidates, "run_written", interrupted)
        assert placer(*RUN).code == 130
    assert Path("out/optimized.onnx").exists()
    assert not Path("out/result.json").exists()
    assert not Path("out/report.html").exists()
    assert placer(*RUN).code == 0
    assert Result.read("out").optimized_model.exists()


@pytest.mark.slow
def test_gates_are_judged_again_on_the_file(placer: Placer, monkeypatch: pytest.MonkeyPatch):
    """A function that answers otherwise in the end."""
    answer = "float(not Path('out/optimized.onnx').exists())"
    Path("fickle_gate.py").write_text("from pathlib import Path\n" + GATE.format(value=answer))
    monkeypatch.syspath_prepend(Path.cwd())
    finished = placer(*RUN, "--gate", "fickle_gate:agreement>=1")
    assert finished.code == 3, finished.out
    assert Result.read("out").verdict == "gate not met"


@pytest.mark.usefixtures("faster_by_pairs")
@pytest.mark.slow
def test_another_gate_function_does_not_go_on_with_old_judgements(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    module = Path("my_gate.py")
    module.write_text(GATE.format(value=1.0))
    monkeypatch.syspath_prepend(Path.cwd())
    assert placer(*RUN, "--gate", "my_gate:agreement>=1").code == 0
    module.write_text(GATE.format(value="0.0 if outputs else 1.0"))
    finished = placer(*RUN, "--gate", "my_gate:agreement>=1")
    assert finished.code == 2
    assert "holds a study with other settings (functions: " in finished.err
    assert Result.read("out").verdict == "faster"


@pytest.mark.usefixtures("quiet_rounds")
@pytest.mark.slow
def test_a_clock_that_jumps_gives_no_speed_up(placer: Placer, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(0)

    def measure(
        self: OnnxRuntimeEngine,
        models: list[OnnxRuntimeModel],
        inputs: dict[str, np.ndarray],
        rounds: int,
    ) -> np.ndarray:
        del self, inputs
        return np.geomspace(1, 0.1, len(models)) * rng.choice([1, 6], (rounds, len(models)))

    monkeypatch.setattr(OnnxRuntimeEngine, "measure", measure)
    finished = placer(*RUN)
    assert finished.code == 1
    assert "disagree too much, also when repeated" in finished.err
    assert "disagree so much" not in finished.out
    found = Result.read("out")
    assert found.verdict == "inconclusive"
    assert found.speedup == 1
    assert found.best.trial is None


@pytest.mark.usefixtures("quiet_rounds")
@pytest.mark.slow
def test_where_nothing_is_faster_the_float_model_is_the_result(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    def measure(
        self: OnnxRuntimeEngine,
        models: list[OnnxRuntimeModel],
        inputs: dict[str, np.ndarray],
        rounds: int,
    ) -> np.ndarray:
        del self, inputs
        return np.ones((rounds, len(models)))

    monkeypatch.setattr(OnnxRuntimeEngine, "measure", measure)
    finished = placer(*RUN)
    assert finished.code == 0, finished.err
    assert (
        "the fastest candidate that meets the gates takes 1.000 of the float model's time "
        "(95% interval 1.000 to 1.000), which is not a clear gain; the float model is the result"
    ) in " ".join(finished.out.split())
    found = Result.read("out")
    assert (found.verdict, found.speedup, found.best.trial) == ("no difference", 1, None)
    operators = {node.op_type for node in onnx.load("out/optimized.onnx").graph.node}
    assert operators.isdisjoint({"QuantizeLinear", "DequantizeLinear"})


@pytest.mark.slow
def test_where_nothing_is_estimated_to_be_faster_the_float_model_is_the_result(placer: Placer):
    depthwise = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,56,56] x) => (float[1,16,56,56] y) <float[16,1,3,3] w = {0.2}> {
      y = Conv<pads = [1, 1, 1, 1], group = 16>(x, w)
    }"""
    onnx.save(with_random_weights(depthwise), "net.onnx")
    predicted = ("--engine", "fusion-model", "--gpu", "t4", "--preset", "quick", "--no-cache")
    finished = placer("optimize", "net.onnx", *predicted, "--budget", 2, "-o", "out")
    assert finished.code == 0, finished.err
    assert (
        "the fastest candidate that meets the gates is estimated to take 1.000 of the float "
        "model's time (80% interval 0."
    ) in " ".join(finished.out.split())
    assert Result.read("out").verdict == "no difference"
