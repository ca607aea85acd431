"""Models that crash, hang, are interrupted or killed, and devices that nobody may share."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from placer.onboarding.executors import Local
from placer.onboarding.manifest import read_manifest
from placer.onboarding.planning import plan
from placer.results.result import Result
from tests.onboarding.nets import (
    ESTIMATE,
    run,
    save_net,
    summary_in,
)


def command(manifest: Path, *options: str) -> list[str]:
    program = "from placer.cli.app import main; main()"
    return [sys.executable, "-c", program, "onboard", str(manifest), *options]


def states(output: Path) -> dict[str, str]:
    return {name: model.state for name, model in summary_in(output).items()}


@pytest.mark.slow
def test_quiet_prints_what_failed(tmp_path: Path):
    (tmp_path / "net.onnx").write_bytes(b"")
    (tmp_path / "models.yaml").write_text("models: [{model: net.onnx}]")
    finished = run(tmp_path / "models.yaml", "--quiet")
    assert (finished.code, finished.out) == (1, "")
    assert re.fullmatch(r"placer: error: net: bad input: .* is empty; .*\n", finished.err)


CRASHING = """
import os, signal, time

def crash(outputs, batch):
    os.kill(os.getpid(), signal.SIGSEGV)

def hang(outputs, batch):
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_crash_and_a_hang_stop_nobody_else(tmp_path: Path):
    for name in ("crashing", "hanging", "fine"):
        save_net(tmp_path / f"{name}.onnx")
    (tmp_path / "bad.py").write_text(CRASHING)
    manifest = tmp_path / "models.yaml"
    manifest.write_text(f"""
defaults: {ESTIMATE}
models:
  - {{model: hanging.onnx, gates: "bad:hang>=0", time_limit: 6s}}
  - {{model: crashing.onnx, gates: "bad:crash>=0"}}
  - {{model: fine.onnx, gates: sqnr>=1}}
""")
    finished = run(manifest, "--jobs", "2", "--json")
    assert finished.code == 1
    output = tmp_path / "models.placer"
    assert json.loads(finished.out) == json.loads((output / "summary.json").read_text())
    found = summary_in(output)
    assert found["hanging"].state == "timed out"
    assert found["crashing"].reason == "died of SIGSEGV; see crashing/output.log"
    assert "bad.py" in (output / "crashing" / "output.log").read_text()
    assert found["fine"].state == "cannot tell"

    (tmp_path / "bad.py").write_text(CRASHING.replace("SIGSEGV", "SIGABRT"))
    read = read_manifest(manifest)
    again = plan(read, frozenset(), Local(read.slots).describe)
    assert [(one.job.name, one.action, one.why) for one in again] == [
        ("hanging", "redo", "gate function bad:hang changed"),
        ("crashing", "redo", "gate function bad:crash changed"),
        ("fine", "nothing", "nothing changed"),
    ]


def chain(length: int) -> str:
    """Convolutions of different sizes: two placements for each of them."""
    weights = ", ".join(f"float[{8 + n},{7 + n},1,1] w{n} = {{0.5}}" for n in range(1, length + 1))
    nodes = "\n".join(f"x{n} = Conv(x{n - 1}, w{n})" for n in range(1, length + 1))
    return f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,8,4,4] x0) => (float[1,{8 + length},4,4] x{length}) <{weights}> {{ {nodes} }}
    """


def trials_in(log: Path) -> int:
    """How many lines begin with the number of a trial."""
    return len(re.findall(r"^ *\d+  ", log.read_text(), re.MULTILINE))


@pytest.mark.slow
def test_an_interrupted_and_a_killed_run_are_gone_on_with(tmp_path: Path):
    save_net(tmp_path / "long.onnx", chain(12))
    save_net(tmp_path / "later.onnx")
    manifest, output = tmp_path / "models.yaml", tmp_path / "models.placer"
    log = output / "long" / "output.log"
    manifest.write_text("""
defaults: {preset: quick, cache: false, engine: fusion-model, gpu: a100, gates: sqnr>=0}
models:
  - {model: long.onnx, budget: 1000, sampler: random}  # The default one ends after 18 trials.
  - {model: later.onnx, budget: 2}
""")

    def run_until(trials: int, number: signal.Signals) -> int:
        with subprocess.Popen(command(manifest, "--quiet")) as process:
            while not log.exists() or trials_in(log) < trials:
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            process.send_signal(number)
            return process.wait()

    assert run_until(3, signal.SIGINT) == 1
    assert states(output) == {"long": "interrupted", "later": "interrupted"}
    done = trials_in(log)
    assert run_until(done + 2, signal.SIGKILL) == -signal.SIGKILL
    assert states(output) == {"long": "running", "later": "waiting"}
    size = -1
    while size != log.stat().st_size:  # Its process ends too: else 1000 trials would follow.
        size = log.stat().st_size
        time.sleep(0.7)

    budget = done + 3
    manifest.write_text(manifest.read_text().replace("budget: 1000", f"budget: {budget}"))
    finished = run(manifest)
    assert finished.code == 0, finished.out
    assert f"long: resume: budget changed: 1000 -> {budget}" in finished.out
    assert "later: run: new" in finished.out
    trials = Result.read(output / "long").trials
    assert len(trials) >= done + 2
    assert len({trial.placement for trial in trials}) == len(trials)


# ONNX Runtime under another name, on devices that nobody may share.
PAIR = """
from filelock import FileLock
from placer.engines.onnxruntime import OnnxRuntimeEngine

class PairEngine(OnnxRuntimeEngine):
    name = "pair"

class Factory:
    rules = "onnxruntime"

    def unavailable(self):
        return None

    def create(self, options):
        engine = PairEngine(options.threads)
        engine.held = FileLock(f"device-{options.device}.lock")
        engine.held.acquire(timeout=0)
        return engine

factory = Factory()
"""


@pytest.mark.slow
def test_two_devices_serve_one_model_each_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    info = tmp_path / "site" / "pair-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pair\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[placer.engines]\npair = pair_engine:factory\n")
    (tmp_path / "site" / "pair_engine.py").write_text(PAIR)
    for name in "abc":
        save_net(tmp_path / "nets" / f"{name}.onnx")
    manifest = tmp_path / "models.yaml"
    manifest.write_text("""
devices: [0, 1]
defaults: {engine: pair, preset: quick, budget: 2, cache: false}
models: [{model: nets/*.onnx}]
""")
    paths = (str(tmp_path / "site"), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    finished = run(manifest)
    assert finished.code == 0, finished.out
    found = summary_in(tmp_path / "models.placer")
    assert [found[name].device for name in "ab"] == ["0", "1"]
    assert found["c"].device in ("0", "1")
