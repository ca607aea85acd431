"""Which rule pack explains a model or a placement where none is given."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import yaml
from onnx import numpy_helper

import placer

MODEL = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,1,1] w = {0.5}> {
  [conv1] c = Conv(x, w)
  [relu1] y = Relu(c)
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path, proto = tmp_path / "model.onnx", onnx.parser.parse_model(MODEL)
    values = np.random.default_rng(0).normal(0, 0.1, (16, 16, 1, 1)).astype(np.float32)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w"))
    onnx.save(proto, path)
    return path


def placement_of(model: Path, pack: str) -> Path:
    """A placement of ``model`` that says it was made with ``pack``."""
    path = model.with_name("placement.yaml")
    placer.explain(model).write_improved(path)
    document = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(document | {"pack": f"{pack} 1.0.0"}))
    return path


def pack_of(*arguments: Path, gpu: str | None = None) -> str:
    return placer.explain(*arguments, gpu=gpu).pack.manifest.name


def test_a_placement_and_the_model_made_of_it_are_explained_by_their_own_pack(
    model: Path, tmp_path: Path
):
    placement = placement_of(model, "onnxruntime")
    assert pack_of(model, placement) == "onnxruntime"
    data = tmp_path / "data.npz"
    np.savez(data, x=np.random.default_rng(1).normal(0, 1, (4, 16, 8, 8)).astype(np.float32))
    applied = placer.apply_placement(
        placement, model, data=data, calibration="minmax", output=tmp_path / "out", cache=False
    )
    assert pack_of(applied.folder / "optimized.onnx") == "onnxruntime"


def test_a_gpu_is_asked_for_with_tensorrts_pack(model: Path):
    placement = placement_of(model, "onnxruntime")
    assert pack_of(model, placement, gpu="l4") == "tensorrt"


def test_what_names_no_built_in_pack_is_explained_by_tensorrts(model: Path):
    placement = placement_of(model, "ours")
    assert pack_of(model, placement) == pack_of(model) == "tensorrt"
