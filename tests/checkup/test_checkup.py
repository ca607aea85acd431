"""``placer doctor --full``: the suite on the engines that are here."""

import errno
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.checkup.networks import attention, convolutions
from placer.checkup.step import Failed, Outcome, Skipped, attempt
from placer.checkup.subject import RequestedEngine, Subject, sqnr
from placer.checkup.suite import agrees
from placer.engines.base import Engine
from placer.errors import InputError, RunError
from placer.plan import Plan
from placer.rules.pack import Pack
from tests.conftest import Finished

EVERY_STEP = [
    "FP32", "FP16", "INT8", "INT8, attention", "FP8", "the same engine twice", "CUDA graph",
    "times of layers", "predicted and built layers", "dynamic shapes", "saved engine",
    "implicit INT8", "two processes on one device", "forced crash", "search with a gate",
]  # fmt: skip


@pytest.fixture(scope="module")
def onnxruntime() -> tuple[Engine, Pack]:
    return RequestedEngine("onnxruntime").make()


@pytest.mark.parametrize(
    ("raised", "verdict", "said"),
    [
        (None, "passed", "done"),
        (Skipped("no GPU"), "skipped", "no GPU"),
        (Failed("garbage"), "failed", "garbage"),
        (RunError("refused"), "failed", "refused"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/tmp/a"),
            "failed",
            "cannot write temporary files /tmp/a: No space left on device; free some space there, "
            "or set TMPDIR to a folder that has some and can be written",
        ),
        (ValueError("of the\n engine's own"), "failed", "ValueError: of the engine's own"),
    ],
)
def test_a_step_ends_in_one_of_three_ways(raised: Exception | None, verdict: str, said: str):
    def do() -> Outcome:
        if raised is not None:
            raise raised
        return Outcome("done")

    step = attempt("a step", do)
    assert (step.verdict, step.said) == (verdict, said)


def test_the_networks_are_the_same_every_time(tmp_path: Path):
    for make in (convolutions, attention):
        first = onnx.load(make(tmp_path)).SerializeToString()
        assert onnx.load(make(tmp_path)).SerializeToString() == first


def test_the_signal_to_noise_ratio_is_that_of_the_worst_output():
    right = {"a": np.ones(4), "b": np.ones(4)}
    assert sqnr({"a": np.ones(4), "b": np.full(4, 1.1)}, right) == pytest.approx(20)


def test_garbage_fails_a_step(tmp_path: Path, onnxruntime: tuple[Engine, Pack]):
    subject = Subject.of(convolutions(tmp_path), *onnxruntime)

    class Garbage:
        def run(self, _: object) -> dict[str, np.ndarray]:
            return {"scores": np.zeros((1, 10), np.float32)}

        def plan(self, _: object = None) -> Plan:
            return Plan(())

    step = attempt("garbage", lambda: agrees(subject, subject.model.proto, 40, Garbage()))
    assert step.verdict == "failed"
    assert step.said == "outputs are 0.0 dB from ONNX Runtime's, 40 are needed"


def test_an_engine_that_only_estimates_is_refused(placer: Callable[..., Finished]):
    finished = placer("doctor", "--full", "--engine", "fusion-model")
    assert finished.code == 2
    said = "estimates latencies and runs nothing; choose one that measures"
    for engine in ("fusion-model", "tensorrt-rtx-build"):
        with pytest.raises(InputError, match=f"engine {engine} {said}"):
            RequestedEngine(engine).make()


def test_an_output_without_the_suite_is_refused(placer: Callable[..., Finished], tmp_path: Path):
    finished = placer("doctor", "--output", tmp_path / "checkup.json")
    assert finished.code == 2
    assert "add --full" in finished.err


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_the_suite_passes_and_writes_one_file(
    placer: Callable[..., Finished], tmp_path: Path, engine: str
):
    if engine == "openvino":
        pytest.importorskip("openvino")
    file = tmp_path / "checkup.json"
    finished = placer("doctor", "--full", "--engine", engine, "--output", file)
    assert finished.code == 0, finished.out + finished.err
    document = json.loads(file.read_text())
    steps = {step["name"]: step for step in document["steps"]}
    assert list(steps) == EVERY_STEP
    assert all(step["said"] for step in steps.values())
    skipped = {name for name, step in steps.items() if step["verdict"] == "skipped"}
    own_process = {"two processes on one device", "forced crash"}
    assert skipped == {"FP16", "FP8", "CUDA graph", "saved engine", "implicit INT8"} | (
        own_process if engine == "onnxruntime" else set()
    )
    assert steps["times of layers"]["details"]["plan"]["layers"]
    assert document["machine"]["packages"]["onnxruntime"]
