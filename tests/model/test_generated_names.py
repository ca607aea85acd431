"""Names that ONNX Runtime's optimizer has made up, and would make up once more."""

from collections.abc import Callable
from pathlib import Path

from placer.model import load_model

# As ONNX Runtime writes a MatMul and its bias, after `quant_pre_process` for example.
WRITTEN = """
<ir_version: 9, opset_import: ["": 17]>
g (float[2,4,8] x, bool c) => (float[8,8] z)
<int64[2] gemm_input_shape = {8, 8}, int64[2] gemm_input_shape_token_0 = {4, 16},
 float[8,8] w_token_3 = {1}, float[8] b = {1}> {
  [there] r = Reshape(x, gemm_input_shape)
  [fc] p = Gemm(r, w_token_3, b)
  [view] v = Reshape(p, gemm_input_shape_token_0)
  [relu] y = Relu(v)
  [branch] z = If(c) <
    then_branch = then () => (float[8,8] a) { a = Reshape(y, gemm_input_shape) },
    else_branch = other () => (float[8,8] s) { s = Softmax(p) }
  >
}
"""


def test_shapes_with_names_of_onnx_runtimes_optimizer_are_renamed(
    save: Callable[..., Path],
) -> None:
    """It refuses some models that have them: "Attempt to replace the existing tensor"."""
    graph = load_model(save(WRITTEN)).graph
    assert graph.by_name["there"].inputs[1] == "gemm_input_shape/constant"
    assert graph.by_name["view"].inputs[1] == "gemm_input_shape_token_0/constant"
    assert graph.by_name["fc"].inputs == ("r", "w_token_3", "b")  # Placements know weights so.
    (then,) = (a.g for a in graph.by_name["branch"].proto.attribute if a.name == "then_branch")
    assert list(then.node[0].input) == ["y", "gemm_input_shape/constant"]
