"""Several workers on one study: claims, deaths, late starts; SQLite and a real PostgreSQL."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from placer.errors import InputError
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.run import optimize
from placer.optimizer.worker import request_json
from placer.quantization import Placement
from placer.results.result import Result
from placer.search.records import Outcome, TrialRecord, by_latency
from placer.search.study.storage import MAX_RETRIES, open_storage
from placer.search.study.study import Study
from placer.search.study.trial_attributes import distributions
from tests import postgresql
from tests.conftest import DIGITS, Finished
from tests.search.landscapes import space
from tests.search.outcomes import outcome
from tests.search.sleepy import NAME, open_shared, run, worker

SPAWN = multiprocessing.get_context("spawn")
Placer = Callable[..., Finished]


@pytest.fixture(scope="module")
def postgresql_url() -> Iterator[str]:
    why = postgresql.unavailable()
    if why is not None:
        pytest.skip(why)
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with postgresql.server() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shared.db'}"
    return str(request.getfixturevalue("postgresql_url"))


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_one_worker_is_killed_one_is_late_and_nothing_is_lost_or_done_twice(
    url: str, tmp_path: Path
):
    alone = open_storage(f"sqlite:///{tmp_path / 'alone.db'}", shared=False)
    expected = run(Study(alone, NAME, space(), {"model": "m"}))
    logs = [tmp_path / f"worker{i}.txt" for i in range(4)]
    workers = [SPAWN.Process(target=worker, args=(url, log, i == 0)) for i, log in enumerate(logs)]
    # The one to be killed is first: where all start at once the others may do everything before it.
    workers[0].start()
    wait_for(lambda: lines(logs[0]))
    for process in workers[1:3]:
        process.start()
    wait_for(lambda: lines(logs[1]) or lines(logs[2]))
    os.kill(workers[0].pid or 0, signal.SIGKILL)
    workers[3].start()
    for process in workers:
        process.join(60)
    assert [process.exitcode for process in workers] == [-signal.SIGKILL, 0, 0, 0]
    records = open_shared(url).records()
    every = Counter(record.placement_id for record in expected)
    assert Counter(record.placement_id for record in records) == every
    assert by_latency(records)[0].ratio == by_latency(expected)[0].ratio
    done = [line for log in logs for line in lines(log)]
    ended = Counter(line.split()[1] for line in done if line.startswith("end"))
    assert ended == every
    begun = Counter(line.split()[1] for line in done if line.startswith("begin"))
    killed = lines(logs[0])[0].split()[1]
    assert begun == every + Counter([killed])
    study = optuna.load_study(study_name=NAME, storage=open_storage(url, shared=False))
    states = Counter(trial.state for trial in study.trials)
    withdrawn = sum("withdrawn" in trial.user_attrs for trial in study.trials)
    assert states == {TrialState.COMPLETE: len(records), TrialState.FAIL: 1 + withdrawn}


def add_trial(url: str, **attributes: object) -> optuna.Study:
    """Add a waiting trial of the default placement, as a worker does that then dies."""
    defaults = space().defaults
    study = optuna.load_study(study_name=NAME, storage=url)
    study.add_trial(
        create_trial(
            state=TrialState.WAITING,
            params=dict(defaults),
            distributions={name: distributions(space())[name] for name in defaults},
            user_attrs={
                "kind": "default",
                "placement": space().placement(defaults).id,
                **attributes,
            },
        )
    )
    return study


def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shared.db'}"


def test_of_two_claims_on_one_placement_the_later_is_withdrawn(tmp_path: Path):
    study = open_shared(sqlite(tmp_path))
    add_trial(sqlite(tmp_path))
    kept = add_trial(sqlite(tmp_path))
    assert [record.number for record in run(study, budget=1)] == [0]
    assert [trial.state for trial in kept.trials] == [TrialState.COMPLETE, TrialState.FAIL]
    assert kept.trials[1].user_attrs["withdrawn"]


@pytest.mark.slow
def test_a_claim_beyond_the_budget_is_withdrawn(tmp_path: Path):
    study = open_shared(sqlite(tmp_path))
    run(study, budget=2)
    add_trial(sqlite(tmp_path))
    assert run(study, budget=2) == []


@pytest.mark.slow
def test_a_trial_that_kills_every_worker_is_given_up(tmp_path: Path):
    study = open_shared(sqlite(tmp_path), heartbeat_s=1, grace_s=1)
    add_trial(sqlite(tmp_path), deaths=MAX_RETRIES)
    storage = open_storage(sqlite(tmp_path), shared=True)
    storage.record_heartbeat(1)
    storage.set_trial_state_values(1, TrialState.RUNNING)
    run(study, budget=1)
    assert [record.error for record in study.records()] == [
        "4 workers died while they evaluated it"
    ]


@pytest.mark.slow
def test_a_worker_that_was_taken_for_dead_drops_its_result(tmp_path: Path):
    released, began = Event(), Event()

    def slow(_: Placement) -> Outcome:
        began.set()
        assert released.wait(60)
        return outcome(0.1)

    own: list[TrialRecord] = []
    # Its first heartbeat is its last: the next is due in a minute.
    paused = open_shared(sqlite(tmp_path), heartbeat_s=60)
    thread = Thread(target=lambda: own.extend(run(paused, slow, budget=1)))
    thread.start()
    assert began.wait(60)
    other = open_shared(sqlite(tmp_path))
    done = run(other, budget=1)
    released.set()
    thread.join(60)
    assert own == []
    assert other.records() == done
    assert [record.ratio for record in done] != [0.1]


def test_an_interrupted_worker_gives_its_trial_back_at_once(tmp_path: Path):
    def interrupted(_: Placement) -> Outcome:
        raise KeyboardInterrupt

    # Nobody would take it for dead within this test.
    with pytest.raises(KeyboardInterrupt):
        run(open_shared(sqlite(tmp_path), grace_s=3600), interrupted)
    assert len(run(open_shared(sqlite(tmp_path), grace_s=3600), budget=1)) == 1


def test_passwords_are_not_told():
    for url in ("postgresql://me:s3cret@127.0.0.1:1/x", "postgresql:///?host=/nix&password=s3cret"):
        with pytest.raises(InputError, match=r"\*\*\*.* cannot be opened") as told:
            open_storage(url, shared=True)
        assert "s3cret" not in str(told.value)
    with pytest.raises(InputError, match="`storage` is not the URL of a database") as told:
        open_storage("s3cret", shared=True)
    assert "s3cret" not in str(told.value)
    request = Request(Path("m.onnx"), storage="postgresql://me:s3cret@host/x")
    assert "s3cret" not in str(request_json(request))


def test_a_missing_driver_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)  # Python's way to say: not installed.
    with pytest.raises(InputError, match=r"pip install 'psycopg\[binary\]'"):
        open_storage("postgresql://host/x", shared=True)


class InterruptedAfter(QuietObserver):
    """Presses Ctrl-C after some trials."""

    def __init__(self, trials: int) -> None:
        self.left = trials

    def trial(self, record: TrialRecord) -> None:
        del record
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_worker_ends_the_study_and_optimize_then_writes_the_result(placer: Placer):
    url, options = "sqlite:///shared.db", ("--study", "digits", "--storage", "sqlite:///shared.db")
    request = Request(
        DIGITS / "digits.onnx",
        data=str(DIGITS / "calibration.npz"),
        evaluation_data=str(DIGITS / "evaluation.npz"),
        preset="quick",
        budget=6,
        sampler="random",
        storage=url,
        study="digits",
    )
    first = optimize(request, InterruptedAfter(2))
    assert (first.budget.stopped, len(first.trials)) == ("interrupted", 2)
    main = "from placer.cli.app import main; main()"
    command = [sys.executable, "-c", main, "worker", *options, "--no-cache"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "4 trials (4 measured); the study holds 6 trials" in ended.stdout
    again = optimize(request, InterruptedAfter(1))
    assert again.trials[:2] == first.trials
    assert len({trial.placement for trial in again.trials}) == 6
    assert again.calibration == first.calibration

    wrong = ("--data", DIGITS / "evaluation.npz")
    refused = placer("worker", *options, *wrong)
    assert refused.code == 2
    assert "study 'digits' holds a study with other settings (calibration data: " in refused.err
    missing = placer("worker", "--study", "digit", "--storage", url)
    assert missing.code == 2
    assert "unknown study 'digit'; use one of: digits; did you mean 'digits'?" in missing.err


@pytest.mark.slow
def test_a_worker_with_another_model_is_refused(placer: Placer, save: Callable[..., Path]):
    text = """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,3,3] w = {0.1}> {
          [conv] y = Conv<pads = [1, 1, 1, 1]>(x, w)
        }
    """
    options = ("--study", "s", "--storage", "sqlite:///shared.db")
    quick = ("--budget", 2, "--preset", "quick", "--no-cache", "--gate", "sqnr>=0")
    assert placer("optimize", save(text), *quick, *options).came_to_a_result
    other = save(text.replace("0.1", "0.2"), "other.onnx")
    refused = placer("worker", *options, "--model", other)
    assert refused.code == 2
    assert "study 's' holds a study with other settings (" in refused.err
    assert "give this worker what the study was made with" in refused.err


# ONNX Runtime as if this machine had two devices; it notes what is compiled on which.
PAIR = """
from pathlib import Path
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.errors import RunError

