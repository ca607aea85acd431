"""``--front`` from the command line, on the bundled model: files, result.json, report, resuming."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml

from placer.errors import InputError
from placer.optimizer.api import optimize
from placer.report.accuracy_figures import accuracies, accuracy_figure
from placer.results.result import Result
from tests.conftest import DIGITS, Finished

Placer = Callable[..., Finished]

MODEL = DIGITS / "digits.onnx"
IMAGES = 64
# It computes so slowly that layers of the bundled model take longer than launching them.
# Its cache holds nothing, so that integers pay by what they move.
GPU = """
name: small
compute_capability: "8.7"
sms: 10
boost_clock_mhz: 1000
memory_gb: 1
memory_bandwidth_gb_s: 1
l2_mb: 0.001
peak: {float: 0.02, tf32: 0.02, float16: 0.05, int8: 0.2}
sources:
  - fields: [sms, boost_clock_mhz, memory_gb, memory_bandwidth_gb_s, l2_mb]
    source: made up for this test
  - fields: [peak.float, peak.tf32, peak.float16, peak.int8]
    source: made up for this test
"""


@pytest.fixture
def options(tmp_path: Path) -> tuple[object, ...]:
    """A short run that is judged by few digits."""
    arrays = np.load(DIGITS / "evaluation.npz")
    np.savez(tmp_path / "few.npz", **{name: arrays[name][:IMAGES] for name in arrays.files})
    data = ("--data", DIGITS / "calibration.npz", "--eval-data", tmp_path / "few.npz")
    method = ("--calibration", "minmax", "--preset", "quick", "--no-cache")
    return (*data, *method, "--front", 3, "--budget", 10)


def run(path: Path, engine: str = "onnxruntime") -> np.ndarray:
    """The logits of the digits that the run is judged by.

    Models for other engines hold FP16, which ONNX Runtime's optimizer handles less accurately.
    """
    options = onnxruntime.SessionOptions()
    if engine != "onnxruntime":
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    images = np.load(DIGITS / "evaluation.npz")["image"][:IMAGES]
    return session.run(["logits"], {"image": images})[0].astype(np.float64)


def sqnr(path: Path, engine: str) -> float:
    """In dB, against the float model."""
    reference, outputs = run(MODEL), run(path, engine)
    return 10 * np.log10((reference**2).sum() / ((outputs - reference) ** 2).sum())


def check(folder: Path) -> Result:
    """What holds of the front in every output folder."""
    result = Result.read(folder)
    points = result.front
    assert 1 <= len(points) <= 3
    for faster, slower in pairwise(points):
        assert faster.ratio_to_float < slower.ratio_to_float
        assert faster.sqnr_db < (slower.sqnr_db or np.inf)
    trials = {trial.number: trial for trial in result.trials}
    for rank, point in enumerate(points, start=1):
        assert point.folder == f"front/{rank}-{point.placement}"
        assert point.placement == trials[point.trial].placement
        assert all(gate.passed for gate in point.gates)
        low, high = point.ratio_interval
        assert low <= point.ratio_to_float <= high
        # The interval of an estimate is that of its error, which may reach beyond the float model.
        assert (point.ratio_to_float if result.engine.estimated else high) < 1
        model = folder / point.folder / "optimized.onnx"
        onnx.checker.check_model(onnx.load(model))
        placement = yaml.safe_load((folder / point.folder / "placement.yaml").read_text())
        assert placement["id"] == point.placement
        assert sum(len(g["edges"]) for g in placement["groups"]) == point.quantized_edges
        # Rounding to FP16 adds its own noise.
        off = 0.01 if result.engine.name == "onnxruntime" else 1
        assert sqnr(model, result.engine.name) == pytest.approx(point.sqnr_db, abs=off)
    written = {path.parent.name for path in folder.glob("front/*/optimized.onnx")}
    assert written == {Path(point.folder).name for point in points}
    fastest = points[0]
    assert (result.verdict, result.best.placement) == ("faster", fastest.placement)
    assert result.best.latency == fastest.latency
    for name in ("optimized.onnx", "placement.yaml"):
        assert (folder / name).read_bytes() == (folder / fastest.folder / name).read_bytes()
    return result


@pytest.mark.usefixtures("faster_by_pairs")
@pytest.mark.slow
def test_measured_points_and_what_shows_them(placer: Placer, options: tuple[object, ...]):
    finished = placer("optimize", MODEL, *options, "--engine", "onnxruntime", "-o", "out")
    assert finished.code == 0, finished.err
    folder = Path("out")
    result = check(folder)
    assert "--front 3" in result.command
    assert all(trial.ruled_out is None for trial in result.trials)
    assert "front of latency and accuracy" in finished.out
    page = (folder / "report.html").read_text()
    assert re.findall(r'<a href="(front/[^"]*)/">', page) == [p.folder for p in result.front]
    assert accuracies(result)[0].title == "SQNR of all outputs, dB"
    (marks,) = [t for t in accuracy_figure(result).data if t.name.startswith("points of the front")]
    assert list(marks.text) == [str(rank) for rank in range(1, len(result.front) + 1)]


@pytest.mark.slow
def test_estimated_points_are_those_of_a_run_that_was_killed(
    placer: Placer, options: tuple[object, ...], tmp_path: Path
):
    gpu = tmp_path / "gpu.yaml"
    gpu.write_text(GPU)
    options = (*options, "--engine", "fusion-model", "--gpu", gpu)
    assert placer("optimize", MODEL, *options, "-o", "whole").code == 0
    whole = check(Path("whole"))
    assert len(whole.front) > 1

    command = [sys.executable, "-c", "from placer.cli.app import main; main()", "optimize"]
    command += [str(MODEL), *map(str, options), "-o", "killed"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    for line in process.stdout:
        if line.split()[:1] == ["3"]:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    # A point that an earlier run of the study had written, and that is none any more.
    stale = Path("killed/front/1-0123456789ab")
    stale.mkdir(parents=True)
    (stale / "optimized.onnx").write_bytes(b"")
    resumed = placer("optimize", MODEL, *options, "-o", "killed")
    assert resumed.code == 0, resumed.err
    assert "resumed after" in resumed.out
    killed = check(Path("killed"))
    assert [(t.kind, t.placement) for t in killed.trials] == [
        (t.kind, t.placement) for t in whole.trials
    ]
    # The trial that the kill cut off keeps its number.
    points = [
        [point.model_copy(update={"trial": 0}) for point in run.front] for run in (killed, whole)
    ]
    assert points[0] == points[1]


@pytest.mark.slow
def test_gates_hold_for_all_points(placer: Placer, options: tuple[object, ...]):
    estimated = ("--engine", "fusion-model", "--gpu", "a100", "--gate", "sqnr>=200")
    finished = placer("optimize", MODEL, *options, *estimated, "--budget", 3)
    assert finished.code == 3
    result = Result.read("digits.placer")
    assert (result.verdict, result.front) == ("gate not met", [])
    assert not Path("digits.placer/front").exists()


def test_a_front_has_two_points_or_more(placer: Placer):
    finished = placer("optimize", MODEL, "--front", 1)
    assert finished.code == 2
    assert "--front" in finished.err
    with pytest.raises(InputError, match="`front` is 1; give 2 or more"):
        optimize(MODEL, front=1)
