"""Engines in worker processes: whatever happens there is a RunError here, and work goes on."""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.engines.base import Compiled, Engine
from placer.engines.isolation import EngineSpec, IsolatedEngine, Limits
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.errors import InputError, RunError
from placer.graph.text import parse_model
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.outcome.finals import Finalist, confirm, race
from placer.optimizer.setup.prepare import prepare
from placer.optimizer.setup.trial_setup import set_up
from placer.optimizer.trials.layer_times import ProfiledLayers
from placer.optimizer.trials.proposer import make_landscapes
from placer.optimizer.trials.trial import TrialRunner
from placer.quantization import EMPTY
from placer.search.proposals.surrogate import SurrogateProposer
from placer.search.records import by_latency
from placer.search.study.storage import open_storage
from placer.search.study.study import Study

Save = Callable[..., Path]

ORT = EngineSpec("placer.engines.onnxruntime", "OnnxRuntimeEngine", {"threads": 1})
HOSTILE = EngineSpec("tests.engines.hostile", "HostileEngine")
LIMITS = Limits(compile_s=1.5, run_s=1, measure_s=1.5, grace_s=1)
ONES = {"x": np.ones((1, 2, 4, 4), np.float32)}
SMALL = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,2,4,4] x) => (float[1,2,4,4] y)
<float[2,2,1,1] w = {2}> { [conv1] y = Conv(x, w) }
"""
QUANTIZED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y)
<float[16,16,1,1] w = {1}, float scale = {0.05}, uint8 zero = {0}> {
  [q1] q = QuantizeLinear(x, scale, zero)
  [d1] d = DequantizeLinear(q, scale, zero)
  [conv1] c = Conv(d, w)
  [relu1] y = Relu(c)
}
"""


def model(name: str) -> onnx.ModelProto:
    """A small model; its name tells the hostile engine what to do."""
    proto = parse_model(SMALL)
    proto.graph.name = name
    return proto


def process_of(compiled: Compiled) -> int:
    """The worker that a model lives in."""
    return int(compiled.plan().source)


