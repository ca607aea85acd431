"""Sizes of dimensions by their names: a decoder's caches take one size, not a shape each."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

import placer
from placer.common.shapes import ShapeRange, given_ranges
from placer.engines.tensorrt.check import check
from placer.errors import InputError
from placer.graph.text import parse_model
from placer.model import load_model
from placer.model.named_dimensions import with_named_dimensions
from tests.conftest import Finished

Save = Callable[..., Path]

DECODER = """
<ir_version: 8, opset_import: ["": 17]>
g (int64[batch,s] ids, float[batch,total] mask, float[batch,2,past,4] key, float[2,batch] state)
  => (float[batch,s] i, float[batch,total] m, float[batch,2,past,4] k, float[2,batch] h) {
  i = Cast<to = 1>(ids)
  m = Relu(mask)
  k = Relu(key)
  h = Relu(state)
}
"""
SHAPES = {"ids": (1, 3), "mask": (1, 8), "key": (1, 2, 5, 4), "state": (2, 1)}


@pytest.fixture
def decoder(save: Save) -> Path:
    """A decoder whose mask is as long as what is past and what is new."""
    return save(DECODER.replace("total", "past_and_s"))


def test_a_size_holds_for_all_inputs_that_have_the_dimension(decoder: Path):
    named = {"s": (3,), "past": (5,), "past_and_s": (8,)}
    assert load_model(decoder, named).input_shapes == SHAPES
    wider = load_model(decoder, {**named, "batch": (4,)}).input_shapes
    assert [wider["ids"], wider["state"]] == [(4, 3), (2, 4)]


@pytest.mark.parametrize(
    ("mask", "sizes"),
    [
        ("past + s", (3, 8, 13)),
        ("2*past - s", (3, 7, 14)),
        ("(past + 8*s)//2 + 1", (6, 15, 21)),  # As of PyTorch's derived dimensions.
    ],
)
def test_what_is_computed_of_names_follows_from_them(
    mask: str, sizes: tuple[int, ...], decoder: Path
):
    proto = placer.model.load_model(decoder, SHAPES).proto  # Any model of these inputs.
    for value, dims in zip(
        proto.graph.input,
        (("batch", "s"), ("batch", mask), ("batch", 2, "past", 4), (2, "batch")),
        strict=True,
    ):
        for dim, size in zip(value.type.tensor_type.shape.dim, dims, strict=True):
            if isinstance(size, str):
                dim.dim_param = size
    ranges = given_ranges({"s": "1:3:4", "past": "2:5:9"})
    assert with_named_dimensions(proto, ranges)["mask"] == ShapeRange(*((1, n) for n in sizes))


def test_a_name_may_have_hyphens(decoder: Path):
    proto = placer.model.load_model(decoder, SHAPES).proto
    for value in proto.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
            dim.dim_param = "seq-len"
    assert with_named_dimensions(proto, given_ranges({"seq-len": "5"}))["ids"].optimum == (5, 5)


def test_dimensions_of_one_name_have_one_size(decoder: Path):
    """Of an input that is given; other batches are 1 wherever they stand."""
    shapes = {"ids": (6, 3), "past": (5,), "past_and_s": (8,)}
    assert load_model(decoder, shapes).input_shapes["state"] == (2, 6)
    del shapes["ids"]
    assert load_model(decoder, {**shapes, "s": (3,)}).input_shapes == SHAPES


def test_what_is_missing_is_asked_for_by_name(decoder: Path):
    with pytest.raises(InputError) as caught:
        load_model(decoder)
    assert str(caught.value) == (
        f"{decoder}: 3 inputs have dimensions that are not known; give them with `shapes`, as "
        "s=N past_and_s=N past=N, a number for each N"
    )
    # For commands without such an option:
    assert caught.value.problem == f"{decoder}: 3 inputs have dimensions that are not known"


@pytest.mark.parametrize(
    ("inputs", "asked"),
    [
        ("float[batch,seq] x, float[seq] y", "seq=N"),
        ("float[boxes,4] x, float[boxes] y, float[1,boxes,8] z", "boxes=N"),
    ],
)
def test_what_comes_first_in_some_inputs_only_is_no_batch(inputs: str, asked: str, save: Save):
    path = save(f"""
        <ir_version: 8, opset_import: ["": 17]>
        g ({inputs}) => (float out) {{
          s = ReduceSum<keepdims = 0>(x)
          t = ReduceSum<keepdims = 0>(y)
          out = Add(s, t)
        }}""")
    with pytest.raises(InputError, match=f"with `shapes`, as {asked}, a number for each N"):
        load_model(path)
    shapes = load_model(path, {asked.removesuffix("=N"): (8,)}).input_shapes
    assert shapes["y"] == (8,)


def test_a_wrong_name_is_told_with_those_there_are(decoder: Path):
    with pytest.raises(
        InputError, match=r"unknown input 'old'; use one of: ids, .*, or a dimension: batch, s"
    ):
        load_model(decoder, {"old": (5,)})


QUANTIZED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[B,seq,16] x) => (float[B,seq,16] y)
<float[16,16] w = {0.1}, float s = {0.05}, int8 z = {0}> {
  q = QuantizeLinear(x, s, z)
  d = DequantizeLinear(q, s, z)
  y = MatMul(d, w)
}
"""


