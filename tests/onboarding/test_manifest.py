"""Manifests: what they say, what is wrong with them, and their published schemas."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

import placer as package
from placer.errors import InputError
from placer.onboarding.manifest import Job, read_manifest
from tests.conftest import DIGITS, Finished
from tests.onboarding.nets import ESTIMATE, MANIFEST

Placer = Callable[..., Finished]

CONFIGS = Path(__file__).parents[2] / "configs"


def test_the_published_schema_takes_manifests_and_no_unknown_option():
    manifests = json.loads((CONFIGS / "onboarding.schema.json").read_text())
    jsonschema.validate(yaml.safe_load(MANIFEST), manifests)
    jsonschema.validate(yaml.safe_load((CONFIGS / "onboarding.yaml").read_text()), manifests)
    with pytest.raises(jsonschema.ValidationError, match="'buget' was unexpected"):
        jsonschema.validate({"models": [{"model": "a.onnx", "buget": 3}]}, manifests)


def test_the_example_manifest_names_the_bundled_model():
    found = read_manifest(CONFIGS / "onboarding.yaml")
    assert [job.name for job in found.jobs] == ["digits", "digits-a100"]
    assert {(found.folder / job.model).resolve() for job in found.jobs} == {DIGITS / "digits.onnx"}


WRONG = [
    ("models: []", "models.yaml:1: field 'models': give at least one"),
    (
        "models:\n  - model: a.onnx\n    buget: 3",
        "models.yaml:3: field 'models.0.buget': there is no such field",
    ),
    (
        "models:\n  - model: a.onnx\n    gates: sqnr>15",
        "models.yaml:3: field 'models.0.gates.0': gate 'sqnr>15' is not a condition",
    ),
    (
        "models:\n  - {model: a.onnx, timeout: soon}",
        "models.yaml:2: field 'models.0.timeout': time 'soon' is not a duration; write e.g. 90s",
    ),
    (
        "models:\n  - {model: a.onnx, shapes: {x: 1by3}}",
        "models.yaml:2: field 'models.0.shapes': shape 'x=1by3' is not a shape",
    ),
    ("models:\n  - model: nets/*.onnx", "models.yaml:2: no file matches 'nets/*.onnx'"),
    ("models: [{model: x/net.onnx}, {model: y/net.onnx}]", "are both called 'net'; give one"),
    ("models: [{model: net.onnx}, {model: ./net.onnx}]", "model ./net.onnx is named twice"),
    ("models: [{model: a.onnx, name: Summary.json}]", "cannot be called 'Summary.json'"),
    ("devices: [0, 0]\nmodels: [{model: a.onnx}]", "field 'devices' names a device twice"),
    ("devices: [0]\njobs: 2\nmodels: [{model: a.onnx}]", "2 jobs cannot share 1 devices"),
    ("models: [{model: a.onnx}", "not valid YAML"),
    (
        'models: [{model: "models\\digits.onnx"}]',
        "unknown escape character; write a path with backslashes in single quotes",
    ),
    (
        "models: [{model: a.onnx, budget: yes}]",
        "models.yaml:1: field 'models.0.budget': yes, no, true and false are not numbers",
    ),
    ("models: [{model: a.onnx, fix: {sr: on}}]", "field 'models.0.fix': yes, no, true and false"),
    (
        "executor: tcp://host:1\nmodels: [{model: a.onnx}]",
        "models.yaml:1: field 'executor': 'tcp://host:1' is not an address; give dask://HOST:PORT",
    ),
    ("models: [{model: a.onnx, threads: 5000}]", "less than or equal to 1024"),
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
    Path("zoo").mkdir()
    told = (
        "zoo is a folder; give a manifest, a YAML file such as `models: [{model: zoo/**/*.onnx}]`"
    )
    assert told in placer("onboard", "zoo").err
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


@pytest.mark.slow
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


def test_a_glob_finds_each_file_once_and_links_to_nothing(tmp_path: Path):
    files = ("zoo/net.onnx", "zoo/best/optimized.onnx", "zoo/best/result.json")
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "again").symlink_to("..")  # In circles.
    (tmp_path / "zoo" / "gone.onnx").symlink_to("nowhere.onnx")
    jobs = manifest_of(tmp_path, "models: [{model: 'zoo/**/*.onnx'}]", *files)
    assert [job.model for job in jobs] == ["zoo/gone.onnx", "zoo/net.onnx"]


@pytest.mark.slow
def test_results_that_a_glob_leaves_out_are_told_unless_an_entry_names_them(tmp_path: Path):
    text = "models: [{model: 'zoo/**/*.onnx'}"
    files = ("zoo/net.onnx", "zoo/best/optimized.onnx", "zoo/best/result.json", "out.placer/a.onnx")
    assert [job.model for job in manifest_of(tmp_path, f"{text}]", *files)] == ["zoo/net.onnx"]
    path = tmp_path / "models.yaml"
    assert read_manifest(path).left_out == ("zoo/best/optimized.onnx",)
    (note,) = package.plan_onboarding(path).notes
    assert note.startswith("left out: zoo/best/optimized.onnx, as a result.json beside it says")
    named = manifest_of(tmp_path, f"{text}, {{model: zoo/best/optimized.onnx}}]")
    assert [job.model for job in named] == ["zoo/net.onnx", "zoo/best/optimized.onnx"]
    assert read_manifest(path).left_out == ()
    with pytest.raises(InputError, match=r"matches .* but results of placer"):
        manifest_of(tmp_path, "models: [{model: 'zoo/best/*.onnx'}]")


def test_no_more_models_run_at_once_than_there_are(tmp_path: Path):
    (tmp_path / "models.yaml").write_text(f"jobs: {10**12}\nmodels: [{{model: a.onnx}}]")
    assert read_manifest(tmp_path / "models.yaml").slots == (None,)


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


def test_a_tab_that_one_reader_of_yaml_takes(tmp_path: Path):
    """LibYAML takes a tab behind a key, PyYAML's own scanner does not."""
    (tmp_path / "models.yaml").write_text("jobs: 1\nmodels:\t\n- model: a.onnx\n")
    try:
        found = read_manifest(tmp_path / "models.yaml")
    except InputError as error:  # Where PyYAML was built without LibYAML.
        assert "not valid YAML" in str(error)
    else:
        assert [job.name for job in found.jobs] == ["a"]