def is_gone(pid: int) -> bool:
    """Whether the process has ended; a zombie that nobody has waited for yet has ended too."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def wait_until(condition: Callable[[], bool]) -> bool:
    for _ in range(200):
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of this process and of those it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IsolatedEngine]:
    """One engine for many tests: what one of them did to its worker must not disturb the next."""
    with IsolatedEngine(HOSTILE, LIMITS, tmp_path_factory.mktemp("logs")) as engine:
        yield engine


@pytest.fixture(scope="module")
def baseline(hostile: IsolatedEngine) -> Compiled:
    return hostile.compile(model("baseline"), Path())


@pytest.fixture(scope="module")
def confined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IsolatedEngine]:
    """An engine with little memory and much time."""
    limits = Limits(memory_bytes=400_000_000)
    with IsolatedEngine(HOSTILE, limits, tmp_path_factory.mktemp("logs")) as engine:
        yield engine


def log_named_in(error: RunError) -> str:
    return Path(str(error).rpartition("its log is ")[2]).read_text()


# Not hostile: the same as in this process.


def test_outputs_and_plan_are_those_of_the_engine_itself(save: Save, tmp_path: Path):
    proto = onnx.load(save(QUANTIZED))
    x = np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32)
    own = OnnxRuntimeEngine()
    with IsolatedEngine(ORT, Limits(), tmp_path / "logs") as engine:
        for attribute in Engine.__annotations__:
            assert getattr(engine, attribute) == getattr(own, attribute)
        isolated, direct = (e.compile(proto, tmp_path) for e in (engine, own))
        assert isolated.plan() == direct.plan()
        outputs = isolated.run({"x": x})
        assert list(outputs) == ["y"]
        np.testing.assert_array_equal(outputs["y"], direct.run({"x": x})["y"], strict=True)
        seconds = engine.measure([isolated, isolated], {"x": x}, 3)
        assert seconds.shape == (3, 2)
        assert (seconds > 0).all()
        with pytest.raises(TypeError, match="a model of another engine"):
            engine.measure([direct], {"x": x}, 1)


def test_external_data_stays_where_it_is(
    save: Save, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
):
    path = save(QUANTIZED)
    folder = tmp_path / "external"
    folder.mkdir()
    onnx.save(
        onnx.load(path),
        folder / "m.onnx",
        save_as_external_data=True,
        location="m.data",
        size_threshold=0,
    )
    external = onnx.load(folder / "m.onnx", load_external_data=False)
    monkeypatch.chdir(tmp_path)
    x = np.ones((1, 16, 8, 8), np.float32)
    with IsolatedEngine(ORT, Limits(), tmp_path / "logs") as engine:
        found = engine.compile(external, Path("external")).run({"x": x})
        assert not list(temporary.rglob("*.data"))
    expected = OnnxRuntimeEngine().compile(onnx.load(path), tmp_path).run({"x": x})
    np.testing.assert_array_equal(found["y"], expected["y"])


def test_a_device_is_all_that_the_worker_sees(tmp_path: Path):
    spec = dataclasses.replace(HOSTILE, device="1")
    with IsolatedEngine(spec, LIMITS, tmp_path) as engine:
        assert (engine.name, engine.device) == ("hostile", "1")


# Hostile at each stage.


def provoke(engine: IsolatedEngine, baseline: Compiled, name: str) -> None:
    """Compile, run and measure a model as a trial does."""
    compiled = engine.compile(model(name), Path())
    compiled.run(ONES)
    engine.measure([baseline, compiled], ONES, 2)


def assert_works(engine: IsolatedEngine, baseline: Compiled) -> None:
    candidate = engine.compile(model("harmless"), Path())
    np.testing.assert_array_equal(candidate.run(ONES)["y"], np.full((1, 2, 4, 4), 4))
    assert engine.measure([baseline, candidate], ONES, 2).shape == (2, 2)


STAGES = {
    "compile": "building the candidate",
    "run": "running the candidate",
    "measure": "measuring the candidate",
}
ENDINGS = {
    "segfault": r"the engine crashed \(signal 11\) while {stage}; its log is .*\.log$",
    "leave": r"the engine exited with status 3 while {stage}; its log is .*\.log$",
    "hang": r"the engine took more than 1(\.5)? s and was stopped while {stage}; its log is ",
    "fail": r"failed while {stage}: ValueError: no tactic for this layer; its log is .*\.log$",
}


# Each ending in one stage; in the other stages it takes the same path.
QUICK = {"segfault": "compile", "leave": "run", "hang": "measure", "fail": "run"}


@pytest.mark.parametrize(
    ("deed", "stage"),
    [
        pytest.param(deed, stage, marks=() if QUICK[deed] == stage else pytest.mark.slow)
        for deed in ENDINGS
        for stage in STAGES
    ],
)
def test_a_hostile_candidate_is_a_run_error_and_the_next_one_works(
    hostile: IsolatedEngine, baseline: Compiled, deed: str, stage: str
):
    with pytest.raises(RunError, match=ENDINGS[deed].format(stage=STAGES[stage])) as caught:
        provoke(hostile, baseline, f"{deed} in {stage}")
    text = log_named_in(caught.value)
    assert text.rpartition("-- ")[2].startswith(STAGES[stage])
    if deed != "leave":  # Then the log says where it happened.
        assert f"in {deed}" in text
    assert_works(hostile, baseline)


@pytest.mark.parametrize(
    "stage",
    [pytest.param(stage, marks=() if stage == "compile" else pytest.mark.slow) for stage in STAGES],
)
def test_a_candidate_that_takes_too_much_memory(confined: IsolatedEngine, stage: str):
    baseline = confined.compile(model("baseline"), Path())
    sentence = "took more than 400 MB of memory and was stopped while {stage}; its log is "
    with pytest.raises(RunError, match=sentence.format(stage=STAGES[stage])) as caught:
        provoke(confined, baseline, f"grow in {stage}")
    assert STAGES[stage] in log_named_in(caught.value)
    assert_works(confined, baseline)


@pytest.mark.parametrize(
    "deed", ["hang_with_the_gil", pytest.param("stop", marks=pytest.mark.slow)]
)
def test_a_worker_that_cannot_tell_the_time_ends_too(
    hostile: IsolatedEngine, baseline: Compiled, deed: str
):
    with pytest.raises(RunError, match="took more than 1 s and was stopped while running"):
        provoke(hostile, baseline, f"{deed} in run")


@pytest.mark.slow
def test_children_of_a_worker_that_hangs_go_with_it(hostile: IsolatedEngine, baseline: Compiled):
    with pytest.raises(RunError, match="took more than 1 s") as caught:
        provoke(hostile, baseline, "hang_with_a_child in run")
    child = int(log_named_in(caught.value).partition("child ")[2].split()[0])
    assert wait_until(lambda: is_gone(child))


def test_placer_errors_come_back_as_they_are(hostile: IsolatedEngine):
    with pytest.raises(RunError, match=r"^the parser refuses node 'conv1'$"):
        hostile.compile(model("refuse in compile"), Path())
    with pytest.raises(InputError, match=r"^the plug-in is for another GPU; build it again$"):
        hostile.compile(model("blame_the_user in compile"), Path())


def test_a_refusal_keeps_the_worker_and_a_failed_run_replaces_it(
    hostile: IsolatedEngine, baseline: Compiled
):
    worker = process_of(baseline)
    with pytest.raises(RunError, match="the parser refuses"):
        hostile.compile(model("refuse in compile"), Path())
    assert process_of(baseline) == worker
    failing = hostile.compile(model("refuse in run"), Path())
    with pytest.raises(RunError, match="the parser refuses"):
        failing.run(ONES)
    assert process_of(baseline) != worker
    assert is_gone(worker)


@pytest.mark.slow
def test_a_model_that_cannot_be_built_again_is_a_run_error(tmp_path: Path):
    with IsolatedEngine(HOSTILE, LIMITS, tmp_path) as engine:
        baseline = engine.compile(model("segfault in rebuild"), Path())
        fatal = engine.compile(model("segfault in run"), Path())
        with pytest.raises(RunError, match="while running the candidate"):
            fatal.run(ONES)
        sentence = r"crashed \(signal 11\) while building a model again after a restart; its log is"
        for _ in range(2):
            with pytest.raises(RunError, match=sentence):
                baseline.run(ONES)
        assert len(list(tmp_path.glob("worker-*.log"))) == 3


def test_what_a_worker_prints_is_in_its_log_and_logs_are_not_overwritten(tmp_path: Path):
    for _ in range(2):
        with IsolatedEngine(HOSTILE, LIMITS, tmp_path) as engine:
            engine.compile(model("complain in compile"), Path())
    logs = sorted(tmp_path.iterdir())
    assert [path.name for path in logs] == ["worker-1.log", "worker-2.log"]
    warning = "a warning of the vendor's"
    assert [path.read_text().splitlines() for path in logs] == [
        ["-- starting", warning, "-- building the candidate", warning]
    ] * 2


# Killed from outside, interrupted, ended.


def later(action: Callable[[], None]) -> None:
    threading.Timer(0.4, action).start()


@pytest.mark.parametrize("stage", STAGES)
def test_a_worker_killed_from_outside(hostile: IsolatedEngine, baseline: Compiled, stage: str):
    worker = process_of(baseline)
    later(lambda: os.kill(worker, signal.SIGKILL))
    with pytest.raises(RunError, match=rf"crashed \(signal 9\) while {STAGES[stage]}; its log"):
        provoke(hostile, baseline, f"hang in {stage}")
    assert baseline.run(ONES)["y"].shape == (1, 2, 4, 4)


def test_only_what_kills_a_worker_between_calls_ends_it_which_is_nobodys_fault(baseline: Compiled):
    """What asks a service to end may go to all its processes, but a run still wants its result."""
    worker = process_of(baseline)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(worker, number)
        assert process_of(baseline) == worker
    os.kill(worker, signal.SIGKILL)
    assert wait_until(lambda: not Path(f"/proc/{worker}").exists())
    assert process_of(baseline) != worker


def test_a_worker_may_start_before_it_is_needed(tmp_path: Path):
    with IsolatedEngine(ORT, Limits(), tmp_path / "logs", OnnxRuntimeEngine()) as engine:
        assert engine.worker_pid is None
        engine.begin()
        begun = engine.worker_pid
        assert begun is not None
        engine.begin()
        engine.ready()
        assert engine.worker_pid == begun


def test_models_that_nobody_holds_are_forgotten(tmp_path: Path, temporary: Path):
    def files() -> int:
        return len(list(temporary.rglob("*.onnx")))

    with IsolatedEngine(HOSTILE, LIMITS, tmp_path / "logs") as engine:
        kept = engine.compile(model("kept"), Path())
        trial = engine.compile(model("trial"), Path())
        assert kept.plan().layers[0].nodes == ("kept", "trial")
        assert files() == 2
        with pytest.raises(RunError):
            engine.compile(model("refuse in compile"), Path())
        del trial
        gc.collect()
        assert kept.plan().layers[0].nodes == ("kept",)
        assert files() == 1
    assert not list(temporary.glob("placer-*"))
    with pytest.raises(RunError, match="the engine is closed"):
        kept.run(ONES)


def script(text: str, logs: Path) -> subprocess.Popen[str]:
    """A process of its own that uses an isolated engine and prints the worker's process id."""
    start = f"""
        from pathlib import Path
        from tests.engines.test_isolation import *
        engine = IsolatedEngine(HOSTILE, Limits(), Path({str(logs)!r}))
        print(process_of(engine.compile(model("baseline"), Path())), flush=True)
    """
    code = textwrap.dedent(start) + text
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root
    )


