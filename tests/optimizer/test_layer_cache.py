"""Times of layers that outlive a run: kept for other models, harmless when damaged."""

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from placer.calibration.collect import default_cache_dir
from placer.engines.rounds import TIMING
from placer.optimizer.setup.layer_cache import FILE_NAME, LayerCosts
from placer.results.result import Result
from placer.search.study.storage import kept_attributes, open_storage
from placer.search.study.study import STUDY_NAME
from tests.conftest import Finished

Placer = Callable[..., Finished]
Save = Callable[..., Path]
ENGINE = "onnxruntime 1.31, CPU"
# Two models of one family: the second is deeper.
SMALL = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,32,32,32] x) => (float[1,32,32,32] out)
<float[32,32,3,3] w0 = {0.1}, float[32,32,3,3] w1 = {0.1}> {
  [conv0] a = Conv<pads = [1, 1, 1, 1]>(x, w0)
  [relu0] b = Relu(a)
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(b, w1)
  [relu1] out = Relu(c)
}
"""
LARGE = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,32,32,32] image) => (float[1,32,32,32] scores)
<float[32,32,3,3] v0 = {0.1}, float[32,32,3,3] v1 = {0.1}, float[32,32,3,3] v2 = {0.1}> {
  [first] a = Conv<pads = [1, 1, 1, 1]>(image, v0)
  [act1] b = Relu(a)
  [second] c = Conv<pads = [1, 1, 1, 1]>(b, v1)
  [act2] d = Relu(c)
  [third] e = Conv<pads = [1, 1, 1, 1]>(d, v2)
  [act3] scores = Relu(e)
}
"""
QUICK = (
    *("--preset", "quick", "--budget", "2", "--gate", "sqnr>=5", "--engine", "onnxruntime"),
    *("--calibration", "minmax"),
)


def rows(path: Path) -> dict[tuple[str, str], tuple[float, int]]:
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT engine, signature, microseconds, trials FROM costs")
        return {(engine, signature): (time, trials) for engine, signature, time, trials in found}


def test_means_are_kept_by_engine_and_signature(tmp_path: Path):
    costs = LayerCosts(tmp_path / "deep" / FILE_NAME, ENGINE)
    assert costs.load() == {}
    costs.add([("a", 10.0), ("b", 5.0)])
    costs.add([("a", 20.0)])
    assert costs.load() == {"a": 15.0, "b": 5.0}
    assert LayerCosts(costs.path, "another engine").load() == {}


def test_old_measurements_fade(tmp_path: Path):
    """After a hundred times 10 us, a hundred times 20 us count for nearly all."""
    costs = LayerCosts(tmp_path / FILE_NAME, ENGINE)
    costs.add([("a", 10.0)] * 100)
    costs.add([("a", 20.0)] * 100)
    assert costs.load()["a"] == pytest.approx(20, rel=0.01)


