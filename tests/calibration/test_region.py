"""Regions of models: cut by tensors or around a node, with the data that reaches them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime as ort
import pytest

import placer as package
from placer.errors import InputError
from placer.graph.text import parse_model
from placer.model.save import saved_together, source_of
from tests.conftest import DIGITS, Finished

NETWORK = """
<ir_version: 9, opset_import: ["": 17]>
net (float[N,1,8,8] image, float[N,3] extra) => (float[N,3] scores, float[N,3] other)
<float[4,1,3,3] w = {0.1}, float[3,4] head = {0.5}> {
  [stem] a = Conv<pads = [1, 1, 1, 1]>(image, w)
  [relu] b = Relu(a)
  [pool] c = GlobalAveragePool(b)
  [flat] d = Flatten(c)
  [head] e = Gemm<transB = 1>(d, head)
  [sum] scores = Add(e, extra)
  [off] other = Sigmoid(extra)
}
"""


def outputs(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return dict(
        zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True)
    )


@pytest.fixture
def network(save: Callable[..., Path]) -> Path:
    return save(NETWORK)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "data.npz"
    arrays = {"image": rng.standard_normal((5, 1, 8, 8)), "extra": rng.standard_normal((5, 3))}
    np.savez(path, **{name: array.astype(np.float32) for name, array in arrays.items()})
    return path


def test_the_region_between_tensors_computes_the_same(network: Path, data: Path, tmp_path: Path):
    region = package.extract_region(
        network, tmp_path / "part.onnx", inputs=["b"], outputs=["e"], data=str(data)
    )
    proto = onnx.load(region.model)
    assert [node.name for node in proto.graph.node] == ["pool", "flat", "head"]
    assert [t.name for t in proto.graph.initializer] == ["head"]
    reached = np.load(region.data)["b"]
    assert reached.shape == (5, 4, 8, 8)
    whole = onnx.load(network)
    whole.graph.output.extend([onnx.ValueInfoProto(name="b"), onnx.ValueInfoProto(name="e")])
    onnx.save(whole, tmp_path / "whole.onnx")
    expected = outputs(tmp_path / "whole.onnx", dict(np.load(data)))
    np.testing.assert_allclose(reached, expected["b"], rtol=1e-5)
    rows = [outputs(region.model, {"b": row[None]})["e"] for row in reached]
    np.testing.assert_allclose(np.concatenate(rows), expected["e"], rtol=1e-4, atol=1e-6)


def test_without_inputs_it_begins_at_the_graph_inputs_needed(network: Path, tmp_path: Path):
    region = package.extract_region(network, tmp_path / "part.onnx", outputs=["b"])
    assert region.inputs == ("image",)
    assert region.nodes == 2


def test_around_a_node_weights_come_with_it(tmp_path: Path):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    net (float[1,4] x) => (float[1,4] y)
    <float s = {0.1}, int8 z = {0}, int8[4,4] w = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}>
    {
      [q] xq = QuantizeLinear(x, s, z)
      [dq] xd = DequantizeLinear(xq, s, z)
      [dqw] wd = DequantizeLinear(w, s, z)
      [mm] m = MatMul(xd, wd)
      [relu] y = Relu(m)
    }
    """
    onnx.save(parse_model(text), tmp_path / "net.onnx")
    target = tmp_path / "part.onnx"
    region = package.extract_region(tmp_path / "net.onnx", target, around="mm", depth=1)
    assert (region.inputs, region.outputs) == (("xq",), ("y",))
    assert [node.name for node in onnx.load(target).graph.node] == ["dq", "dqw", "mm", "relu"]
    alone = package.extract_region(tmp_path / "net.onnx", target, around="mm", depth=0)
    assert (alone.inputs, alone.outputs, alone.nodes) == (("xd",), ("m",), 2)


def test_what_a_subgraph_reads_from_outside_belongs_to_the_region(tmp_path: Path):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    net (float[2] x, bool c) => (float[2] y) {
      [neg] n = Neg(x)
      [abs] a = Abs(x)
      [if] z = If (c) <
        then_branch = yes () => (float[2] t) { t = Relu(n) },
        else_branch = no () => (float[2] e) { e = Identity(a) }
      >
      [end] y = Exp(z)
    }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    region = package.extract_region(tmp_path / "net.onnx", tmp_path / "part.onnx", outputs=["z"])
    assert region.nodes == 3
    around = package.extract_region(
        tmp_path / "net.onnx", tmp_path / "part.onnx", around="if", depth=0
    )
    assert set(around.inputs) == {"n", "a", "c"}


