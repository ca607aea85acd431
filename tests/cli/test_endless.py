"""Runs of a model that do not end by themselves: stopped by the limit, or by Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.conftest import with_random_weights

# ONNX Runtime looks between nodes whether it shall stop, of which the body of this loop has none.
# How often it runs depends on the data.
ENDLESS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4] x) => (float[1,4] y)
<float[4,4] w = {0.5}, float e15 = {1000000000000000.0}, bool yes = {1},
 float s = {0.01}, int8 z = {0}> {
  [mul] m = MatMul(DATA, w)
  [most] most = ReduceMax <keepdims = 0> (x)
  [big] big = Mul(most, e15)
  [n] n = Cast <to = 7> (big)
  [endless] l = Loop(n, yes, m) <body = b (int64 i, bool c, float[1,4] a)
    => (bool c, float[1,4] a) {
  }>
  [end] y = Relu(l)
}
"""
PAIR = "[q] q = QuantizeLinear(x, s, z) [dq] d = DequantizeLinear(q, s, z) [mul]"
PLACEMENT = """\
format: placer-placement/1
id: 0123456789ab
model: sha256:00
pack: tensorrt
calibrated: true
scheme: {activation: int8, symmetric: true, weight: int8, per_channel: true, bias: float}
groups:
- edges:
  - {tensor: x, node: mul, input: 0}
  range: [-1.5, 1.5]
- edges:
  - {tensor: w, node: mul, input: 1}
"""
FUSION_MODEL = ("--engine", "fusion-model", "--gpu", "a100", "--no-cache", "-o", "out")
COMMANDS = {
    "optimize": ("net.onnx", "--data", "data.npz", *FUSION_MODEL),
    "apply": ("placement.yaml", "net.onnx", "--data", "data.npz", "--no-cache"),
    "import": ("quantized.onnx", "--data", "data.npz"),
    "extract": ("net.onnx", "--inputs", "l", "--outputs", "y", "--data", "data.npz"),
}
PLACER = (sys.executable, "-c", "from placer.cli.app import program; program()")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("net", ENDLESS.replace("DATA", "x")),
        ("quantized", ENDLESS.replace("DATA", "d").replace("[mul]", PAIR)),
    ):
        onnx.save(with_random_weights(text), f"{name}.onnx")
    np.savez("data.npz", x=np.linspace(0.5, 1, 16, dtype=np.float32).reshape(4, 4))
    Path("placement.yaml").write_text(PLACEMENT)
    return tmp_path


@contextmanager
def running(command: str, seconds: int) -> Iterator[subprocess.Popen[str]]:
    """The command, of which each run of a model may take so long."""
    files = sorted(Path().rglob("*"))
    environment = {**os.environ, "PLACER_MAX_RUN_S": str(seconds)}
    # A shell's background job ignores Ctrl-C, and so would the process that it starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            (*PLACER, command, *COMMANDS[command]),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            yield process
        finally:
            process.kill()
    left = [path for path in Path().rglob("*") if path not in files]
    assert not [path for path in left if path.name not in ("out", "placer.log")]


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code and what was printed as an error."""
    _, text = process.communicate(timeout=60)
    return process.returncode, text


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_node_that_does_not_end_ends_the_command_in_one_sentence(command: str):
    with running(command, 1) as process:
        code, text = ended(process)
    assert code == 1, text
    assert "took more than 1 s; set PLACER_MAX_RUN_S=10 if that is meant" in text
    assert text.count("placer: error:") == 1
    assert "Traceback" not in text


# A product of constants, which ONNX Runtime computes when it loads the model.
FOLDED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4] x) => (float[1,4] y) <float[4,4] w = {0.5}, int64[2] s = {15000, 15000}> {
  [ones] c = ConstantOfShape(s)
  [huge] d = MatMul(c, c)
  [most] m = ReduceMax <keepdims = 0> (d)
  [mul] a = MatMul(x, w)
  [end] y = Add(a, m)
}
"""


@pytest.mark.slow
def test_constants_that_take_for_ever_end_the_command_in_one_sentence():
    onnx.save(with_random_weights(FOLDED), "net.onnx")
    with running("optimize", 1) as process:
        code, text = ended(process)
    assert code == 1, text
    assert "ONNX Runtime took more than 4 s to load the model; set PLACER_MAX_RUN_S=10" in text
    assert text.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("command", ["optimize", "extract"])
def test_ctrl_c_while_a_model_runs_is_a_sentence(command: str):
    """In calibration; in the main thread it would wait for the end of the run."""
    with running(command, 600) as process:
        wait_until_busy(process)
        process.send_signal(signal.SIGINT)
        code, text = ended(process)
    resume = {"optimize": "; run the same command again to resume", "extract": ""}[command]
    assert (code, text) == (130, f"placer: interrupted{resume}\n")


@pytest.mark.slow
def test_more_ctrl_c_is_a_sentence_too():
    with running("extract", 600) as process:
        wait_until_busy(process)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        code, text = ended(process)
    assert code == 130
    assert set(text.splitlines()) == {"placer: interrupted"}


def wait_until_busy(process: subprocess.Popen[str]) -> None:
    """Wait until another thread than the main one has worked for half a second."""
    while process.poll() is None:
        threads = Path(f"/proc/{process.pid}/task").glob("*/stat")
        if any(seconds_of(t) > 0.5 for t in threads if t.parent.name != str(process.pid)):
            return
        time.sleep(0.02)


def seconds_of(stat: Path) -> float:
    """CPU time of a thread; none of one that has gone."""
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
