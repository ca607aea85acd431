"""Models on several machines: Dask workers on the loopback, one of which is killed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest

import placer
from placer.cli.onboard import markdown_of
from placer.errors import InputError, RunError
from placer.onboarding.dask import OnDask
from placer.onboarding.describe import Described
from placer.onboarding.manifest import read_manifest
from placer.onboarding.manifest_fields import Options
from placer.onboarding.planning import plan
from placer.onboarding.process import Outcome
from placer.results.onboarding import ModelSummary, Summary
from tests.conftest import two_convs, with_random_weights

Cluster = tuple[str, list[subprocess.Popen[bytes]]]

MODELS = 4
ESTIMATE = "{preset: quick, budget: 2, cache: false, calibration: minmax}"


# --- targets ---------------------------------------------------------------------------------


def test_every_model_is_optimized_for_every_target(tmp_path: Path):
    (tmp_path / "net.onnx").touch()
    (tmp_path / "models.yaml").write_text(
        "targets: {t4: {gpu: t4}, cpu: {engine: onnxruntime, budget: 3}}\n"
        "defaults: {engine: fusion-model, budget: 8}\n"
        "models: [{model: '*.onnx'}, {model: net.onnx, name: other, budget: 5}]\n"
    )
    jobs = read_manifest(tmp_path / "models.yaml").jobs
    assert [(job.name, job.of, job.target) for job in jobs] == [
        ("other-t4", "other", "t4"),
        ("other-cpu", "other", "cpu"),
    ]
    assert [(job.options.engine, job.options.budget) for job in jobs] == [
        ("fusion-model", 5),
        ("onnxruntime", 3),
    ]


def test_the_second_table_has_a_column_for_each_target():
    none = dict.fromkeys(ModelSummary.model_fields)

    def model(of: str, target: str, state: str, speedup: float | None) -> ModelSummary:
        given = {"name": f"{of}-{target}", "of": of, "target": target, "state": state}
        return ModelSummary.model_construct(
            **{**none, **given, "speedup": speedup, "reason": "", "why": "", "gates": []}
        )

    rows = [
        model("net", "t4", "faster", 1.5),
        model("net", "l4", "gate not met", None),
        model("wide", "l4", "float kept", 1.0),
    ]
    text = markdown_of(Summary.model_construct(models=rows))
    assert text.endswith(
        "| speed-up | t4 | l4 |\n"
        "| --- | --- | --- |\n"
        "| net | 1.50 | gate not met |\n"
        "| wide |  | float kept |\n"
    )


# --- workers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["tcp://127.0.0.1:8786", "dask://scheduler", "ray://a:1", "dask://a:port", "dask://:8786"],
)
def test_only_addresses_of_schedulers_are_taken(address: str):
    with pytest.raises(InputError, match="give dask://HOST:PORT of a scheduler"):
        OnDask(address)


def test_devices_are_of_one_machine(tmp_path: Path):
    (tmp_path / "net.onnx").touch()
    path = tmp_path / "models.yaml"
    path.write_text("devices: [0]\nmodels: [{model: net.onnx}]\n")
    with pytest.raises(InputError, match="'devices' is for this machine"):
        read_manifest(path, executor="dask://host:8786")


def started(*arguments: str, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / f"{arguments[0]}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{arguments[0]}", *arguments[1:]],
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**os.environ, "DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT": "5s"},
        )


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, "waited for too long"
        time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler and three workers of one thread each."""
    pytest.importorskip("distributed", reason="pip install 'placer[dask]'")
    file = tmp_path / "scheduler.json"
    scheduler = started(
        "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
        "--scheduler-file", str(file), folder=tmp_path,
    )  # fmt: skip
    until(file.exists)
    import distributed  # noqa: PLC0415 - an extra

    workers = [
        started(
            "dask_worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny",
            "--no-dashboard", "--name", str(number), folder=tmp_path,
        )
        for number in range(3)
    ]  # fmt: skip
    try:
        with distributed.Client(scheduler_file=str(file), set_as_default=False) as client:
            until(lambda: len(client.nthreads()) == len(workers))
            address = str(client.scheduler.address).replace("tcp://", "dask://")
        yield address, workers
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


@pytest.mark.slow
def test_the_models_of_a_lost_worker_are_done_again(tmp_path: Path, cluster: Cluster):
    address, workers = cluster
    (tmp_path / "nets").mkdir()
    for number in range(MODELS):
        net = two_convs(channels=8, size=16, weight=0.1 + 0.1 * number)
        onnx.save(with_random_weights(net), tmp_path / "nets" / f"net{number}.onnx")
    (tmp_path / "models.yaml").write_text(
        f"defaults: {ESTIMATE[:-1]}, engine: fusion-model, gpu: a100}}\n"
        "models: [{model: nets/*.onnx}]\n"
    )
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if text.startswith("net2"):  # Three have begun, one on each worker.
            workers[0].kill()

    summary = placer.onboard(tmp_path / "models.yaml", executor=address, tell=tell)
    assert summary.exit_code == 0, told
    assert len({model.device for model in summary.models}) == 2
    again = placer.plan_onboarding(tmp_path / "models.yaml", executor=address)
    assert {one.action for one in again.planned} == {"nothing"}


@pytest.mark.slow
def test_a_folder_that_workers_do_not_have_is_named(tmp_path: Path, cluster: Cluster):
    executor = OnDask(cluster[0])
    with pytest.raises(RunError, match=r"worker tcp://\S+: \S+/other is not there; give all"):
        executor.describe(Options(engine="fusion-model"), tmp_path / "other")
    executor.close()


@pytest.mark.slow
def test_a_model_without_any_worker_left_can_be_given_up(tmp_path: Path, cluster: Cluster):
    address, workers = cluster
    (tmp_path / "net.onnx").touch()
    (tmp_path / "models.yaml").write_text("models: [{model: net.onnx}]\n")
    executor = OnDask(address)
    (planned,) = plan(
        read_manifest(tmp_path / "models.yaml"),
        None,
        lambda _options, _folder: Described(engine="onnxruntime", pack="onnxruntime"),
    )
    for worker in workers:
        worker.kill()
    begun = executor.start(planned, tmp_path)
    begun.interrupt()
    assert begun.poll() is None
    begun.kill()
    until(lambda: begun.poll() is not None)
    assert begun.poll() == Outcome("interrupted", "interrupted; the same command goes on with it")
    executor.close()


@pytest.mark.slow
def test_without_a_scheduler_or_a_worker_nothing_is_begun():
    pytest.importorskip("distributed", reason="pip install 'placer[dask]'")
    with pytest.raises(RunError, match="no Dask scheduler answers at dask:"):
        OnDask("dask://127.0.0.1:9")