def test_external_weights_are_copied_and_others_not_even_looked_for(tmp_path: Path):
    proto = parse_model(NETWORK)
    for tensor in proto.graph.initializer:
        folder = tmp_path / "weights.bin"
        values = onnx.numpy_helper.to_array(tensor).tobytes()
        offset = folder.stat().st_size if folder.exists() else 0
        with folder.open("ab") as out:
            out.write(values)
        tensor.ClearField("float_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", offset)):
            tensor.external_data.add(key=key, value=str(value))
    onnx.save(proto, tmp_path / "net.onnx")
    target = tmp_path / "elsewhere" / "part.onnx"
    package.extract_region(tmp_path / "net.onnx", target, inputs=["d"], outputs=["e"])
    (tensor,) = onnx.load(target).graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), np.full((3, 4), 0.5, "f4"))


def test_weights_that_are_listed_as_inputs_take_no_data(network: Path, data: Path, tmp_path: Path):
    """As before IR version 4; some are empty, as the roi of Resize."""
    proto = onnx.load(network)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(0, "f4"), "roi"))
    for tensor in proto.graph.initializer:
        shape, dtype = tensor.dims, tensor.data_type
        proto.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, dtype, shape))
    onnx.save(proto, network)
    region = package.extract_region(
        network, tmp_path / "part.onnx", inputs=["c"], outputs=["e"], data=str(data)
    )
    assert np.load(region.data)["c"].shape == (5, 4, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"outputs": ["scorse"]}, "no tensor 'scorse'; did you mean 'scores'"),
        ({"around": "heat"}, "no node 'heat'; did you mean 'head'"),
        ({"inputs": ["b"], "outputs": ["scores"]}, "also reads 'extra'; add it to the inputs"),
        ({"inputs": ["b", "extra"], "outputs": ["e"]}, "depends on 'extra'; leave it out"),
        ({"inputs": ["e"], "outputs": ["e"]}, "'e' is an input and an output"),
        ({}, "by its outputs or by the node"),
    ],
)
def test_impossible_regions(
    network: Path, tmp_path: Path, arguments: dict[str, object], message: str
):
    with pytest.raises(InputError, match=message):
        package.extract_region(network, tmp_path / "part.onnx", **arguments)
    assert not (tmp_path / "part.onnx").exists()


@pytest.mark.slow
def test_the_command_writes_what_optimize_takes(placer: Callable[..., Finished]):
    model, images = DIGITS / "digits.onnx", DIGITS / "calibration.npz"
    nodes = onnx.load(model).graph.node
    convolution = [n for n in nodes if n.op_type == "Conv"][1]
    command = ("extract", model, "--around", convolution.name, "--depth", 1, "--data", images)
    finished = placer(*command, "-o", "part.onnx")
    assert finished.code == 0, finished.err
    assert "wrote part.onnx of" in finished.out
    run = ("optimize", "part.onnx", "--data", "part.npz", "--budget", 2, "--no-cache")
    done = placer(*run, "--preset", "quick", "--engine", "fusion-model", "--gpu", "a100")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("a,b", "a,a,b,d", "outputs: a, a,b, d\n"),
        ("b,", "b,", "outputs: b,\n"),
        ("a,d", "d,a", "outputs: d, a\n"),
        ("a,d", "a,d", "'a,d' can be read as 'a' and 'd' or as 'a,d': "),
    ],
)
def test_names_with_commas_are_names_of_tensors(
    placer: Callable[..., Finished], save: Callable[..., Path], name: str, given: str, told: str
):
    network = save(NETWORK)
    proto = onnx.load(network)
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = [name if known == "b" else known for known in names]
    onnx.save(proto, network)
    finished = placer("extract", network, "--outputs", given, "-o", "part.onnx")
    assert told in f"{finished.out}{finished.err}"


def test_what_is_saved_together_stays_as_it_is(network: Path, tmp_path: Path):
    proto = onnx.load(network)
    proto.metadata_props.add(key="author", value="somebody")
    before = proto.SerializeToString(deterministic=True)
    with saved_together(proto, tmp_path, tmp_path / "new.onnx", source=network):
        assert proto.SerializeToString(deterministic=True) == before
    assert source_of(tmp_path / "new.onnx") == tmp_path / network.name
