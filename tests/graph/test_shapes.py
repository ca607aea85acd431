"""Shape ranges from the command line: NAME=MIN:OPT:MAX."""

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.errors import InputError
from placer.graph.shapes import ShapeRange, check_ranges, optima, parse_shape_range
from placer.results.result import Result
from tests.conftest import DIGITS, Finished

MODEL = DIGITS / "digits.onnx"
QUICK = (
    *("--data", DIGITS / "calibration.npz", "--calibration", "minmax"),
    *("--preset", "quick", "--budget", "2"),
)
RANGE = "image=1x1x32x32:2x1x32x32:4x1x32x32"

Placer = Callable[..., Finished]


def test_one_shape_is_a_range_of_that_shape():
    assert parse_shape_range("image=1x3x8x8") == ("image", ShapeRange.fixed((1, 3, 8, 8)))


def test_a_range_has_minimum_optimum_and_maximum():
    name, found = parse_shape_range("a=b:0=1x3:8x3:32x3")
    assert name == "a=b:0"
    assert found == ShapeRange((1, 3), (8, 3), (32, 3))
    assert optima({name: found}) == {name: (8, 3)}


@given(st.lists(st.lists(st.integers(1, 99), min_size=3, max_size=3), min_size=1, max_size=5))
def test_what_is_written_is_read_again(dims: list[list[int]]):
    minimum, optimum, maximum = zip(*(sorted(sizes) for sizes in dims), strict=True)
    found = ShapeRange(minimum, optimum, maximum)
    assert parse_shape_range(f"x={found.text}") == ("x", found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x=1x3:8x3", "has 2 shapes; write NAME=SHAPE or NAME=MIN:OPT:MAX"),
        ("x=1x3:8x3:32x3x1", "the three shapes have 2, 2 and 3 dimensions; give all the same"),
        ("x=8x3:1x3:32x3", "dimension 0 goes 8, 1, 32, which is not in order"),
        ("x=0x3:1x3:2x3", "every dimension must be at least 1"),
        ("x=1x3:Nx3:8x3", "'x=Nx3' is not a shape"),
        ("1x3:2x3:3x3", "is not a shape"),
    ],
)
def test_a_wrong_range_is_one_sentence(text: str, expected: str):
    with pytest.raises(InputError, match=expected):
        parse_shape_range(text)


def test_what_the_model_fixes_cannot_range():
    model = onnx.load(MODEL)
    check_ranges(model, {"image": ShapeRange((1, 1, 32, 32), (2, 1, 32, 32), (4, 1, 32, 32))})
    with pytest.raises(InputError, match=r"dimension 1 is fixed at 1 in the model; give 1 for it"):
        check_ranges(model, {"image": ShapeRange((1, 1, 32, 32), (2, 1, 32, 32), (4, 3, 32, 32))})
    with pytest.raises(InputError, match="the input has 4 dimensions; give a size for each"):
        check_ranges(model, {"image": ShapeRange.fixed((1, 1, 32))})


@pytest.mark.slow
def test_an_engine_that_builds_for_one_shape_takes_the_optimum_and_says_so(placer: Placer):
    finished = placer("optimize", MODEL, *QUICK, "--shape", RANGE)
    assert finished.code == 0, finished.err
    found = Result.model_validate_json(Path("digits.placer/result.json").read_text())
    assert found.model.input_shapes == {"image": [2, 1, 32, 32]}
    assert found.model.shape_ranges == {}
    note = "engine onnxruntime builds for one shape; of the range it takes image=2x1x32x32"
    assert note in found.warnings


def test_bench_takes_a_range(placer: Placer):
    finished = placer("bench", MODEL, "--shape", RANGE, "--rounds", 3, "--json")
    assert finished.code == 0, finished.err
    found = json.loads(finished.out)
    note = "engine onnxruntime builds for one shape; of the range it takes image=2x1x32x32"
    assert found["notes"] == [note]
    (model,) = found["models"]
    assert model["per_second"] * model["median_ms"] == pytest.approx(2000)


@pytest.mark.parametrize("command", ["optimize", "bench", "check"])
def test_errors_are_one_sentence_in_every_command(placer: Placer, command: str):
    finished = placer(command, MODEL, "--shape", "image=4x1x32x32:2x1x32x32:1x1x32x32")
    assert finished.code == 2
    assert (
        "dimension 0 goes 4, 2, 1, which is not in order; give minimum, optimum and maximum"
        in finished.err
    )


@pytest.mark.parametrize("command", ["optimize", "bench"])
def test_a_fixed_dimension_is_named(placer: Placer, command: str):
    finished = placer(command, MODEL, "--shape", "image=1x1x32x32:1x1x32x32:1x1x64x32")
    assert finished.code == 2
    assert "dimension 2 is fixed at 32 in the model; give 32 for it" in finished.err


@pytest.mark.slow
@pytest.mark.usefixtures("builder")
def test_nvidias_builder_builds_for_the_range(placer: Placer):
    assert placer("check", MODEL, "--shape", RANGE).code == 0
    wrong = placer("check", MODEL, "--shape", "image=1x1x32x32:1x1x32x32:1x1x64x32")
    assert wrong.code == 2
    assert "dimension 2 is fixed at 32 in the model; give 32 for it" in wrong.err
    flags = ("--engine", "fusion-model", "--gpu", "l4", "--build-for", "sm89")
    assert placer("optimize", MODEL, *QUICK, *flags, "--shape", RANGE).code == 0
    found = Result.model_validate_json(Path("digits.placer/result.json").read_text())
    expected = [[1, 1, 32, 32], [2, 1, 32, 32], [4, 1, 32, 32]]
    assert found.model.shape_ranges == {"image": expected}
