"""The main job from the command line, on the bundled model: outputs, resuming, manners."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import optuna
import pytest
import yaml

from placer.common.folder_lock import locked
from placer.optimizer.observer import QuietObserver
from placer.optimizer.run import Request, optimize
from placer.optimizer.trials.proposer import PROBE
from placer.results.result import Result
from tests.conftest import DIGITS, Finished
from tests.few_digits import CALIBRATION, EVALUATION, FEW_BY_MINMAX
from tests.qdq.strip import strip
from tests.reference_outputs import outputs

Placer = Callable[..., Finished]

MODEL = DIGITS / "digits.onnx"
ROOT = Path(__file__).parents[2]  # From where a process of its own finds the tests' data.
DATA = ("--data", DIGITS / "calibration.npz", "--eval-data", DIGITS / "evaluation.npz")
QUICK = (*FEW_BY_MINMAX, "--preset", "quick", "--no-cache")


def result(folder: Path = Path("digits.placer")) -> Result:
    return Result.model_validate_json((folder / "result.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a short run leaves."""
    output = tmp_path_factory.mktemp("run") / "digits.placer"
    request = Request(
        MODEL,
        data=CALIBRATION,
        evaluation_data=EVALUATION,
        calibration="minmax",
        preset="quick",
        budget=3,
        output=output,
    )
    optimize(request, QuietObserver())
    return output


def test_a_folder_in_use_is_refused_before_anything_is_loaded(placer: Placer):
    Path("out").mkdir()
    with locked(Path("out")):
        finished = placer("optimize", MODEL, *DATA, "-o", "out")
    assert (finished.code, finished.out) == (2, "")
    assert "out is in use by process" in finished.err


def test_what_cannot_be_loaded_leaves_no_folder(placer: Placer):
    Path("net.onnx").write_text("no model")
    assert placer("optimize", "net.onnx").code == 2
    assert [path.name for path in Path().iterdir()] == ["net.onnx"]


@pytest.mark.usefixtures("faster_by_pairs")
@pytest.mark.parametrize(
    ("data", "budget"),
    [
        pytest.param(FEW_BY_MINMAX, 4, id="few"),
        pytest.param(DATA, 6, id="all", marks=pytest.mark.slow),
    ],
)
def test_the_bundled_model_gets_faster_and_stays_accurate(
    placer: Placer, data: tuple[object, ...], budget: int
):
    flags = ("--preset", "quick", "--no-cache", "--budget", budget)
    finished = placer("optimize", MODEL, *data, *flags)
    assert finished.code == 0, finished.err
    found = result()
    assert found.verdict == "faster"
    assert found.calibrated
    assert found.best.speedup_interval[0] > 1
    assert found.baseline.metrics["top1 logits"] >= 0.97
    assert all(gate.passed for gate in found.best.gates)
    assert [trial.kind for trial in found.trials[:2]] == ["none", "default"]
    assert len(found.trials) == budget
    assert "top1 logits" in finished.out
    files = {path.name for path in Path("digits.placer").iterdir()}
    models = {"optimized.onnx", "placement.yaml"}
    plans = {"plan.json", "plan_float.json", "plan_predicted.json"}
    assert files == models | plans | {"result.json", "report.html", "study.db", "placer.log"}
    placement = yaml.safe_load(Path("digits.placer/placement.yaml").read_text())
    assert placement["id"] == found.best.placement
    assert placement["model"] == found.model.fingerprint
    edges = sum(len(group["edges"]) for group in placement["groups"])
    assert edges == found.best.quantized_edges > 0


