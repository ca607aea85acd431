"""Many models from one manifest, with the real command line and models that go wrong."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import onnx
import pytest
import yaml
from junitparser import JUnitXml

from placer.cli.app import main
from placer.errors import InputError
from placer.graph.text import parse_model
from placer.onboarding.describe import Described, describe
from placer.onboarding.executors import Local
from placer.onboarding.fingerprints import changes, inputs_of, only_goes_on
from placer.onboarding.junit import junit_xml
from placer.onboarding.manifest import Job, Options, manifest_schema, read_manifest
from placer.onboarding.planning import Planned, clean_up, make_ready, plan, settle
from placer.onboarding.runner import onboard
from placer.results.onboarding import ModelSummary, Record, Summary, exit_code_of, summary_schema
from placer.results.result import Result
from tests.conftest import DIGITS, Finished, two_convs, with_random_weights
from tests.few_digits import copy_few_digits

Placer = Callable[..., Finished]

CONFIGS = Path(__file__).parents[2] / "configs"

NET = two_convs(channels=16, size=16)
WIDER = two_convs(channels=16, size=16, weight=0.2)
UNSUPPORTED = """
<ir_version: 9, opset_import: ["": 17, "acme": 1]>
g (float[1,4] x) => (float[1,4] y) { [act] y = acme.Relu(x) }
"""
# An estimate takes a second, a measurement several.
ESTIMATE = "{preset: quick, budget: 2, cache: false, engine: fusion-model, gpu: a100}"


def save_net(path: Path, text: str = NET) -> None:
    path.parent.mkdir(exist_ok=True)
    onnx.save(with_random_weights(text), path)


def command(manifest: Path, *options: str) -> list[str]:
    program = "from placer.cli.app import main; main()"
    return [sys.executable, "-c", program, "onboard", str(manifest), *options]


def run(manifest: Path, *options: str) -> Finished:
    """Run the command line in this process; the models have processes of their own."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["placer", "onboard", str(manifest), *options])
        with pytest.raises(SystemExit) as ended:
            main()
    return Finished(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def summary_in(output: Path) -> dict[str, ModelSummary]:
    summary = Summary.model_validate_json((output / "summary.json").read_text())
    return {model.name: model for model in summary.models}


def states(output: Path) -> dict[str, str]:
    return {name: model.state for name, model in summary_in(output).items()}


@dataclass(frozen=True)
class Step:
    """One run of the same command: how it ended and what it left."""

    finished: Finished
    summary: dict[str, ModelSummary]
    junit: JUnitXml
    files: dict[str, tuple[int, int]]
    trials: dict[str, int]


@dataclass(frozen=True)
class Story:
    """A first run, one after which nothing changed, and one after which one model did."""

    output: Path
    first: Step
    second: Step
    third: Step


STORY = """
defaults:
  {preset: quick, budget: 2, calibration: minmax, cache: false, engine: fusion-model, gpu: a100}
jobs: 2
models:
  - model: nets/*.onnx
  - model: nets/strict.onnx
    gates: sqnr>=200
  - model: digits.onnx
    data: calibration.npz
    eval_data: evaluation.npz
    engine: onnxruntime
    gpu: null
    priority: 1
  - model: corrupt.onnx
  - model: unsupported.onnx
"""


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("onboard")
    for name in ("a", "b", "strict"):
        save_net(folder / "nets" / f"{name}.onnx")
    copy_few_digits(folder)
    cut = (DIGITS / "digits.onnx").read_bytes()[:100_000]
    (folder / "corrupt.onnx").write_bytes(cut)
    onnx.save(parse_model(UNSUPPORTED), folder / "unsupported.onnx")
    manifest = folder / "models.yaml"
    manifest.write_text(STORY)
    output = folder / "models.placer"

    def step() -> Step:
        finished = run(manifest)
        summary = summary_in(output)
        files = {
            str(path.relative_to(output)): (path.stat().st_mtime_ns, path.stat().st_ino)
            for name in summary
            for path in (output / name).iterdir()
        }
        trials = {
            name: len(Result.read(output / model.result).trials)
            for name, model in summary.items()
            if model.result is not None
        }
        return Step(finished, summary, JUnitXml.fromfile(str(output / "junit.xml")), files, trials)

    first, second = step(), step()
    save_net(folder / "nets" / "b.onnx", WIDER)
    return Story(output, first, second, step())


GOOD = ("a", "b", "digits")
EXPECTED = {
    "digits": "faster",
    "a": "faster",
    "b": "faster",
    "strict": "gate not met",
    "corrupt": "bad input",
    "unsupported": "bad input",
}


@pytest.mark.slow
def test_every_model_ends_in_its_own_state(story: Story):
    found = {name: model.state for name, model in story.first.summary.items()}
    kept = {name: "faster" if state == "float kept" else state for name, state in found.items()}
    assert kept == EXPECTED
    assert next(iter(found)) == "digits"
    assert story.first.finished.code == 1
    assert story.first.finished.err == ""
    reasons = {name: model.reason for name, model in story.first.summary.items()}
    assert reasons["corrupt"].startswith("corrupt.onnx is not an ONNX file, or was cut short")
    assert "operator Relu of the unknown domain 'acme'" in reasons["unsupported"]
    assert "none of 1 quantized candidates meets sqnr>=200" in reasons["strict"]
    assert story.first.trials == dict.fromkeys((*GOOD, "strict"), 2)


@pytest.mark.slow
def test_the_table_and_the_files_say_what_is_an_estimate(story: Story):
    summary = story.first.summary
    assert {name: summary[name].estimated for name in GOOD} == {
        "a": True,
        "b": True,
        "digits": False,
    }
    assert story.first.finished.out.count("(estimate)") > 2
    properties = {suite.name: {p.name for p in suite.properties()} for suite in story.first.junit}
    assert "estimated speedup" in properties["a"]
    assert "speedup" in properties["digits"]
    low, high = summary["digits"].speedup_interval
    assert low <= summary["digits"].speedup <= high
    assert [gate.gate for gate in summary["digits"].gates] == ["top1_drop<=0.01"]


@pytest.mark.slow
def test_junit_tells_misses_from_failures(story: Story):
    (strict,) = next(suite for suite in story.first.junit if suite.name == "strict")
    assert [(type(r).__name__, r.type) for r in strict.result] == [("Failure", "gate not met")]
    for step in (story.first, story.second, story.third):
        suites = list(step.junit)
        assert [suite.name for suite in suites] == list(EXPECTED)
        assert [suite.name for suite in suites if suite.failures] == ["strict"]
        assert [suite.name for suite in suites if suite.errors] == ["corrupt", "unsupported"]


@pytest.mark.slow
def test_a_second_run_does_nothing_and_ends_the_same(story: Story):
    assert story.second.files == story.first.files
    assert story.second.trials == story.first.trials
    assert story.second.finished.code == story.first.finished.code
    assert not any(model.ran for model in story.second.summary.values())
    assert {model.why for model in story.second.summary.values()} == {"nothing changed"}
    assert "faster, up to date" in story.second.finished.out
    assert "gate not met, unchanged" in story.second.finished.out
    assert "bad input, unchanged" in story.second.finished.out


@pytest.mark.slow
def test_a_third_run_redoes_the_one_model_that_changed(story: Story):
    ran = {name: model.why for name, model in story.third.summary.items() if model.ran}
    assert ran == {"b": "model changed"}
    changed = {
        name.split("/")[0]
        for name, stamp in story.third.files.items()
        if story.second.files.get(name) != stamp
    }
    assert changed == {"b"}
    assert "b: redo: model changed" in story.third.finished.out
    before, after = (step.summary["b"].state for step in (story.second, story.third))
    assert {before, after} <= {"faster", "float kept"}
    assert not list(story.output.glob("*.new")) + list(story.output.glob(".*.old"))


def test_the_published_schemas_are_current():
    manifests = json.loads((CONFIGS / "onboarding.schema.json").read_text())
    assert manifests == manifest_schema()
    jsonschema.validate(yaml.safe_load(STORY), manifests)
    jsonschema.validate(yaml.safe_load((CONFIGS / "onboarding.yaml").read_text()), manifests)
    with pytest.raises(jsonschema.ValidationError, match="'buget' was unexpected"):
        jsonschema.validate({"models": [{"model": "a.onnx", "buget": 3}]}, manifests)
    summaries = json.loads((CONFIGS / "onboarding.summary.schema.json").read_text())
    assert summaries == summary_schema()


@pytest.mark.slow
def test_a_summary_follows_its_schema(story: Story):
    jsonschema.validate(json.loads((story.output / "summary.json").read_text()), summary_schema())


def test_the_example_manifest_names_the_bundled_model():
    found = read_manifest(CONFIGS / "onboarding.yaml")
    assert [job.name for job in found.jobs] == ["digits", "digits-a100"]
    assert {(found.folder / job.model).resolve() for job in found.jobs} == {DIGITS / "digits.onnx"}


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
    assert found["fine"].state in ("faster", "float kept")

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
  - {model: long.onnx, budget: 1000}
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


WRONG = [
    ("models: []", "models.yaml:1: field 'models': List should have at least 1 item"),
    ("models:\n  - model: a.onnx\n    buget: 3", "models.yaml:3: field 'models.0.buget': Extra"),
    (
        "models:\n  - model: a.onnx\n    gates: sqnr>15",
        "models.yaml:3: field 'models.0.gates.0': gate 'sqnr>15' is no condition",
    ),
    (
        "models:\n  - {model: a.onnx, timeout: soon}",
        "models.yaml:2: field 'models.0.timeout': time 'soon' is no duration; write e.g. 90s",
    ),
    (
        "models:\n  - {model: a.onnx, shapes: {x: 1by3}}",
        "models.yaml:2: field 'models.0.shapes': shape 'x=1by3' is no shape",
    ),
    ("models:\n  - model: nets/*.onnx", "models.yaml:2: no file matches 'nets/*.onnx'"),
    ("models: [{model: x/net.onnx}, {model: y/net.onnx}]", "are both called 'net'; give one"),
    ("models: [{model: net.onnx}, {model: ./net.onnx}]", "model ./net.onnx is named twice"),
    ("models: [{model: a.onnx, name: Summary.json}]", "cannot be called 'Summary.json'"),
    ("devices: [0, 0]\nmodels: [{model: a.onnx}]", "field 'devices' names a device twice"),
    ("devices: [0]\njobs: 2\nmodels: [{model: a.onnx}]", "2 jobs cannot share 1 devices"),
    ("models: [{model: a.onnx}", "not valid YAML"),
]


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_a_wrong_manifest_is_one_sentence_and_runs_nothing(
    placer: Placer, text: str, expected: str
):
    Path("models.yaml").write_text(text)
    finished = placer("onboard", "models.yaml")
    assert finished.code == 2
    assert expected in finished.err
    assert finished.err.startswith("placer: error: ")
    assert finished.err.count("\n") == 1
    assert [path.name for path in Path().iterdir()] == ["models.yaml"]


def test_what_is_not_there_or_not_ours_is_refused(placer: Placer):
    assert "models.yaml does not exist" in placer("onboard", "models.yaml").err
    Path("models.yaml").write_text("models: [{model: a.onnx, engine: fusion-model, gpu: a100}]")
    unknown = placer("onboard", "models.yaml", "--redo-model", "b", "--dry-run")
    assert "unknown model" in unknown.err
    mine = Path("models.placer/a/thesis.txt")
    mine.parent.mkdir(parents=True)
    mine.write_text("years of work")
    refused = placer("onboard", "models.yaml", "--redo")
    assert refused.code == 2
    assert "holds something that placer onboard has not written" in refused.err
    assert mine.read_text() == "years of work"


@pytest.mark.slow
def test_the_folder_of_the_table_is_made_before_the_work(placer: Placer):
    Path("net.onnx").write_text("no model")
    Path("models.yaml").write_text("models:\n  - model: net.onnx\n")
    assert placer("onboard", "models.yaml", "--markdown", "new/table.md").code == 1
    assert "| net | bad input |" in Path("new/table.md").read_text()
    Path("file").write_text("")
    finished = placer("onboard", "models.yaml", "--output", "other", "--markdown", "file/table.md")
    assert finished.code == 2
    assert not Path("other").exists()


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(placer: Placer):
    Path("models.yaml").write_text(f"defaults: {ESTIMATE}\nmodels: [{{model: gone.onnx}}]")
    finished = placer("onboard", "models.yaml", "--dry-run")
    assert finished.code == 0
    assert "gone.onnx" in finished.out
    assert [path.name for path in Path().iterdir()] == ["models.yaml"]


def manifest_of(folder: Path, text: str, *files: str) -> list[Job]:
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (folder / "models.yaml").write_text(text)
    return list(read_manifest(folder / "models.yaml").jobs)


def test_names_come_from_where_a_glob_begins(tmp_path: Path):
    files = ("zoo/a/model.onnx", "zoo/b c/model.onnx", "zoo/net.onnx")
    results = ("models.placer/net/optimized.onnx", "zoo/net.placer/optimized.onnx")
    jobs = manifest_of(tmp_path, "models: [{model: 'zoo/**/*.onnx'}]", *files, *results)
    assert [(job.name, job.model) for job in jobs] == [
        ("a-model", "zoo/a/model.onnx"),
        ("b_c-model", "zoo/b c/model.onnx"),
        ("net", "zoo/net.onnx"),
    ]
    everything = manifest_of(tmp_path, "models: [{model: '**/*.onnx'}]")
    assert [job.name for job in everything] == ["zoo-a-model", "zoo-b_c-model", "zoo-net"]


def test_an_entry_counts_before_globs_and_these_before_defaults(tmp_path: Path):
    text = """
defaults: {budget: 9, seed: 1, data: calib.npz, gates: [sqnr>=10]}
models:
  - {model: big.onnx, data: null, shapes: {x: [1, 3, 8, 8]}, time_limit: 90}
  - {model: '*.onnx', budget: 5, priority: 2}
  - {model: 's*.onnx', seed: 7}
  - {model: small.onnx, name: twin, engine: fusion-model, priority: 3}
"""
    jobs = {job.name: job for job in manifest_of(tmp_path, text, "big.onnx", "sea.onnx")}
    assert list(jobs) == ["twin", "big", "sea"]
    big, sea, twin = (jobs[name].options for name in ("big", "sea", "twin"))
    assert (big.budget, big.seed, big.data, big.shapes) == (5, 1, None, {"x": "1x3x8x8"})
    assert jobs["big"].time_limit == 90
    assert (sea.budget, sea.seed, sea.data, sea.gates) == (5, 7, "calib.npz", ["sqnr>=10"])
    assert (twin.budget, twin.engine) == (9, "fusion-model")


def test_everything_that_decides_the_result_is_compared(tmp_path: Path):
    model = onnx.load(DIGITS / "digits.onnx")
    onnx.save(
        model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one.npy").write_bytes(b"1")
    (tmp_path / "metrics.py").write_text("def score(outputs, batch): return 1")
    options = Options(data="data", eval_data="metrics:batches", gates=["metrics:score>=1"])
    described = Described(engine="e 1, CPU", pack="p 1.2.0 (aa)")

    def now(**other: object) -> dict[str, str]:
        job = Job("m", "m.onnx", Options.model_validate({**dict(options), **other}))
        return inputs_of(job, described, tmp_path)

    before = now()
    assert changes(before, now()) == []
    assert changes(before, now(budget=4, priority=3, time_limit="1h")) == ["budget added"]
    assert changes(now(seed=1), now(seed=2)) == ["seed changed: 1 -> 2"]
    # What is done with the best trial does not decide the trials.
    assert only_goes_on(before, now(budget=4, timeout="1h", recover="auto"))
    assert not only_goes_on(before, now(seed=1))
    described = Described(engine="e 2, CPU", pack="p 1.3.0 (bb)")
    assert changes(before, now()) == [
        "engine changed: e 1, CPU -> e 2, CPU",
        "pack changed: p 1.2.0 (aa) -> p 1.3.0 (bb)",
    ]
    before = now()
    with (tmp_path / "w.bin").open("r+b") as weights:
        weights.write(b"\0\0\0\1")
    (tmp_path / "data" / "two.npy").write_bytes(b"2")
    (tmp_path / "metrics.py").write_text("def score(outputs, batch): return 2")
    assert changes(before, now()) == [
        "model changed",
        "data changed",
        "eval_data changed",
        "gate function metrics:score changed",
    ]
    (tmp_path / "m.onnx").unlink()
    assert changes(before, now())[0] == "model is missing"


def test_earlier_results_stay_until_new_ones_are_there(tmp_path: Path):
    home, new = tmp_path / "net", tmp_path / "net.new"
    done = Record(state="faster", reason="", inputs={"model": "1"}, seconds=1)
    home.mkdir()
    (home / "result.json").write_text("old")
    done.write(home)
    job = Job("net", "net.onnx", Options())
    described = Described(engine="", pack="")
    planned = Planned(job, "redo", "model changed", home, new, {"model": "2"}, described, None)

    make_ready(planned)
    assert Record.read(new) == Record(state="running", reason="", inputs={"model": "2"}, seconds=0)
    crashed = Record(state="crashed", reason="", inputs={"model": "2"}, seconds=1)
    assert settle(planned, crashed) == new
    assert (home / "result.json").read_text() == "old"

    (new / "result.json").write_text("new")
    missed = crashed.model_copy(update={"state": "gate not met"})
    missed.write(new)  # Killed before the one takes the place of the other.
    clean_up(home)
    assert (home / "result.json").read_text() == "new"
    assert Record.read(home) == missed
    assert [path.name for path in tmp_path.iterdir()] == ["net"]


def test_the_lock_file_is_that_of_the_manifests_folder(tmp_path: Path):
    assert describe(Options(engine="onnxruntime"), None, tmp_path).lock == ""
    pin = {"name": "onnxruntime", "version": "0.0.1", "hash": f"sha256:{'0' * 64}"}
    (tmp_path / "placer.lock").write_text(yaml.safe_dump({"format": 1, "packs": [pin]}))
    found = describe(Options(engine="onnxruntime"), None, tmp_path)
    assert "pins rule pack onnxruntime 0.0.1" in found.lock
    assert found.shares_cpu
    unknown = describe(Options(engine="abacus"), None, tmp_path)
    assert unknown.engine.startswith("unknown, unknown engine 'abacus'")


def test_openvino_measures_on_the_cpu_which_is_no_device_to_choose(tmp_path: Path):
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    found = describe(Options(engine="openvino"), "0", tmp_path)
    assert found.engine.startswith("openvino ")
    assert (found.takes_device, found.shares_cpu) == (False, True)


@pytest.mark.slow
def test_an_engine_is_described_also_where_its_scheme_is_left_open(tmp_path: Path):
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    found = describe(Options(engine="openvino", scheme="auto"), None, tmp_path)
    assert found == describe(Options(engine="openvino"), None, tmp_path)


def test_a_tab_that_one_reader_of_yaml_takes(tmp_path: Path):
    """LibYAML takes a tab behind a key, PyYAML's own scanner does not."""
    (tmp_path / "models.yaml").write_text("jobs: 1\nmodels:\t\n- model: a.onnx\n")
    try:
        found = read_manifest(tmp_path / "models.yaml")
    except InputError as error:  # Where PyYAML was built without LibYAML.
        assert "not valid YAML" in str(error)
    else:
        assert [job.name for job in found.jobs] == ["a"]


def test_a_second_onboarding_of_one_folder_is_refused(tmp_path: Path):
    from filelock import FileLock  # noqa: PLC0415

    (tmp_path / "models.yaml").write_text("models: [{model: a.onnx}]")
    onboarding = read_manifest(tmp_path / "models.yaml")
    onboarding.output.mkdir()
    with (
        FileLock(onboarding.output / ".onboarding.lock"),
        pytest.raises(InputError, match="another placer onboard works in"),
    ):
        onboard(onboarding, frozenset(), print, Local(onboarding.slots))


def test_the_worst_state_decides_the_exit_code():
    assert exit_code_of(["faster", "float kept"]) == 0
    assert exit_code_of(["faster", "gate not met"]) == 3
    for state in ("bad input", "failed", "crashed", "timed out", "interrupted", "waiting"):
        assert exit_code_of(["faster", "gate not met", state]) == 1


@pytest.mark.slow
def test_junit_holds_any_reason(story: Story):
    odd = story.first.summary["corrupt"].model_copy(update={"reason": "<\x1b[31m> \ud800 & 名"})
    summary = Summary.model_validate_json((story.output / "summary.json").read_text())
    text = junit_xml(summary.model_copy(update={"models": [odd]}))
    (suite,) = JUnitXml.fromstring(text)
    (case,) = suite
    assert case.result[0].message == "<?[31m> ? & 名"