@pytest.mark.slow
def test_a_killed_parent_takes_the_worker_and_its_files_along(tmp_path: Path, temporary: Path):
    parent = script("engine.compile(model('hang_with_a_child in compile'), Path())", tmp_path)
    worker = int(parent.stdout.readline())
    log = tmp_path / "worker-1.log"
    assert wait_until(lambda: "child " in log.read_text())
    child = int(log.read_text().partition("child ")[2].split()[0])
    assert list(temporary.glob("placer-*"))
    parent.kill()
    parent.communicate()
    assert wait_until(lambda: is_gone(worker) and is_gone(child))
    assert not list(temporary.glob("placer-*"))


@pytest.mark.slow
def test_nothing_is_left_behind_when_the_interpreter_exits(tmp_path: Path, temporary: Path):
    parent = script("engine.compile(model('forgotten'), Path())", tmp_path)
    printed, _ = parent.communicate()
    assert parent.returncode == 0
    assert is_gone(int(printed))
    assert not list(temporary.glob("placer-*"))


@pytest.mark.slow
@pytest.mark.usefixtures("temporary")
def test_an_interrupt_ends_the_call_and_the_worker(tmp_path: Path):
    interrupted = """
try:
    engine.compile(model("hang in compile"), Path())
except KeyboardInterrupt:
    print(process_of(engine.compile(model("again"), Path())))
"""
    parent = script(interrupted, tmp_path)
    worker = int(parent.stdout.readline())
    log = tmp_path / "worker-1.log"
    assert wait_until(lambda: log.read_text().count("-- building") == 2)
    parent.send_signal(signal.SIGINT)
    printed, _ = parent.communicate(timeout=30)
    assert is_gone(worker)
    assert int(printed) != worker