@pytest.mark.slow
def test_a_second_run_of_another_model_begins_with_what_the_first_measured(
    placer: Placer, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert placer("optimize", save(SMALL), *QUICK, "-o", "small").code == 0
    path = default_cache_dir() / FILE_NAME
    first = rows(path)
    assert first
    assert all(time >= 0 for time, _ in first.values())
    finished = placer("optimize", save(LARGE), *QUICK, "-o", "large")
    assert finished.code == 0, finished.err
    remembered = study_attribute(Path("large/study.db"), "remembered")
    assert set(remembered) == {signature for _, signature in first}
    # Microseconds as parts of the larger model's latency, one for all of them. Which latency that
    # was is not kept: a factor of 10 tells other units, not a busy machine.
    latencies = [time / remembered[signature] for (_, signature), (time, _) in first.items()]
    assert latencies == pytest.approx([latencies[0]] * len(latencies))
    median_us = 1e3 * result(Path("large")).baseline.latency.median_ms
    assert 0.1 < latencies[0] / median_us < 10
    second = rows(path)
    shared = [key for key in first if second[key][1] > first[key][1]]
    assert shared  # Layers of the same work in both models.


@pytest.mark.slow
def test_what_was_measured_when_calls_were_timed_otherwise_is_not_taken_up(
    placer: Placer, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Neither trials nor times of layers of versions that did not tell how they timed calls."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small = save(SMALL)
    assert placer("optimize", small, *QUICK, "-o", "small").code == 0
    storage = open_storage("sqlite:///small/study.db", shared=False)
    settings = dict((kept_attributes(storage, STUDY_NAME) or {})["settings"])
    settings.pop("way of timing", None)
    study = storage.get_study_id_from_name(STUDY_NAME)
    storage.set_study_user_attr(study, "settings", settings)
    with sqlite3.connect(default_cache_dir() / FILE_NAME) as connection:
        connection.execute("UPDATE costs SET engine = replace(engine, ?, '')", (f"{TIMING}, ",))

    finished = placer("optimize", small, *QUICK, "-o", "small")
    assert finished.code == 2
    assert (
        "holds a study with other settings (way of timing: none, now calls of up to" in finished.err
    )
    assert placer("optimize", save(LARGE), *QUICK, "-o", "large").code == 0
    assert study_attribute(Path("large/study.db"), "remembered") == {}


@pytest.mark.slow
def test_a_run_without_a_cache_keeps_nothing(placer: Placer, save: Save):
    assert placer("optimize", save(SMALL), *QUICK, "--no-cache", "-o", "out").code == 0
    assert study_attribute(Path("out/study.db"), "remembered") == {}


@pytest.mark.slow
def test_a_damaged_file_is_ignored_with_a_line_in_the_log(
    placer: Placer, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache = default_cache_dir()
    cache.mkdir(parents=True)
    (cache / FILE_NAME).write_bytes(b"this is no database, " * 100)
    finished = placer("optimize", save(SMALL), *QUICK, "-o", "out")
    assert finished.code == 0, finished.err
    lines = [
        line for line in Path("out/placer.log").read_text().splitlines() if "layer costs" in line
    ]
    assert "are not used: file is not a database" in lines[0]
    assert str(cache / FILE_NAME) in lines[0]


def test_a_file_of_other_tables_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / FILE_NAME
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE costs (something TEXT)")
    costs = LayerCosts(path, ENGINE)
    with caplog.at_level(logging.WARNING):
        assert costs.load() == {}
        costs.add([("a", 1.0)])
    assert len(caplog.records) == 2
    assert "no such column" in caplog.text


@pytest.mark.parametrize(
    "damage",
    [
        "microseconds = NULL",  # What SQLite makes of NaN.
        "microseconds = 'fast'",
        "microseconds = 9e999",
        "microseconds = -1.0",
        "signature = microseconds, microseconds = signature",
        "signature = x'00ff'",
    ],
)
def test_damaged_rows_are_ignored_and_spoil_no_later_mean(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
):
    costs = LayerCosts(tmp_path / FILE_NAME, ENGINE)
    costs.add([("a", 10.0), ("b", 5.0)])
    with sqlite3.connect(costs.path) as connection:
        connection.execute(f"UPDATE costs SET {damage} WHERE signature = 'a'")
    with caplog.at_level(logging.WARNING):
        assert costs.load() == {"b": 5.0}
    assert f"1 layer costs in {costs.path} are damaged and not used" in caplog.text
    costs.add([("a", 20.0)])
    assert costs.load() == {"a": 20.0, "b": 5.0}


@pytest.mark.parametrize("count", ["NULL", "-1", "'many'"])
def test_a_damaged_count_of_trials_begins_anew(tmp_path: Path, count: str):
    costs = LayerCosts(tmp_path / FILE_NAME, ENGINE)
    costs.add([("a", 10.0)])
    with sqlite3.connect(costs.path) as connection:
        connection.execute(f"UPDATE costs SET trials = {count}")
    costs.add([("a", 20.0)])
    assert costs.load() == {"a": 20.0}


def test_a_folder_that_cannot_be_made_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").write_text("not a folder")
    costs = LayerCosts(tmp_path / "file" / FILE_NAME, ENGINE)
    with caplog.at_level(logging.WARNING):
        costs.add([("a", 1.0)])
        assert costs.load() == {}
    assert "are not used" in caplog.text


def test_two_processes_may_write_at_once(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path\n"
        "from placer.optimizer.setup.layer_cache import LayerCosts\n"
        f"costs = LayerCosts(Path(sys.argv[1]), {ENGINE!r})\n"
        "for _ in range(50): costs.add([(sys.argv[2], 1.0), ('shared', 2.0)])"
    )
    path = tmp_path / FILE_NAME
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(path), name], stderr=subprocess.PIPE)
        for name in ("a", "b")
    ]
    assert [process.communicate()[1] for process in processes] == [b"", b""]
    counts = {signature: trials for (_, signature), (_, trials) in rows(path).items()}
    assert counts == {"a": 50, "b": 50, "shared": 100}
    assert LayerCosts(path, ENGINE).load() == {"a": 1.0, "b": 1.0, "shared": 2.0}


def study_attribute(path: Path, key: str) -> dict[str, float]:
    kept = kept_attributes(open_storage(f"sqlite:///{path}", shared=False), STUDY_NAME)
    found: dict[str, float] = kept[key]
    return found


def result(folder: Path) -> Result:
    return Result.model_validate_json((folder / "result.json").read_text())