class PairEngine(OnnxRuntimeEngine):
    name = "pair"

    def compile(self, model, base_dir):
        with open(f"device{self.index}.txt", "a") as file:
            print("compiled", file=file)
        return super().compile(model, base_dir)

class Factory:
    rules = "onnxruntime"

    def unavailable(self):
        return None

    def create(self, options):
        if options.device not in ("0", "1"):
            raise RunError("there is no such device")
        engine = PairEngine(options.threads)
        engine.index = options.device
        return engine

factory = Factory()
"""


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the engine ``pair``."""
    info = tmp_path / "site" / "pair-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pair\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[placer.engines]\npair = pair_engine:factory\n")
    (info.parent / "pair_engine.py").write_text(PAIR)
    monkeypatch.syspath_prepend(str(info.parent))


@pytest.mark.slow
@pytest.mark.usefixtures("pair")
def test_devices_of_one_machine_search_at_once(placer: Placer):
    quick = ("--engine", "pair", "--preset", "quick", "--budget", 8, "--no-cache")
    options = (*quick, "--sampler", "random", "--data", DIGITS / "calibration.npz")
    finished = placer("optimize", DIGITS / "digits.onnx", *options, "--devices", "0,1")
    assert finished.code == 0, finished.err
    found = Result.model_validate_json(Path("digits.placer/result.json").read_text())
    assert len({trial.placement for trial in found.trials}) == len(found.trials) == 8
    # More than the float model on both: each had trials of its own.
    assert all(len(lines(Path(f"device{i}.txt"))) > 1 for i in (0, 1))
    refused = placer("optimize", DIGITS / "digits.onnx", *options, "--devices", "0,7")
    assert refused.code == 1
    assert "placer: error: device 7: " in refused.err
    assert "there is no such device" in refused.err
    assert placer("optimize", DIGITS / "digits.onnx", *options, "--devices", "0,0").code == 2
