"""Placements that a search begins with: what --warm-start takes and what it refuses."""

import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from placer.optimizer.observer import QuietObserver
from placer.optimizer.run import Request, optimize
from placer.results.result import Result
from tests.conftest import Finished, with_random_weights
from tests.optimizer.test_layer_cache import LARGE, SMALL

Placer = Callable[..., Finished]
Save = Callable[..., Path]
# Times are estimates, so that no measurement decides whether a result is the float model.
ESTIMATED = {"engine": "fusion-model", "gpu": "t4", "pack": "onnxruntime", "base": "float"}
QUICK = (
    *("--preset", "quick", "--gate", "sqnr>=5", "--no-cache", "--calibration", "minmax"),
    *(word for option, value in ESTIMATED.items() for word in (f"--{option}", value)),
)
OTHER = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,4] x) => (float[1,4] out)
<float[4,4] w = {0.5}, float[4] b = {1, 2, 3, 4}> {
  [fc] out = Gemm(x, w, b)
}
"""
ARTEFACTS = Path(__file__).parents[1] / "artefacts"


def result(folder: str) -> Result:
    return Result.model_validate_json((Path(folder) / "result.json").read_text())


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and, in ``first``, the result of optimizing it."""
    folder = tmp_path_factory.mktemp("optimized")
    onnx.save(with_random_weights(SMALL), folder / "model.onnx")
    request = Request(
        folder / "model.onnx",
        output=folder / "first",
        preset="quick",
        gates=("sqnr>=5",),
        calibration="minmax",
        budget=3,
        **ESTIMATED,
    )
    assert optimize(request, QuietObserver()).verdict == "faster"
    return folder


@pytest.fixture
def small(optimized: Path, request: pytest.FixtureRequest) -> Path:
    """A model that was optimized before; the result is in the current folder's ``first``."""
    request.getfixturevalue("placer")  # Makes the current folder an empty one.
    shutil.copytree(optimized / "first", "first")
    return optimized / "model.onnx"


@pytest.mark.slow
@pytest.mark.parametrize("file", ["first", "first/optimized.onnx"])
def test_a_search_begins_with_the_result_of_another(placer: Placer, small: Path, file: str):
    """A result as a folder or its model: the same first trial."""
    command = ("optimize", small, *QUICK, "--budget", "1", "-o", "second")
    finished = placer(*command, "--warm-start", file)
    assert finished.came_to_a_result, finished.err
    first = result("second").trials[0]
    assert first.kind == f"warm start {Path(file).name}"
    assert first.placement == result("first").best.placement


def test_several_warm_starts_come_in_order_and_each_placement_once(placer: Placer, small: Path):
    files = ("--warm-start", "first/placement.yaml", "--warm-start", "first/optimized.onnx")
    finished = placer("optimize", small, *QUICK, "--budget", "2", "-o", "second", *files)
    assert finished.came_to_a_result, finished.err
    trials = result("second").trials
    assert [trial.kind for trial in trials[:2]] == ["warm start placement.yaml", "none"]
    assert trials[0].placement == result("first").best.placement


@pytest.mark.usefixtures("small")
def test_a_result_of_another_model_of_the_family_tells_layouts_by_signature(
    placer: Placer, save: Save
):
    """Names and depth differ; convolutions of the same structure are decided alike."""
    large = save(LARGE, "large.onnx")
    command = ("optimize", large, *QUICK, "--budget", "1", "-o", "second")
    finished = placer(*command, "--warm-start", "first")
    assert finished.came_to_a_result, finished.err
    first = result("second").trials[0]
    assert first.kind == "warm start first"
    known = {decision.signature: decision.layout for decision in result("first").decisions}
    shared = [d for d in result("second").decisions if d.signature in known]
    assert shared
    assert result("second").best.placement == first.placement
    assert [d.layout for d in shared] == [known[d.signature] for d in shared]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({}, "warm start nothing.yaml: there is no such file or folder; check the path"),
        ({"a.json": "{}"}, "warm start a.json is not a result.json of this version"),
        ({"a.json": "not json"}, "warm start a.json is not a result.json of this version"),
        ({"a.txt": "x"}, "is neither a result, a placement.yaml nor an .onnx file"),
        ({"a.yaml": "format: other"}, "a.yaml"),
        ({"a.onnx": "no model"}, "a.onnx"),
    ],
)
def test_wrong_files_are_told_in_one_sentence(
    placer: Placer, save: Save, content: dict[str, str], expected: str
):
    file = next(iter(content), "nothing.yaml")
    for name, text in content.items():
        Path(name).write_text(text)
    finished = placer("optimize", save(SMALL), *QUICK, "-o", "out", "--warm-start", file)
    refused(finished, expected)