def test_explain_takes_names_for_a_file_with_pairs(save: Save):
    path = save(QUANTIZED)
    by_name = placer.explain(path, shapes={"seq": "32"}).to_json()
    assert by_name == placer.explain(path, shapes={"x": "1x32x16"}).to_json()
    assert by_name != placer.explain(path, shapes={"seq": "64"}).to_json()
    with pytest.raises(InputError, match=r"unknown input 'sequence'; .*, or a dimension: B, seq"):
        placer.explain(path, shapes={"sequence": "32"})


def test_commands_take_names(decoder: Path, placer: Callable[..., Finished]):
    sizes = ("--shape", "s=3", "--shape", "past=5", "--shape", "past_and_s=8")
    for command in (("explain",), ("bench", "--engine", "onnxruntime", "--rounds", "3")):
        finished = placer(command[0], decoder, *command[1:], *sizes)
        assert finished.code == 0, finished.err


SAME_PLACEHOLDER = """
<ir_version: 8, opset_import: ["": 17]>
g (float[n,3,h,w] image) => (float[n,4,h,w] y) <float[4,3,1,1] k = {1}> {
  [conv] y = Conv(image, k)
}
"""

SUM = """
<ir_version: 8, opset_import: ["": 17]>
g (float[4,n] x, float[4,n] z) => (float[4,m] y) { [add] y = Add(x, z) }
"""


@pytest.fixture
def placeholders(save: Save) -> Path:
    """Height and width are both called ``?``, as by paddle2onnx; the batch has a name."""
    path = save(SAME_PLACEHOLDER)
    proto = onnx.load(path)
    for value in (proto.graph.input[0], proto.graph.output[0]):
        for axis in (2, 3):
            value.type.tensor_type.shape.dim[axis].dim_param = "?"
    onnx.save(proto, path)
    return path


def test_what_names_no_size_is_left_out(placeholders: Path):
    written = load_model(placeholders, {"image": (1, 3, 8, 16)}).as_written()
    (image,) = written.proto.graph.input
    dims = [dim.dim_param for dim in image.type.tensor_type.shape.dim]
    assert dims == ["n", "", "", ""]


@pytest.mark.usefixtures("builder")
def test_check_says_why_dimensions_of_one_name_are_refused(placeholders: Path):
    report = check(placeholders, shapes={"image": (1, 3, 8, 16)})
    assert report.refusal is not None
    assert "several dimensions are called '?', which TensorRT takes to be equal" in report.refusal


@pytest.mark.usefixtures("builder")
def test_dimensions_called_minus_one_are_named_as_the_file_has_them(tmp_path: Path):
    """TensorRT names them after their axes: those of one axis are equal."""
    proto, path = parse_model(SUM), tmp_path / "sum.onnx"
    for value in proto.graph.input:
        value.type.tensor_type.shape.dim[1].dim_param = "-1"
    onnx.save(proto, path)
    refusal = check(path, shapes={"x": (4, 8), "z": (4, 6)}).refusal
    assert refusal is not None
    assert "several dimensions are called '-1'" in refusal
