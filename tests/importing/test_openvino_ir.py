"""An OpenVINO IR by NNCF on the ONNX model that it was made from: scales, places, refusals.

``tests/artefacts`` holds what NNCF wrote (see its README).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import placer
from placer.errors import InputError
from placer.graph import Edge
from placer.importing.api import ImportedModel
from placer.model import load_model
from tests.conftest import Finished, with_random_weights

openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed")
ops = openvino.opset13

ARTEFACTS = Path(__file__).parents[1] / "artefacts"
IR, FLOAT = ARTEFACTS / "nncf.xml", ARTEFACTS / "float.onnx"
# What quantizes in the IR: the tensor, the lowest and highest value of its FakeQuantize.
LIMITS = {
    "image": "image/fq_output_0",
    "/relu1/Relu_output_0": "/relu1/Relu/fq_output_0",
    "/conv2/Conv_output_0": "/conv2/Conv/fq_output_0",
    "/Add_output_0": "/Add/fq_output_0",
}
EDGES = {
    Edge("image", "/conv1/Conv", 0),
    Edge("/relu1/Relu_output_0", "/conv2/Conv", 0),
    Edge("/relu1/Relu_output_0", "/Add", 0),
    Edge("/conv2/Conv_output_0", "/Add", 1),
    Edge("/Add_output_0", "/pool/GlobalAveragePool", 0),
    Edge("/pool/GlobalAveragePool_output_0", "/Flatten", 0),
    Edge("onnx::Conv_27", "/conv1/Conv", 1),
    Edge("onnx::Conv_30", "/conv2/Conv", 1),
    Edge("fc.weight", "/fc/Gemm", 1),
}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> ImportedModel:
    output = tmp_path_factory.mktemp("imported") / "nncf.qdq.onnx"
    return placer.import_model(IR, output, pack="openvino", float_model=FLOAT)


def constants_of_ir() -> dict[str, np.ndarray]:
    model = openvino.Core().read_model(IR)
    return {
        op.get_friendly_name(): op.get_data()
        for op in model.get_ops()
        if op.get_type_name() == "Constant"
    }


def renamed(source: Path, target: Path) -> Path:
    """The same model, with other names for all nodes and all tensors but inputs and outputs."""
    proto = onnx.load(source)
    kept = {value.name for value in (*proto.graph.input, *proto.graph.output)}
    names: dict[str, str] = {"": ""}

    def new(name: str) -> str:
        return name if name in kept else names.setdefault(name, f"t{len(names)}")

    for number, node in enumerate(proto.graph.node):
        node.name = f"n{number}"
        node.input[:], node.output[:] = map(new, node.input), map(new, node.output)
    for tensor in proto.graph.initializer:
        tensor.name = new(tensor.name)
    del proto.graph.value_info[:]
    onnx.save(proto, target)
    return target


# What is carried over.


def test_scales_and_places_are_those_of_the_ir(imported: ImportedModel):
    found = imported
    assert found.imported.placement.edges == EDGES
    constants = constants_of_ir()
    for tensor, name in LIMITS.items():
        low, high = (constants[f"{name}/input_{end}"].item() for end in ("low", "high"))
        scale = found.imported.activations[tensor]
        assert scale.scale == pytest.approx((high - low) / 255, rel=1e-6)
        assert scale.zero_point == round(-low / scale.scale)
    assert (found.matched.by_name, found.matched.by_structure) == (8, 0)
    assert found.matched.unmatched == ()
    assert found.sqnr > 40
    assert found.losses == ()
    assert {path.name for path in found.model.parent.iterdir()} == {
        "nncf.qdq.onnx",
        "nncf.qdq.placement.yaml",
    }


def test_weights_are_the_integers_of_the_ir(imported: ImportedModel):
    """Some of the first convolution's lie halfway between two, as OpenVINO rounds otherwise."""
    inside = [array for array in constants_of_ir().values() if array.dtype == np.int8]
    written = [
        numpy_helper.to_array(tensor)
        for tensor in onnx.load(imported.model).graph.initializer
        if tensor.data_type == onnx.TensorProto.INT8 and len(tensor.dims) > 1
    ]
    assert len(written) == len(inside) == 3
    inside.sort(key=lambda array: array.size)
    for array, other in zip(sorted(written, key=lambda array: array.size), inside, strict=True):
        difference = np.abs(array.ravel().astype(int) - other.ravel())
        assert difference.max() <= 1
        assert np.count_nonzero(difference) <= 0.05 * difference.size


