"""Plugins, which are kernels of their own, and of whose results no shape is known."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from placer.model import load_model
from placer.quantization.placement import EMPTY
from tests.prediction.kernels.building import predicted

MODEL = """
<ir_version: 9, opset_import: ["": 17, "plugins": 1]> g (float[1,32,8,8] x) => (float y)
<float[8,32] w = {0.1}, float[8,32,1,1] v = {0.1}, int64[2] shape = {1, 2048}, int64[1] first = {0},
 int64[1] half = {16}, int64[1] all = {32}, int64[1] axis = {1}> {
  [plugin] p = plugins.Plugin(x)
  BODY
}
"""


APART = [{"plugin"}, {"act"}, {"again"}, {"exp"}]


@pytest.mark.parametrize(
    ("body", "layers"),
    [
        (
            "[pool] m = MaxPool<kernel_shape = [2, 2]>(p) [view] y = Reshape(m, shape)",
            [{"plugin"}, {"pool"}],
        ),
        ("[conv] y = Conv(x, p)", [{"plugin"}, {"conv"}]),
        (
            "[rows] r = MatMul(p, w) [left] a = Slice(r, first, half, axis) "
            "[right] b = Slice(r, half, all, axis) [act] s = Sigmoid(b) [product] y = Mul(a, s)",
            [{"plugin"}, {"rows"}, {"left", "right", "act", "product"}],
        ),
        ("[act] a = Relu(p) [again] b = plugins.Plugin(a) [exp] y = Exp(b)", APART),
        (
            "[conv] c = Conv(x, v) [again] b = plugins.Plugin(c) [sum] y = Add(b, p)",
            [{"plugin"}, {"conv"}, {"again"}, {"sum"}],
        ),
    ],
    ids=[
        "a view of a map",
        "weights of a Conv",
        "columns that are cut",
        "computed before and behind",
        "an activation of a Conv",
    ],
)
def test_what_a_plugin_makes_is_read(body: str, layers: list[set[str]], tmp_path: Path):
    proto = onnx.parser.parse_model(MODEL.replace("BODY", body))
    for weight in proto.graph.initializer[:2]:
        ones = np.ones(tuple(weight.dims), np.float32)
        weight.CopyFrom(numpy_helper.from_array(ones, weight.name))
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(proto, tmp_path / "net.onnx")
    plan = predicted(load_model(tmp_path / "net.onnx", plugins=True).graph, EMPTY)
    assert [{*layer.nodes} for layer in plan.layers if layer.kind == "compute"] == layers
