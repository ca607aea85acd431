"""Plans of files that ONNX Runtime's optimizer wrote: its names are nodes of the model there."""

from pathlib import Path

import onnx
import onnxruntime as ort

from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.graph.text import parse_model

TOKENS = """<ir_version: 9, opset_import: ["": 17]>
g (float[2,8,16] x) => (float[2,8,4] out)
<float[16,4] w = {1}, float[4] b = {1}> {
  [tanh] t = Tanh(x)
  [product] p = MatMul(t, w)
  [bias] s = Add(p, b)
  [last] out = Softmax(s)
}"""


def test_views_around_a_gemm_are_layers_of_a_file_that_has_them(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    ort.InferenceSession(parse_model(TOKENS).SerializeToString(), options)
    written = onnx.load(tmp_path / "optimized.onnx")
    names = [node.name for node in written.graph.node]
    assert "gemm_input_reshape" in names
    plan = OnnxRuntimeEngine().compile(written, tmp_path).plan()
    assert sorted(node for layer in plan.layers for node in layer.nodes) == sorted(names)
    assert all(len(layer.nodes) == 1 for layer in plan.layers)
