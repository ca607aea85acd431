"""Why the pack has no rule for LSTM and GRU: what OpenVINO makes of them in INT8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.calibration.dataset import synthetic_dataset
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.errors import RunError
from placer.graph import Edge
from placer.model import Model, load_model

pytest.importorskip("openvino", reason="OpenVINO is not installed")
from tests.engines.test_openvino import ENGINE, Placement, candidate
from tests.reference_outputs import sqnr

Save = Callable[..., Path]
X, W, R = (Edge(name, "cell", index) for index, name in enumerate("xwr"))


def recurrent(save: Save, op: str, gates: int) -> Model:
    rows = 16 * gates
    return load_model(
        save(
            f"""
            <ir_version: 9, opset_import: ["": 17]>
            net (float[8,2,32] x) => (float[8,1,2,16] y)
            <float[1,{rows},32] w = {{0.1}}, float[1,{rows},16] r = {{0.1}}> {{
              [cell] y = {op}<hidden_size = 16>(x, w, r)
            }}
            """
        )
    )


def agreement(model: Model, proto: onnx.ModelProto) -> float:
    """SQNR in dB of OpenVINO's output against ONNX Runtime's for the same Q/DQ model."""
    inputs = next(iter(synthetic_dataset(model, 1, 3))).inputs
    found = ENGINE.compile(proto, model.base_dir).run(inputs)["y"]
    expected = OnnxRuntimeModel(proto, model.base_dir, 1, optimized=False).run(inputs)["y"]
    return sqnr(np.asarray(expected), found)


@pytest.mark.parametrize("edges", [(X,), (W,), (W, R)])
def test_half_quantized_cells_are_right_since_they_run_in_float(
    save: Save, edges: tuple[Edge, ...]
):
    model = recurrent(save, "LSTM", 4)
    assert agreement(model, candidate(model, Placement.of(edges))) > 60


@pytest.mark.parametrize("edges", [(X, W), (X, W, R)])
def test_a_quantized_lstm_is_wrong(save: Save, edges: tuple[Edge, ...]):
    """When this fails, OpenVINO has been mended: write since which version, and add a rule."""
    model = recurrent(save, "LSTM", 4)
    found = agreement(model, candidate(model, Placement.of(edges)))
    assert found < 10, f"{ENGINE.version} is right: {found:.1f} dB"


def test_a_quantized_gru_is_refused(save: Save):
    """When this fails, OpenVINO takes it: look at its outputs, and add a rule if they are right."""
    model = recurrent(save, "GRU", 3)
    proto = candidate(model, Placement.of((X, W, R)))
    with pytest.raises(RunError, match=r"GRUSequence .* expects Constant for port 3"):
        ENGINE.compile(proto, model.base_dir)


def test_both_directions_of_a_node_are_layers_of_it(save: Save):
    """OpenVINO calls the forward LSTM after its node, and neither half of the GRU."""
    path = save(
        """
        <ir_version: 9, opset_import: ["": 17]>
        net (float[8,2,32] x) => (float[2,1,8,16] y)
        <float[2,48,32] w = {0.1}, float[2,48,16] r = {0.1}, int64[3] rows = {8, 2, 32},
         float[1,64,32] w2 = {0.1}, float[1,64,16] r2 = {0.1}> {
          [both] h = GRU<direction = "bidirectional", hidden_size = 16>(x, w, r)
          [order] t = Transpose<perm = [0, 2, 1, 3]>(h)
          [rows] m = Reshape(t, rows)
          [turn] u = Transpose<perm = [1, 0, 2]>(m)
          [forward] y = LSTM<hidden_size = 16>(u, w2, r2)
        }
        """
    )
    model = load_model(path)
    plan = ENGINE.compile(model.proto, model.base_dir).plan()
    cells = [layer for layer in plan.layers if layer.op == "RNNSeq"]
    assert [(layer.kind, layer.nodes[-1]) for layer in cells] == [
        *[("compute", "both")] * 2,
        ("compute", "forward"),
    ]