def test_what_is_written_is_imported_with_the_same_scales(imported: ImportedModel):
    """So placer optimize keeps them."""
    again = load_model(imported.model).imported
    assert again.placement.edges == EDGES
    for tensor, scale in imported.imported.activations.items():
        assert again.activations[tensor].scale == np.float32(scale.scale)
        assert again.activations[tensor].zero_point == scale.zero_point


def test_other_names_are_found_by_weights_and_what_is_not_found_is_named(here: Path):
    """Weights by their values, what convolutions read by these; input and output kept theirs."""
    other = renamed(FLOAT, here / "renamed.onnx")
    found = placer.import_model(IR, pack="openvino", float_model=other)
    assert (found.matched.by_name, found.matched.by_structure) == (2, 3)
    graph = load_model(other).graph
    weights = {edge.tensor for edge in found.imported.placement.edges} & graph.initializers.keys()
    assert len(weights) == 3
    total = found.matched.by_name + found.matched.by_structure + len(found.matched.unmatched)
    assert total == 8
    for sentence in found.matched.unmatched:
        assert sentence.startswith("activation '")
    assert "the ONNX model has no tensor of its name" in found.matched.unmatched[0]


def test_the_command_says_what_was_found(placer: Callable[..., Finished]):
    finished = placer("import", IR, "--float", FLOAT, "--pack", "openvino", "-o", "out.onnx")
    assert finished.code == 0
    assert "8 tensors by name, 0 by structure; not carried over: 0" in finished.out
    assert "the outputs on OpenVINO agree with the IR's to " in finished.out
    assert Path("out.onnx").is_file()
    assert Path("out.placement.yaml").is_file()


# What is refused; nothing is written.


@pytest.mark.parametrize(
    ("model", "options"), [(IR, ()), (ARTEFACTS / "torch_fx.onnx", ("--float", FLOAT))]
)
def test_an_ir_needs_its_float_model_and_nothing_else_takes_one(
    placer: Callable[..., Finished], model: Path, options: tuple[object, ...]
):
    finished = placer("import", model, *options)
    assert finished.code == 2
    assert "an OpenVINO IR (.xml) is imported beside the float ONNX model" in finished.err
    assert list(Path().iterdir()) == []


def test_a_quantized_model_is_no_float_model(here: Path):
    with pytest.raises(InputError, match="is quantized; give the float model that"):
        placer.import_model(IR, float_model=ARTEFACTS / "torch_fx.onnx")
    assert list(here.iterdir()) == []