@pytest.mark.slow
def test_measurements_of_noise_beside_the_trials_are_counted_and_told(placer: Placer):
    """They are counted in the study, so that a resumed run counts those before, too."""
    strict = ("--engine", "onnxruntime", "--gate", "sqnr>=40", "-o", "out")
    finished = placer("optimize", MODEL, *QUICK, *strict, "--budget", 5)
    study = optuna.load_study(study_name=None, storage="sqlite:///out/study.db")
    probes = sum(key.startswith(PROBE) for key in study.user_attrs)
    assert result(Path("out")).probes == probes > 0
    assert (
        f"and {probes} accuracy check{'s' if probes > 1 else ''} of parts of the model"
        in finished.out
    )
    again = placer("optimize", MODEL, *QUICK, *strict, "--budget", 6)
    assert result(Path("out")).probes >= probes
    assert f"and {result(Path('out')).probes} accuracy checks of parts of the model" in again.out


def test_the_written_model_keeps_its_interface_and_strips_to_the_float_model(folder: Path):
    proto = onnx.load(folder / "optimized.onnx")
    assert any(node.op_type == "QuantizeLinear" for node in proto.graph.node)
    onnx.checker.check_model(proto, full_check=True)
    original = onnx.load(MODEL)
    assert list(proto.graph.input) == list(original.graph.input)
    assert list(proto.graph.output) == list(original.graph.output)
    images = np.load(DIGITS / "evaluation.npz")["image"][:5]
    floats = outputs(original, image=images)[0]
    np.testing.assert_allclose(outputs(strip(proto), image=images)[0], floats, atol=0.5)
    placement = yaml.safe_load((folder / "placement.yaml").read_text())
    said = {entry.key: entry.value for entry in proto.metadata_props}
    assert said["placer.placement"] == placement["id"]
    assert said["placer.pack"] == placement["pack"]


@pytest.mark.slow
def test_running_again_resumes_and_a_larger_budget_goes_on(placer: Placer):
    assert placer("optimize", MODEL, *QUICK, "--budget", 3).code == 0
    first = result().trials
    finished = placer("optimize", MODEL, *QUICK, "--budget", 5)
    assert "5 trials at most, resumed after 3" in finished.out
    again = result().trials
    assert len(again) == 5
    assert again[:3] == first


