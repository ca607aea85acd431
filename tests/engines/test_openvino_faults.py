"""Faults of the real OpenVINO in whole runs: a failed trial each, and the search goes on.

Of some forty small models with odd nodes (Resize, Pad, Expand, 1-D, 3-D and dilated convolutions,
ConvTranspose with strides of 300, MatMul of all ranks), none made OpenVINO 2026.4.1 crash, hang or
take more memory once it was quantized. What it does is to compute garbage (below) and to refuse
recurrent layers. So crashes and hangs are real signals to the engine's own worker while OpenVINO
works in it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import placer
from placer.common.processor import this_processor
from placer.engines.isolation.process import WorkerProcess
from placer.engines.isolation.protocol import Command, Compile, Measure, Request
from placer.results.parts import TrialPart
from placer.results.result import Result

pytest.importorskip("openvino", reason="OpenVINO is not installed")
from tests.conftest import two_convs
from tests.reference_outputs import sqnr

pytestmark = pytest.mark.slow

Save = Callable[..., Path]
Break = Callable[[type[Command], int, signal.Signals], list[int]]

NET = two_convs(channels=64, size=24)
# Quantized both, they become one compiled layer that computes garbage.
LINEAR = """
<ir_version: 9, opset_import: ["": 17]>
net (float[4,32] x) => (float[4,16] y)
<float[32,32] w1 = {0.1}, float[32] b1 = {0.1}, float[32,16] w2 = {0.1}, float[16] b2 = {0.1}> {
  [fc1] a = Gemm(x, w1, b1)
  [relu1] b = Relu(a)
  [fc2] y = Gemm(b, w2, b2)
}
"""


CARELESS = """
name: careless
version: 0.1.0
engine: openvino
engine_versions: ">=2026"
extends: openvino
disable: [linear-chain]
licence: Apache-2.0
maintainers: [tests]
"""


def run(model: Path, tmp_path: Path, **options: Any) -> Result:
    """A whole run; where the machine is too busy for a verdict, what it wrote."""
    given: dict[str, Any] = {"gates": "sqnr>=10", "preset": "quick", "calibration": "minmax"}
    given |= {"engine": "openvino", "cache": False, "output": tmp_path / "out", **options}
    try:
        return placer.optimize(model, **given)
    except placer.RunError:
        return Result.read(tmp_path / "out")


@pytest.fixture
def break_worker(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Send the engine's worker a signal shortly after it was given the nth command of a kind.

    Returns the list that the process is added to.
    """
    original = WorkerProcess.call

    def prepare(kind: type[Command], count: int, number: signal.Signals) -> list[int]:
        seen: list[int] = []
        struck: list[int] = []

        def call(self: WorkerProcess, request: Request) -> Any:
            if isinstance(request.command, kind):
                seen.append(self.pid)
                if len(seen) == count:
                    struck.append(self.pid)
                    if number == signal.SIGSTOP:  # Before it can answer, however busy all is.
                        os.kill(self.pid, number)
                    else:
                        threading.Timer(0.01, os.kill, (self.pid, number)).start()
            return original(self, request)

        monkeypatch.setattr(WorkerProcess, "call", call)
        return struck

    return prepare


def errors(result: Result) -> list[str]:
    """Why trials failed, one by one."""
    return [str(trial.error) for trial in result.trials if trial.state == "failed"]


def assert_one_failed(result: Result, why: str) -> None:
    (error,) = errors(result)
    assert why in error


def harmless(result: Result) -> list[TrialPart]:
    """Quantized candidates that ran, were measured and meet the gates."""
    return [trial for trial in result.trials if trial.kind != "none" and trial.state == "complete"]


def assert_the_written_model_is_right(result: Result, model: Path) -> None:
    """Its outputs on ONNX Runtime are the float model's, as far as the gate asks."""
    inputs = {"x": np.random.default_rng(3).random(shape_of(model), np.float32)}
    expected, found = (run_on_onnxruntime(path, inputs) for path in (model, result.optimized_model))
    assert sqnr(expected, found) >= 10


def shape_of(model: Path) -> tuple[int, ...]:
    (value,) = onnx.load(model, load_external_data=False).graph.input
    return tuple(dimension.dim_value for dimension in value.type.tensor_type.shape.dim)


def run_on_onnxruntime(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, inputs)
    return np.asarray(found)


@pytest.mark.skipif(
    this_processor().exact_products is False,
    reason="without VNNI, OpenVINO compiles no layer of two products of integers",
)
def test_a_candidate_that_computes_garbage(save: Save, tmp_path: Path):
    """Two Gemm with a Relu between them, both quantized; one of them alone is harmless.

    The pack keeps them float (``linear-chain``), so it is one without that rule.
    """
    model, pack = save(LINEAR), tmp_path / "careless"
    pack.mkdir()
    (pack / "pack.yaml").write_text(CARELESS)
    result = run(model, tmp_path, sampler="exhaustive", budget=12, pack=str(pack))
    assert "ONNX Runtime" in errors(result)[0]
    assert harmless(result)
    assert_the_written_model_is_right(result, model)


def test_a_worker_that_is_killed_while_it_measures(save: Save, tmp_path: Path, break_worker: Break):
    model = save(NET)
    struck = break_worker(Measure, 2, signal.SIGKILL)
    result = run(model, tmp_path, budget=4)
    assert len(struck) == 1
    assert_one_failed(result, "crashed (signal 9) while measuring the candidate")
    assert harmless(result)
    assert_the_written_model_is_right(result, model)


def test_a_worker_that_hangs_while_it_compiles(save: Save, tmp_path: Path, break_worker: Break):
    """It stops and never answers."""
    model = save(NET)
    struck = break_worker(Compile, 3, signal.SIGSTOP)
    start = time.monotonic()
    result = run(model, tmp_path, budget=4, engine_options={"compile-timeout": "10"})
    assert time.monotonic() - start >= 10
    assert len(struck) == 1
    assert_one_failed(result, "took more than 10 s and was stopped while building the candidate")
    assert harmless(result)
    assert_the_written_model_is_right(result, model)
