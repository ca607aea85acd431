"""``placer plan diff``: readable and JSON output, exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from placer.cli.plan import plan_app
from placer.errors import InputError, PlacerError, RunError
from placer.plan import Layer, Plan, Port
from placer.plan.json_format import plan_json

INT8, FP16 = "Row major Int8 format", "Row major linear FP16 format"


def diff(*arguments: object) -> Result:
    """Run the command on a wide terminal."""
    return CliRunner().invoke(
        plan_app, ["diff", *map(str, arguments)], env={"COLUMNS": "200"}, color=False
    )


def engine_layer(name: str, kind: str, source: str, target: str, types: str) -> dict[str, object]:
    first, _, second = types.partition(">")
    return {
        "Name": name,
        "LayerType": kind,
        "Origin": "QDQ" if kind == "Reformat" else "",
        "Inputs": [{"Name": source, "Format/Datatype": {"i": INT8, "f": FP16}[first]}],
        "Outputs": [{"Name": target, "Format/Datatype": {"i": INT8, "f": FP16}[second]}],
    }


@pytest.fixture
def predicted(tmp_path: Path) -> Path:
    """Quantize, then one layer of conv1, add1 and relu1."""
    plan = Plan(
        (
            Layer(
                "x/QuantizeLinear",
                "QuantizeLinear",
                (),
                (Port("float16", "", "x"),),
                (Port("int8", "", "xq"),),
                "quantize",
            ),
            Layer(
                "conv1",
                "Conv",
                ("conv1", "add1", "relu1"),
                (Port("int8", "", "xq"),),
                (Port("int8", "", "y"),),
            ),
        ),
        "fusion-model",
        estimated=True,
    )
    path = tmp_path / "predicted.json"
    path.write_text(json.dumps(plan_json(plan)))
    return path


@pytest.fixture
def actual(tmp_path: Path) -> Path:
    """The engine adds in a layer of its own, in half precision."""
    layers = [
        engine_layer("QuantizeLinear_1", "Reformat", "x", "t1", "f>i"),
        engine_layer("conv1.weight + QuantizeLinear_3 + conv1", "Conv", "t1", "t2", "i>f"),
        engine_layer("PWN(add1, relu1)", "PointWise", "t2", "y", "f>f"),
    ]
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"Layers": layers, "Bindings": ["x", "y"]}))
    return path


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "profile.json"
    times = [
        {"name": "conv1.weight + QuantizeLinear_3 + conv1", "averageMs": 0.02},
        {"name": "PWN(add1, relu1)", "averageMs": 0.004, "medianMs": 0.003},
    ]
    path.write_text(json.dumps([{"count": 5}, *times]))
    return path


def test_differences_are_told_in_a_table_and_sentences(
    predicted: Path, actual: Path, profile: Path
):
    finished = diff(predicted, actual, "--profile", profile)
    assert finished.exit_code == 0
    assert "fusion-model against TensorRT 8 to 10 inspector" in finished.output
    sentence = (
        "'conv1' was predicted as one layer but runs as 2: 'conv1.weight + QuantizeLinear_3 + "
        "conv1' (20.0 us), 'PWN(add1, relu1)' (3.0 us)."
    )
    assert sentence in finished.output.splitlines()
    row = next(line for line in finished.output.splitlines() if "by nodes" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells == ["by nodes", "0", "1", "2", "0.000", "0.000", "0.000"]
    assert "The plans agree." not in finished.output


def test_plans_that_agree(actual: Path):
    finished = diff(actual, actual, "--strict")
    assert finished.exit_code == 0
    assert finished.output.splitlines()[-1] == "The plans agree."


def test_json(predicted: Path, actual: Path):
    report = json.loads(diff(predicted, actual, "--json").output)
    assert report["agrees"] is False
    assert report["scores"]["exact"] == {
        "matched": 0,
        "predicted": 1,
        "actual": 2,
        "precision": 0.0,
        "recall": 0.0,
        "f1": 0.0,
    }
    assert report["splits"] == [
        {
            "predicted": "conv1",
            "actual": ["conv1.weight + QuantizeLinear_3 + conv1", "PWN(add1, relu1)"],
        }
    ]
    assert report["conversions"]["quantize"] == {
        "predicted": 1,
        "actual": 1,
        "missing": [],
        "extra": [],
    }
    assert len(report["sentences"]) == 1


def test_json_of_a_plan_with_other_types(predicted: Path, tmp_path: Path):
    document = json.loads(predicted.read_text())
    document["layers"][1]["outputs"][0]["dtype"] = "float16"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(document))
    report = json.loads(diff(predicted, other, "--json").output)
    assert report["types"] == [
        {
            "predicted": "conv1",
            "actual": "conv1",
            "predicted_types": ["int8"],
            "actual_types": ["float16"],
            "same_class": False,
        }
    ]
    assert report["matched"] == []


def failure(finished: Result) -> PlacerError:
    """The error that ended the command; the command line prints it and exits with its code."""
    assert isinstance(finished.exception, PlacerError)
    return finished.exception


def test_strict_fails_where_plans_differ(predicted: Path, actual: Path):
    error = failure(diff(predicted, actual, "--strict"))
    assert isinstance(error, RunError)
    assert str(error) == f"the plans differ: {predicted} is not what {actual} does"


def test_a_profile_alone_tells_fusions_and_no_types(predicted: Path, profile: Path):
    finished = diff(predicted, profile)
    assert finished.exit_code == 0
    told = " ".join(finished.output.split())
    assert (
        "trtexec profile tells names only, so types and the places of conversions cannot be "
        "compared; build with --profilingVerbosity=detailed."
    ) in told
    assert "writes" not in told


def test_brackets_in_names_are_printed_as_they_are(tmp_path: Path):
    paths = []
    for index, name in enumerate(["a", "b"]):
        layers = [
            engine_layer("conv", "Conv", "x", "y", "i>i"),
            engine_layer(f"[red]{name}", "Conv", "x", "y", "i>i"),
        ]
        paths.append(tmp_path / f"{index}.json")
        paths[-1].write_text(json.dumps({"Layers": layers}))
    told = diff(*paths).output.splitlines()[-1]
    assert told.endswith("names none of their nodes: 1 actual compute layers ([red]b).")


def test_plans_of_different_models_are_not_compared(predicted: Path, tmp_path: Path):
    other = tmp_path / "other.json"
    layer = engine_layer("fc.weight + QuantizeLinear_3 + fc", "Conv", "t1", "t2", "i>f")
    other.write_text(json.dumps({"Layers": [layer], "Bindings": []}))
    finished = diff(predicted, other)
    assert isinstance(finished.exception, InputError)
    assert "have no node name in common" in str(finished.exception)