def test_an_empty_folder_is_no_result(placer: Placer, save: Save):
    Path("empty").mkdir()
    finished = placer("optimize", save(SMALL), *QUICK, "-o", "out", "--warm-start", "empty")
    refused(finished, "warm start empty: there is no such file or result; check the path")


@pytest.mark.usefixtures("small")
def test_a_result_that_has_nothing_in_common_is_refused(placer: Placer, save: Save):
    other = save(OTHER, "other.onnx")
    finished = placer("optimize", other, *QUICK, "-o", "out", "--warm-start", "first")
    refused(finished, "no group of sites of that result is like one of this model's")


@pytest.mark.usefixtures("small")
def test_a_placement_of_another_model_is_refused(placer: Placer, save: Save):
    file = "first/placement.yaml"
    other = save(OTHER, "other.onnx")
    finished = placer("optimize", other, *QUICK, "-o", "out", "--warm-start", file)
    refused(finished, file)


@pytest.mark.usefixtures("small")
def test_a_quantized_model_of_another_network_is_refused(placer: Placer, save: Save):
    other = save(OTHER, "other.onnx")
    file = "first/optimized.onnx"
    finished = placer("optimize", other, *QUICK, "-o", "out", "--warm-start", file)
    refused(finished, "none of its Q/DQ pairs is on an edge that")


def test_a_float_model_has_no_pairs_to_begin_with(placer: Placer, small: Path):
    finished = placer("optimize", small, *QUICK, "-o", "out", "--warm-start", small)
    refused(finished, f"warm start {small} has no Q/DQ pairs; give a quantized model")


def refused(finished: Finished, expected: str) -> None:
    """Exit code 2 and one sentence."""
    assert finished.code == 2, finished.err
    message = " ".join(line for line in finished.err.splitlines() if line.startswith("error:"))
    assert expected in " ".join(finished.err.split()), message
    assert "Traceback" not in finished.err
    assert not (Path("out") / "result.json").exists()


@pytest.mark.usefixtures("small")
def test_a_quantized_model_begins_with_its_own_placement(placer: Placer):
    """What was imported is the first trial, and the search goes on from there."""
    quantized = "first/optimized.onnx"
    assert any(node.op_type == "QuantizeLinear" for node in onnx.load(quantized).graph.node)
    finished = placer("optimize", quantized, *QUICK, "--budget", "2", "-o", "second")
    assert finished.came_to_a_result, finished.err
    trials = result("second").trials
    assert [trial.kind for trial in trials[:2]] == ["as imported", "none"]
    assert trials[0].placement == result("first").best.placement
    said = result("second").beside_source()
    assert said.startswith("trial 0 (as imported) is the placement nearest to the file's pairs")
    ratio = result("second").source.time_ratio  # None where no candidate came to the final.
    told = "itself was not measured" if ratio is None else f"takes {ratio:.3g} times as long"
    assert told in said
    assert said in " ".join(finished.out.split())
    assert said.replace("'", "&#39;") in (Path("second") / "report.html").read_text()


@pytest.mark.slow
def test_what_was_imported_comes_before_other_warm_starts(placer: Placer):
    command = ("optimize", ARTEFACTS / "torch_eager.onnx", *QUICK, "--budget", "2")
    assert placer(*command, "-o", "first").came_to_a_result
    finished = placer(*command, "-o", "second", "--warm-start", "first/result.json")
    assert finished.came_to_a_result, finished.err
    assert result("second").trials[0].kind == "as imported"
