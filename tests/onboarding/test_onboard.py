"""Onboarding: what makes a model run anew, what its engine is, who may work in the folder."""

import errno
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import yaml

from placer.common.files import cannot_write
from placer.errors import InputError
from placer.onboarding.describe import Described, describe
from placer.onboarding.executors import Begun, Local
from placer.onboarding.fingerprints import changes, inputs_of, only_goes_on
from placer.onboarding.manifest import Job, read_manifest
from placer.onboarding.manifest_fields import Options
from placer.onboarding.planning import Planned, clean_up, make_ready, plan, settle
from placer.onboarding.runner import onboard
from placer.results.onboarding import Record, exit_code_of
from tests.conftest import DIGITS


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


@pytest.mark.parametrize(
    "change",
    [
        lambda images: (images / "cat" / "1.jpg").write_bytes(b"2"),
        lambda images: (images / "cat" / "1.jpg").rename(images / "dog" / "1.jpg"),
        lambda images: (images / "preprocess.yaml").write_text("mean: 0.4"),
    ],
)
def test_another_image_class_or_preprocessing_is_other_data(
    change: Callable[[Path], object], tmp_path: Path
):
    images = tmp_path / "images"
    images.mkdir()
    (tmp_path / "cats").mkdir()
    (images / "cat").symlink_to(tmp_path / "cats")
    for name in ("cat/1.jpg", "dog/7.jpg", "preprocess.yaml"):
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        (images / name).touch()
    job = Job("m", "m.onnx", Options(data="images"))
    before = inputs_of(job, Described(engine="", pack=""), tmp_path)
    change(images)
    assert changes(before, inputs_of(job, Described(engine="", pack=""), tmp_path)) == [
        "data changed"
    ]


@pytest.mark.parametrize(
    ("study", "action"), [(None, "resume"), (b"SQLite format 3\0, cut off", "redo")]
)
def test_a_run_does_not_go_on_with_a_study_that_cannot_be_read(
    study: bytes | None, action: str, tmp_path: Path
):
    (tmp_path / "models.yaml").write_text("models: [{model: m.onnx}]")
    onboarding = read_manifest(tmp_path / "models.yaml")
    described = Described(engine="e 1, CPU", pack="p 1.2.0 (aa)")
    home = onboarding.output / "m"
    home.mkdir(parents=True)
    inputs = inputs_of(onboarding.jobs[0], described, tmp_path)
    Record(state="running", reason="", inputs=inputs, seconds=0).write(home)
    if study is not None:
        (home / "study.db").write_bytes(study)
    (planned,) = plan(onboarding, frozenset(), lambda _options, _folder: described)
    assert planned.action == action
    assert planned.why == ("its study cannot be read" if study else "interrupted before")


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


@pytest.mark.slow
def test_the_lock_file_is_that_of_the_manifests_folder(tmp_path: Path):
    assert describe(Options(engine="onnxruntime"), None, tmp_path).lock == ""
    pin = {"name": "onnxruntime", "version": "0.0.1", "hash": f"sha256:{'0' * 64}"}
    (tmp_path / "placer.lock").write_text(yaml.safe_dump({"format": 1, "packs": [pin]}))
    found = describe(Options(engine="onnxruntime"), None, tmp_path)
    assert "pins rule pack onnxruntime 0.0.1" in found.lock
    assert found.shares_cpu
    unknown = describe(Options(engine="abacus"), None, tmp_path)
    assert unknown.engine.startswith("unknown, unknown engine 'abacus'")


@pytest.mark.slow
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
    assert exit_code_of(["faster", "cannot tell", "float kept", "nothing to quantize"]) == 0
    assert exit_code_of(["faster", "gate not met"]) == 3
    for state in ("bad input", "failed", "crashed", "timed out", "interrupted", "waiting"):
        assert exit_code_of(["faster", "gate not met", state]) == 1


class _Unused(Local):
    """Describes without a process and must not begin with any model."""

    def describe(self, options: Options, folder: Path) -> Described:  # noqa: ARG002
        return Described(engine="e 1, CPU", pack="p 1.0.0 (aa)")

    def start(self, planned: Planned, folder: Path) -> Begun:  # noqa: ARG002
        raise AssertionError(f"a process for {planned.job.name}")


def test_files_that_are_no_model_take_no_process(tmp_path: Path):
    digits = (DIGITS / "digits.onnx").read_bytes()
    (tmp_path / "cut.onnx").write_bytes(digits[:100_000])
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "pointer.onnx").write_text("version https://git-lfs.github.com/spec/v1\n")
    external = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(onnx.load_from_string(digits), tmp_path / "weightless.onnx", **external)
    (tmp_path / "w.bin").unlink()
    (tmp_path / "models.yaml").write_text("models: [{model: '*.onnx'}, {model: gone.onnx}]")
    onboarding = read_manifest(tmp_path / "models.yaml")
    summary = onboard(onboarding, frozenset(), lambda _: None, _Unused(onboarding.slots))
    assert {model.name: model.state for model in summary.models} == dict.fromkeys(
        ("cut", "empty", "gone", "pointer", "weightless"), "bad input"
    )
    reasons = {model.name: model.reason for model in summary.models}
    assert reasons["cut"].startswith("cut.onnx is not an ONNX file, or was cut short")
    assert "git lfs pull" in reasons["pointer"]
    assert "external data file w.bin" in reasons["weightless"]
    again = onboard(onboarding, frozenset(), lambda _: None, _Unused(onboarding.slots))
    assert [model.ran for model in again.models] == [False] * 5
    assert {model.name: model.reason for model in again.models} == reasons


def test_a_report_for_which_the_disk_has_no_room_leaves_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(folder: Path) -> None:
        raise cannot_write(folder / "report.html", OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr("placer.onboarding.runner.write_report", full)
    (tmp_path / "models.yaml").write_text("models: [{model: gone.onnx}]")
    onboarding = read_manifest(tmp_path / "models.yaml")
    told: list[str] = []
    summary = onboard(onboarding, frozenset(), told.append, _Unused(onboarding.slots))
    assert [model.state for model in summary.models] == ["bad input"]
    assert told[-1].startswith("warning: no report.html: cannot write")