def test_another_network_is_refused(here: Path):
    """Nothing in it has the names or the weights of the IR."""
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4] x) => (float[1,4] y) <float[4,4] w = {0.5}> { [fc] y = MatMul(x, w) }
    """
    onnx.save(with_random_weights(text), here / "other.onnx")
    with pytest.raises(InputError, match=r"nothing that .*nncf.xml quantizes is found in"):
        placer.import_model(IR, float_model=here / "other.onnx")


def test_a_model_with_one_more_output_is_refused(here: Path):
    proto = onnx.load(FLOAT)
    kind = onnx.TensorProto.FLOAT
    proto.graph.output.append(
        onnx.helper.make_tensor_value_info("/Add_output_0", kind, list("abcd"))
    )
    onnx.save(proto, here / "two.onnx")
    with pytest.raises(InputError, match=r"has 2 outputs \(.*, /Add_output_0\), .*nncf.xml has 1"):
        placer.import_model(IR, here / "out.onnx", pack="openvino", float_model=here / "two.onnx")
    assert not (here / "out.onnx").exists()


def test_another_function_is_refused(here: Path):
    """The same weights and names, but a bias that makes other outputs."""
    proto = onnx.load(FLOAT)
    for tensor in proto.graph.initializer:
        if tensor.name == "fc.bias":
            array = numpy_helper.to_array(tensor) + 100
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    onnx.save(proto, here / "shifted.onnx")
    with pytest.raises(InputError, match=r"to -\d+\.\d dB only: it is another function"):
        placer.import_model(IR, float_model=here / "shifted.onnx")
    assert [path.name for path in here.iterdir()] == ["shifted.onnx"]


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (1.0, -1.0)])
def test_a_range_without_a_positive_scale_is_refused(here: Path, low: float, high: float):
    x = ops.parameter([1, 4], np.float32, name="x")
    ends = [np.float32(value) for value in (low, high, low, high)]
    fake = ops.fake_quantize(x, *ends, 256, name="broken")
    save_ir(ops.matmul(fake, np.ones((4, 4), np.float32), False, False), x)
    with pytest.raises(InputError, match="FakeQuantize 'broken' has a scale that is not positive"):
        placer.import_model("broken.xml", float_model=linear(here))


@pytest.mark.parametrize("scale", [-0.1, 0.0])
def test_a_weight_without_a_positive_scale_is_refused(here: Path, scale: float):
    x = ops.parameter([1, 4], np.float32, name="x")
    integers = ops.convert(ops.constant(np.ones((4, 4), np.int8)), "f32")
    weight = ops.multiply(integers, np.full((1, 4), scale, np.float32), name="broken")
    save_ir(ops.matmul(x, weight, False, False), x)
    with pytest.raises(InputError, match="weight 'broken' has a scale that is not positive"):
        placer.import_model("broken.xml", float_model=linear(here))


def save_ir(result: object, parameter: object) -> None:
    openvino.save_model(openvino.Model([result], [parameter]), "broken.xml", False)


def linear(folder: Path) -> Path:
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4] x) => (float[1,4] y) <float[4,4] w = {0.1}> { [fc] y = MatMul(x, w) }
    """
    onnx.save(with_random_weights(text), folder / "linear.onnx")
    return folder / "linear.onnx"


CHOSEN = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16] x) => (float[1,16,4] chosen)
<float[16,64] w1 = {0.1}, float[16,256] w2 = {0.1}, int64[3] shape = {1, 64, 4},
 int64[1] most = {16}, int64[3] index = {1, 16, 1}, int64[3] wide = {1, 16, 4}> {
  [scores] s = MatMul(x, w1)
  [coordinates] b0 = MatMul(x, w2)
  [boxes] b = Reshape(b0, shape)
  [top] best, places0 = TopK<axis = 1>(s, most)
  [view] places1 = Reshape(places0, index)
  [repeat] places = Expand(places1, wide)
  [choose] chosen = GatherElements<axis = 1>(b, places)
}
"""


def test_an_ir_that_chooses_rows_is_judged_by_what_it_chooses_from(here: Path):
    """The IR rounds scores to levels that no Q/DQ pair has, and so chooses other rows."""
    onnx.save(with_random_weights(CHOSEN), here / "chosen.onnx")
    model = openvino.Core().read_model("chosen.onnx")
    scores = next(op for op in model.get_ops() if op.get_friendly_name() == "scores")
    quantize(model.inputs[0], 2.0, 256)
    quantize(scores.output(0), 2.0, 16)
    openvino.save_model(model, "coarse.xml", False)
    found = placer.import_model("coarse.xml", float_model=here / "chosen.onnx")
    assert found.matched.unmatched or found.losses
    assert found.sqnr > 40


def quantize(output: Any, end: float, levels: int) -> None:
    """Put a FakeQuantize between an output of an OpenVINO operation and all that reads it."""
    readers = list(output.get_target_inputs())
    ends = [np.float32(value) for value in (-end, end * (1 - 2 / levels)) * 2]
    fake = ops.fake_quantize(output, *ends, levels)
    for reader in readers:
        reader.replace_source_output(fake.output(0))
