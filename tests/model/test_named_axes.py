"""Pads and Resizes that name their axes are written for all axes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from placer.model import load_model

Save = Callable[..., Path]

GRAPH = """<ir_version: 9, opset_import: ["": 18]>
g (float[BATCH,2,6,5] x) => (float[n,c,h,w] y)
<int64[2] axes = {-1, 2}, int64[4] ends = {1, 0, 2, 0}, float[2] twice = {2, 3},
 int64[2] sizes = {10, 9}, float[4] region = {0, 0, 1, 1}> {
  r = Relu(x)
  [node] y = NODE
}"""
NODES = {
    "Pad(r, ends, , axes)": [0, 0, 0, 1, 0, 0, 0, 2],
    "Resize<axes = [2, -1]>(r, , twice)": [1, 1, 2, 3],
    "Resize<axes = [3, 2]>(r, , , sizes)": [1, 2, 9, 10],
}


@pytest.mark.parametrize(("node", "numbers"), NODES.items(), ids=lambda value: str(value)[:6])
def test_numbers_for_all_axes(save: Save, node: str, numbers: list[int]):
    path = save(GRAPH.replace("NODE", node).replace("BATCH", "1"))
    proto = load_model(path).proto
    (written,) = (n for n in proto.graph.node if n.name == "node")
    constants = {t.name: numpy_helper.to_array(t).tolist() for t in proto.graph.initializer}
    assert [constants[name] for name in written.input[1:] if name] == [numbers]
    assert all(attribute.name != "axes" for attribute in written.attribute)
    x = np.arange(60, dtype=np.float32).reshape(1, 2, 6, 5)
    sessions = [ort.InferenceSession(model) for model in (str(path), proto.SerializeToString())]
    before, after = (session.run(None, {"x": x})[0] for session in sessions)
    assert np.array_equal(before, after)


def test_what_is_not_known_stays(save: Save):
    nodes = "Resize<axes = [2, 3]>(r, , , sizes)", "Resize<axes = [2, 3]>(r, , twice)"
    sized, scaled = (
        load_model(save(GRAPH.replace("NODE", node).replace("BATCH", "batch")), {"x": (1, 2, 6, 5)})
        for node in nodes
    )
    assert "axes" in sized.graph.by_name["node"].attributes
    assert "axes" not in scaled.graph.by_name["node"].attributes
