"""Models that are too large for one message."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.engines.onnxruntime.engine import OnnxRuntimeModel
from placer.model.save import serialized


def test_a_session_reads_what_no_message_holds_from_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,64] x) => (float[1,64] y) { y = MatMul(x, w) }
    """)
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    inputs = {"x": np.ones((1, 64), np.float32)}
    expected = OnnxRuntimeModel(model, tmp_path, 1).run(inputs)
    monkeypatch.setattr("placer.model.save.MAX_INLINE_BYTES", 1000)
    with serialized(model, tmp_path) as (source, folder):
        assert len(source) < 1000
        assert (folder / "model.onnx.data").stat().st_size == weight.nbytes
    assert not folder.exists()
    found = OnnxRuntimeModel(model, tmp_path, 1).run(inputs)
    np.testing.assert_array_equal(found["y"], expected["y"])