# Engines that do not start.


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            EngineSpec("no_such_vendor", "Engine"),
            r"^the engine failed while starting: ModuleNotFoundError: No module named "
            r"'no_such_vendor'; its log is .*worker-1\.log$",
        ),
        (EngineSpec(HOSTILE.module, HOSTILE.factory, {"wrong": 1}), r"TypeError: .*'wrong'"),
        (
            EngineSpec(HOSTILE.module, HOSTILE.factory, {"at_start": "refuse"}),
            r"^the parser refuses node 'conv1'$",
        ),
        (
            EngineSpec(HOSTILE.module, HOSTILE.factory, {"at_start": "leave"}),
            r"^the engine exited with status 3 while starting; its log is ",
        ),
        pytest.param(
            EngineSpec(HOSTILE.module, HOSTILE.factory, {"at_start": "hang"}),
            r"^the engine took more than 2 s and was stopped while starting; its log is ",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_engine_that_does_not_start(
    spec: EngineSpec, sentence: str, tmp_path: Path, temporary: Path
):
    limits = Limits(start_s=2) if "took more than 2 s" in sentence else Limits()
    with pytest.raises(RunError, match=sentence):
        IsolatedEngine(spec, limits, tmp_path / "logs")
    assert not list(temporary.glob("placer-*"))


@pytest.mark.slow
def test_a_log_folder_that_cannot_be_made_is_the_users_error(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot create .*for the engine's logs: .*; choose"):
        IsolatedEngine(ORT, Limits(), tmp_path / "file" / "logs")


# A whole study.


CONVS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,64,16,16] x) => (float[1,64,16,16] y)
<float[64,64,1,1] w1 = {0.01}, float[64,64,1,1] w2 = {0.01}, float[64,64,3,3] w3 = {0.01}> {
  [conv1] a = Conv(x, w1)
  [conv2] b = Conv(a, w2)
  [relu2] c = Relu(b)
  [conv3] y = Conv<pads = [1, 1, 1, 1]>(c, w3)
}
"""


@pytest.mark.slow
def test_a_study_goes_on_after_candidates_that_kill_the_engine(save: Save, tmp_path: Path):
    request = Request(save(CONVS), engine="onnxruntime", preset="quick", calibration="minmax")
    task = prepare(request, QuietObserver())
    # The default quantizes the first convolution's input; without the first layer it does not.
    spec = dataclasses.replace(HOSTILE, arguments={"deadly": "x"})
    with IsolatedEngine(spec, Limits(), tmp_path / "logs") as engine:
        task = dataclasses.replace(task, engine=engine)
        bench = set_up(task, QuietObserver())
        storage = open_storage(f"sqlite:///{tmp_path / 'study.db'}", shared=False)
        study = Study(storage, "study", task.space, {})
        landscapes = make_landscapes(task)
        runner = TrialRunner(
            bench.candidates,
            bench.evaluator,
            bench.baseline,
            task.inputs,
            5,
            layers=ProfiledLayers(task, landscapes, []),
        )
        proposer = SurrogateProposer(landscapes[task.base], 0, bench.noise)
        study.run(proposer, runner, budget=5, deadline=None, on_trial=lambda _: None)
        records = {record.kind: record for record in study.records()}
        sentence = "the engine crashed (signal 11) while building the candidate; its log is "
        assert (records["default"].error or "").startswith(sentence)
        assert records["none"].error is None
        assert any(r.error is None for r in study.records() if r.kind in ("surrogate", "explore"))
        best = [r for r in by_latency(study.records()) if r.placement_id != EMPTY.id]
        finalists = [
            Finalist(r, [bench.candidates.compile(task.space.placement(r.choices))]) for r in best
        ]
        winner = race(engine, finalists, task.inputs, rounds=5, races=2)
        final = confirm(engine, winner, [bench.baseline], task.inputs, rounds=5)
        assert final.entry in best
        assert final.seconds.shape == (5, 2)