@pytest.mark.slow
def test_a_killed_run_resumes_without_losing_a_trial(placer: Placer, tmp_path: Path):
    command = [sys.executable, "-c", "from placer.cli.app import main; main()", "optimize"]
    command += [str(MODEL), *map(str, QUICK), "--budget", "1000", "-o", str(tmp_path / "out")]
    command += ["--engine", "onnxruntime"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    lines = []
    while not lines or lines[-1].split()[:1] != ["2"]:
        lines.append(process.stdout.readline())
        assert lines[-1], "the process ended early: " + "".join(lines)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    finished = placer("optimize", MODEL, *QUICK, "--budget", 6, "-o", tmp_path / "out")
    assert finished.code == 0, finished.err
    trials = result(tmp_path / "out").trials
    assert len(trials) >= 6
    assert len({trial.placement for trial in trials}) == len(trials)


@pytest.mark.slow
def test_an_interrupt_keeps_the_best_so_far(tmp_path: Path):
    command = [sys.executable, "-c", "from placer.cli.app import main; main()", "optimize"]
    command += [str(MODEL), *map(str, QUICK), "--budget", "1000", "-o", str(tmp_path / "out")]
    command += ["--engine", "onnxruntime"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    for line in process.stdout:
        if line.split()[:1] == ["3"]:
            process.send_signal(signal.SIGINT)
            break
    output = process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0, output
    found = result(tmp_path / "out")
    assert found.budget.stopped == "interrupted"
    assert found.best.gates[0].passed
    assert (tmp_path / "out" / "optimized.onnx").exists()


@pytest.mark.slow
def test_a_second_interrupt_ends_in_a_sentence_and_the_run_resumes(placer: Placer, tmp_path: Path):
    command = [sys.executable, "-c", "from placer.cli.app import program; program()", "optimize"]
    command += [str(MODEL), *map(str, QUICK), "--budget", "1000", "-o", str(tmp_path / "out")]
    command += ["--engine", "onnxruntime"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        for line in process.stdout:
            if line.split()[:1] == ["3"]:
                process.send_signal(signal.SIGINT)
            if "interrupted" in line:
                process.send_signal(signal.SIGINT)
                break
        _, text = process.communicate(timeout=60)
    assert process.returncode == 130, text
    assert text.endswith("placer: interrupted; run the same command again to resume\n")
    assert "Traceback" not in text
    assert not (tmp_path / "out" / "result.json").exists()
    finished = placer("optimize", MODEL, *QUICK, "--budget", 6, "-o", tmp_path / "out")
    assert finished.code == 0, finished.err
    assert "resumed after" in finished.out


@pytest.mark.slow
def test_json_prints_the_result_alone(placer: Placer):
    finished = placer("optimize", MODEL, *QUICK, "--budget", 2, "--json")
    assert json.loads(finished.out) == json.loads(Path("digits.placer/result.json").read_text())


@pytest.mark.slow
def test_quiet_prints_nothing(placer: Placer):
    finished = placer("optimize", MODEL, *QUICK, "--budget", 2, "--quiet")
    assert (finished.code, finished.out, finished.err) == (0, "", "")


def test_a_gate_that_nothing_meets_ends_with_3_and_writes_no_model(placer: Placer):
    finished = placer("optimize", MODEL, *QUICK, "--budget", 3, "--gate", "sqnr>=200")
    assert finished.code == 3
    assert "meets sqnr>=200; the closest:" in finished.err
    assert re.search(r"sqnr>=200 has \d\d\.\d\d?; relax the gate", finished.err)
    assert result().verdict == "gate not met"
    assert not Path("digits.placer/optimized.onnx").exists()
    kept = onnx.load("digits.placer/closest.onnx")
    assert any(node.op_type == "QuantizeLinear" for node in kept.graph.node)


@pytest.mark.slow
def test_without_data_the_result_says_that_it_is_not_calibrated(placer: Placer):
    finished = placer("optimize", MODEL, "--preset", "quick", "--budget", 2, "--no-cache")
    assert "the result is not calibrated" in " ".join(finished.out.split())
    found = result()
    assert not found.calibrated
    assert found.calibration.data is None
    assert any("not calibrated" in warning for warning in found.warnings)
    placement = yaml.safe_load(Path("digits.placer/placement.yaml").read_text())
    assert placement["calibrated"] is False
    properties = onnx.load("digits.placer/optimized.onnx").metadata_props
    assert {p.key: p.value for p in properties}["placer.calibrated"] == "false"


@pytest.mark.slow
def test_a_timeout_ends_the_search(placer: Placer):
    finished = placer("optimize", MODEL, *QUICK, "--timeout", "4s")
    # A busy machine may not have time for a candidate.
    assert finished.code == 0 or "no quantized candidate fits into 4 s" in finished.err
    assert result().budget.stopped == "timeout"
    assert result().budget.trials is None
    if finished.code == 0:
        assert " of 4 s it took " in " ".join(finished.out.split())
    wrong = placer("optimize", MODEL, *QUICK, "--timeout", "soon")
    assert wrong.code == 2
    assert "write e.g. 90s, 10m or 1h" in wrong.err


@pytest.mark.slow
def test_what_does_not_depend_on_measured_times_is_the_same_again(placer: Placer):
    found = []
    estimated = ("--engine", "fusion-model", "--gpu", "a100", "--budget", 8, "--seed", 7)
    for name in ("a", "b"):
        assert placer("optimize", MODEL, *QUICK, *estimated, "-o", name).code == 0
        found.append([(t.kind, t.placement, t.gates) for t in result(Path(name)).trials])
    assert found[0] == found[1]


def test_results_follow_the_published_schema(folder: Path):
    path = Path(__file__).parents[2] / "configs" / "result.schema.json"
    published = json.loads(path.read_text())
    document = json.loads((folder / "result.json").read_text())
    jsonschema.validate(document, published)
    del document["scheme"]
    with pytest.raises(jsonschema.ValidationError, match="'scheme' is a required property"):
        jsonschema.validate(document, published)
