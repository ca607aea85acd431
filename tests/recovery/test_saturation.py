"""Errors are looked at before the functions that hide them."""

from pathlib import Path

import onnx

from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.graph.text import parse_model
from placer.model import load_model
from placer.model.judged import with_outputs
from placer.recovery.saturation import before_saturation

NETWORK = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4] x) => (float[1,4] a, float[1,8] b, float[1,4] c)
<float[4,4] v = {0}, float[4,4] w = {0}, float half = {0.5}>
{
    [first] h = MatMul(x, v)
    [soft] s = Softmax(h)
    [scaled] a = Mul(s, half)
    [second] i = MatMul(s, w)
    [sigmoid] j = Sigmoid(i)
    [both] b = Concat<axis = 1>(j, h)
    [plain] c = Relu(i)
}
"""


def test_outputs_are_judged_by_what_their_last_saturating_functions_read(tmp_path: Path):
    """An output that something else leads to, too, as ``b`` and ``c``, is judged itself."""
    onnx.save(parse_model(NETWORK), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    judged = before_saturation(model.graph)
    assert set(judged.outputs) == {"h", "b", "i", "c"}
    seen = with_outputs(model, judged.outputs)
    assert seen.graph.outputs[:3] == model.graph.outputs
    found = OnnxRuntimeModel(seen.proto, seen.base_dir, 1).run({"x": [[1.0, 2.0, 3.0, 4.0]]})
    assert {"h", "i"} <= found.keys()


def test_a_shape_is_nothing_else_that_leads_to_an_output(tmp_path: Path):
    """As where an exporter flattens for a Softmax and gives the shape back behind it."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[1,4] x) => (float[a,b] y) <float[4,4] w = {0}, int64[3] wide = {-1, 2, 2}>
    {
        [linear] h = MatMul(x, w)
        [size] n = Shape(h)
        [flat] f = Reshape(h, wide)
        [soft] s = Softmax(f)
        [back] y = Reshape(s, n)
    }
    """
    proto = parse_model(text)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"  # Or it would be folded.
    onnx.save(proto, tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    assert "Shape" in model.graph.by_op
    assert before_saturation(model.graph).outputs == ("f",)


def test_a_network_without_them_stays_as_it_is(tmp_path: Path):
    onnx.save(
        parse_model(NETWORK.replace("Softmax", "Relu").replace("Sigmoid", "Relu")),
        tmp_path / "m.onnx",
    )
    model = load_model(tmp_path / "m.onnx")
    judged = before_saturation(model.graph)
    assert judged.outputs == model.graph.outputs
    assert with_outputs(model, judged.outputs) is model
