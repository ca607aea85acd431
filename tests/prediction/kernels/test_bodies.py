"""What the body of an If reads from outside is written by a kernel as what others read is."""

from pathlib import Path

import pytest

from placer.prediction.rule_tests import layer_line
from tests.prediction.kernels.building import model_of, placement_of, predicted


# TensorRT-RTX 1.7.1 builds the Conv, bias included, and a kernel for each branch (placer check).
@pytest.mark.parametrize(("bias", "behind"), [("", "reformat a"), (", b", "scale conv")])
def test_a_convolution_that_only_bodies_read_is_predicted(tmp_path: Path, bias: str, behind: str):
    text = f"""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[1,16,16,16] x, bool c) => (float[1,16,16,16] y)
        <float[16,16,3,3] w = {{0.1}}, float[16] b = {{0.1}}> {{
          [conv] a = Conv<pads = [1, 1, 1, 1]>(x, w{bias})
          [if] y = If(c) <
            then_branch = t () => (float[1,16,16,16] o) {{ o = Sigmoid(a) }},
            else_branch = e () => (float[1,16,16,16] o) {{ o = Relu(a) }}
          >
        }}
    """
    graph = model_of(text, tmp_path).graph
    plan = predicted(graph, placement_of(graph, ("x->conv", "w->conv")))
    assert [layer_line(layer) for layer in plan.layers] == [
        "quantize x: float -> int8",
        "conv: int8 -> float",
        f"{behind}: float -> float16",
        "generated if: bool, float16 -> float16",
        "reformat y: float16 -> float",
    ]
