"""Models with many values, and those that are too large for one message."""

import errno
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.engines.onnxruntime.engine import OnnxRuntimeModel
from placer.errors import RunError
from placer.graph.edit import without_initializers
from placer.model import save_model
from placer.model.save import serialized


def product() -> onnx.ModelProto:
    """y = MatMul(x, w), where w has 16 KiB."""
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17], producer_name: "test", doc_string: "a product">
    g (float[1,64] x) => (float[1,64] y) { y = MatMul(x, w) }
    """)
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    model.metadata_props.add(key="made by", value="a test")
    return model


@pytest.mark.parametrize("limit", ["MAX_INLINE_BYTES", "_MAPPED_BYTES"])
def test_a_session_reads_many_values_from_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
):
    model = product()
    inputs = {"x": np.ones((1, 64), np.float32)}
    expected = OnnxRuntimeModel(model, tmp_path, 1).run(inputs)
    monkeypatch.setattr(f"placer.model.save.{limit}", 1000)
    with serialized(model, tmp_path, mapped=limit == "_MAPPED_BYTES") as (source, folder):
        assert len(source) < 1000
        assert [file.stat().st_size for file in folder.iterdir()] == [4 * 64 * 64]
    assert not folder.exists()
    found = OnnxRuntimeModel(model, tmp_path, 1).run(inputs)
    np.testing.assert_array_equal(found["y"], expected["y"])


def test_where_the_temporary_folder_is_full_values_stay_in_the_message_if_it_holds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("placer.model.save.stream", fail)
    monkeypatch.setattr("placer.model.save._MAPPED_BYTES", 1000)
    with serialized(product(), tmp_path) as (source, folder):
        assert onnx.load_from_string(source) == product()
        assert folder == tmp_path
    monkeypatch.setattr("placer.model.save.MAX_INLINE_BYTES", 1000)
    with pytest.raises(RunError, match="No space left on device; free some space, or name a"):
        serialized(product(), tmp_path).__enter__()


@pytest.mark.parametrize("initializers", [0, 1, 40])
def test_a_file_is_the_message_whose_initializers_are_written_one_by_one(
    tmp_path: Path, initializers: int
):
    model = product()
    (weight,) = model.graph.initializer
    del model.graph.initializer[:]
    for index in range(initializers):
        weight.name = f"w{index}"
        model.graph.initializer.append(weight)
    save_model(model, tmp_path, tmp_path / "model.onnx")
    assert onnx.load(tmp_path / "model.onnx") == without_initializers(model, ())
