"""``placer.yaml``: options that are not typed come from there, what is typed wins."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

from placer.cli.app import main
from placer.errors import InputError
from placer.optimizer.options.project import Project, keywords_of, read_project
from placer.optimizer.options.request import options
from placer.results.result import Result
from tests.conftest import DIGITS, Finished
from tests.few_digits import copy_few_digits

Placer = Callable[..., Finished]

SCHEMA = Path(__file__).parents[2] / "configs" / "project.schema.json"
PROJECT = """\
model: net/digits.onnx
data: net/calibration.npz
eval_data: net/evaluation.npz
engine: onnxruntime
gates: sqnr>=10
budget: 2
sampler: random
timeout: 10m
profiles:
  l4:
    engine: fusion-model
    gpu: NVIDIA L4
  usual: {gates: null, sampler: null, cache: null}
"""


@pytest.fixture
def project(placer: Placer) -> Path:  # noqa: ARG001 - which makes a folder to be in
    """A project in the folder ``mine``, its model and data below it."""
    net = Path("mine/net")
    net.mkdir(parents=True)
    copy_few_digits(net)
    path = Path("mine/placer.yaml")
    path.write_text(PROJECT)
    return path


def result_in(folder: str) -> Result:
    return Result.read(Path(folder))


def test_paths_may_begin_with_the_home_folder(
    placer: Placer,  # noqa: ARG001 - which makes a folder to be in
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "x.npz").touch()
    Path("placer.yaml").write_text("{data: ~/x.npz, output: ~/out, warm_starts: [~/a.yaml]}")
    found = keywords_of(read_project(Path("placer.yaml")), Path("placer.yaml"), [])
    assert found == {
        "data": str(tmp_path / "x.npz"),
        "output": tmp_path / "out",
        "warm_starts": [tmp_path / "a.yaml"],
    }


# --- where options come from ----------------------------------------------------------------


@pytest.mark.slow
def test_sensitivity_takes_those_of_its_options_that_a_project_has(placer: Placer, project: Path):
    asked = ("--profile", "l4", "--by", "rule", "--samples", "2", "--no-cache", "--json")
    finished = placer("sensitivity", "--project", project, *asked)
    assert finished.code == 0, finished.err
    found = json.loads(finished.out)
    assert (found["engine"], found["samples"]) == ("fusion-model", 2)
    assert Path(found["model"]) == Path("mine/net/digits.onnx")


def test_sensitivity_loads_the_custom_operators_that_a_project_names(placer: Placer, project: Path):
    project.write_text(f"custom_ops: libops.so\n{PROJECT}")
    finished = placer("sensitivity", "--project", project)
    assert finished.code == 2
    assert "the library mine/libops.so of --custom-ops is not there" in finished.err


def test_sensitivity_fixes_the_inputs_that_a_project_fixes(placer: Placer, project: Path):
    project.write_text(f"fix: {{rate: 8000}}\n{PROJECT}")
    finished = placer("sensitivity", "--project", project)
    assert finished.code == 2
    assert "unknown input 'rate'; use one of: image" in finished.err


@pytest.mark.slow
def test_a_project_names_model_and_options_from_its_own_folder(placer: Placer, project: Path):
    finished = placer("optimize", "--project", project, "--no-cache")
    assert finished.came_to_a_result, finished.err
    assert finished.out.startswith("· options of mine/placer.yaml\n· loading mine/net/digits.onnx")
    result = result_in("digits.placer")
    assert result.engine.name == "onnxruntime"
    assert result.calibrated
    assert len(result.trials) == 2


@pytest.mark.slow
def test_what_is_typed_wins(placer: Placer, project: Path):
    words = ("--budget", 2, "--engine", "fusion-model", "--gate", "cosine>=0.5", "-o", "out")
    finished = placer("optimize", "--project", project, "--gpu", "t4", *words, "--no-cache")
    assert finished.code == 0, finished.err
    result = result_in("out")
    assert result.engine.name == "fusion-model"
    assert result.gates == ["cosine>=0.5"]
    assert len(result.trials) == 2


@pytest.mark.slow
def test_a_profile_has_results_of_its_own(placer: Placer, project: Path):
    words = ("--profile", "l4", "--profile", "usual", "--budget", 2)
    finished = placer("optimize", "--project", project, *words, "--no-cache")
    assert finished.code == 0, finished.err
    result = result_in("digits.l4.usual.placer")
    assert result.engine.device.startswith("l4 ")
    assert result.gates == ["top1_drop<=0.01"]


def test_a_project_beside_the_model_is_found(placer: Placer, project: Path):
    shutil.copy(project, "mine/net/placer.yaml")
    assert "no file or folder mine/net/net" in placer("optimize", "mine/net/digits.onnx").err
    Path("mine/net/placer.yaml").write_text("model: digits.onnx\nbudget: 0\n")
    assert (
        "mine/net/placer.yaml:2: field 'budget'" in placer("optimize", "mine/net/digits.onnx").err
    )


def test_a_model_of_a_manifest_has_no_options_from_a_project(
    project: Path,  # noqa: ARG001 - which a process for the manifest would read
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    Path("mine/net/placer.yaml").write_text("budget: 0")
    monkeypatch.setattr("sys.argv", ["placer", "optimize", "mine/net/gone.onnx"])
    for as_child, expected in ((False, "field 'budget'"), (True, "does not exist")):
        with pytest.raises(SystemExit):
            main(as_child)
        assert expected in capsys.readouterr().err


def test_a_project_of_another_model_is_left_alone(placer: Placer, project: Path):
    other = project.parent / "other.onnx"
    other.write_text("no model")
    finished = placer("optimize", other)
    assert finished.out.startswith("· mine/placer.yaml is for net/digits.onnx and not read\n")
    assert "other.onnx" in finished.err
    finished = placer("optimize", other, "--profile", "l4")
    assert "--profile l4: mine/placer.yaml is for net/digits.onnx" in finished.err


@pytest.mark.parametrize(
    "line",
    [
        "custom_ops: libops.so",
        "engine_options: {onnxruntime.provider: CPUExecutionProvider}",
        "storage: postgresql://elsewhere/studies",
        "output: ../out",
        "data: thieves:samples",
        "gates: [sqnr>=3, 'thieves:metric>=0']",
        "gates: ' diebstähle:maß>=0'",
    ],
)
def test_a_project_that_came_with_a_model_runs_no_code(placer: Placer, project: Path, line: str):
    (project.parent / "net" / "placer.yaml").write_text(f"{line}\n")
    finished = placer("optimize", "mine/net/digits.onnx")
    assert finished.code == 2
    field = line.partition(":")[0]
    assert f"mine/net/placer.yaml: field '{field}' can run code or reach out" in finished.err
    assert "give --project mine/net/placer.yaml" in finished.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "no model is given, and there is no placer.yaml here; name a model"),
        (("m.onnx", "--profile", "l4"), "--profile l4: there is no placer.yaml; give --project"),
        (("--project", "x.yaml"), "x.yaml does not exist; give a project file"),
        (
            ("--project", "mine/placer.yaml", "--profile", "l"),
            "unknown profile 'l'; use one of: l4",
        ),
    ],
)
@pytest.mark.usefixtures("project")
def test_what_is_missing_is_said(placer: Placer, words: tuple[str, ...], expected: str):
    finished = placer("optimize", *words)
    assert finished.code == 2
    assert expected in finished.err


# --- the file -------------------------------------------------------------------------------


def test_every_option_of_optimize_can_be_given():
    assert Project.model_fields.keys() - {"model", "profiles"} == options().keys()


def test_the_published_schema_takes_a_project_and_no_unknown_option():
    schema = json.loads(SCHEMA.read_text())
    jsonschema.validate(yaml.safe_load(PROJECT), schema)
    with pytest.raises(jsonschema.ValidationError, match="'buget' was unexpected"):
        jsonschema.validate({"profiles": {"fast": {"buget": 3}}}, schema)


def test_values_are_those_of_the_python_api(project: Path):
    project.write_text("timeout: 10m\nshapes: {image: [1, 1, 8, 8]}\ndata: my.data:samples\n")
    given = keywords_of(read_project(project), project, ())
    assert given["timeout"] == 600.0
    assert given["shapes"]["image"].optimum == (1, 1, 8, 8)
    assert given["data"] == "my.data:samples"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("buget: 3", "field 'buget': .*; did you mean 'budget'[?]"),
        ("calibration: minmx", "field 'calibration': .*; did you mean 'minmax'[?]"),
        ("engine: onnxruntme", "field 'engine': unknown engine .*; did you mean 'onnxruntime'[?]"),
        ("gpu: rtx409", "field 'gpu': unknown GPU 'rtx409'; .*; did you mean 'rtx-4090'[?]"),
        ("data: none.npz", "field 'data': there is no file or folder mine/none.npz"),
        ("gates: [sqnt>=3]", "field 'gates.0': .*; did you mean 'sqnr'[?]"),
        ("profiles: {a: {buget: 3}}", "field 'profiles.a.buget': .*; did you mean 'budget'[?]"),
        ("profiles: {a b: {}}", "field 'profiles.a b"),
        ("timeout: soon", "field 'timeout': time 'soon' is not a duration"),
    ],
)
def test_a_mistake_is_one_sentence_with_line_and_field(project: Path, line: str, expected: str):
    project.write_text(f"seed: 1\n{line}\n")
    with pytest.raises(InputError, match=f"mine/placer.yaml:2: {expected}"):
        read_project(project)


# --- models of one name ---------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_of_the_same_name_has_a_folder_of_its_own(placer: Placer):
    words = ("--engine", "fusion-model", "--gpu", "t4", "--budget", 2, "--no-cache")
    for folder in ("a", "b"):
        Path(folder).mkdir()
        shutil.copy(DIGITS / "digits.onnx", folder)
        finished = placer("optimize", f"{folder}/digits.onnx", *words)
        assert finished.came_to_a_result, finished.err
    told = "· digits.placer is about " + str(Path("a/digits.onnx").resolve())
    assert finished.out.startswith(told)
    (own,) = Path().glob("digits-*.placer")
    assert finished.out.splitlines()[0].endswith(f"; these results go to {own}")
    assert Result.read(own).model.path == "b/digits.onnx"

    again = placer("optimize", "b/digits.onnx", *words)
    assert "resumed after 2" in again.out
    Path("a/digits.onnx").rename("digits.onnx")  # Moved, it is gone on with where it was.
    assert placer("optimize", "digits.onnx", *words).out.startswith("· loading digits.onnx")
