"""``placer init``: a project file that says what was seen and that a run takes as it is."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
import yaml

from placer.engines.doctor import Diagnosis, EngineStatus
from placer.graph.text import parse_model
from placer.optimizer.options import project_draft
from placer.optimizer.options.project import keywords_of, read_project
from placer.optimizer.options.project_draft import init_project
from tests.conftest import DIGITS, Finished

Placer = Callable[..., Finished]

TWO_INPUTS = """
<ir_version: 9, opset_import: ["": 17]>
g (float[N, T] tokens, float[N, 3] other) => (float[N, T] y, float[N, 3] z) {
  y = Relu(tokens)
  z = Relu(other)
}
"""


def test_data_beside_the_model_are_found_and_labels_choose_the_gate(placer: Placer):
    for file in ("digits.onnx", "calibration.npz", "evaluation.npz"):
        shutil.copy(DIGITS / file, file)
    np.savez("unrelated.npz", x=np.zeros(3))
    np.save("also_unrelated.npy", np.zeros(3))
    np.savez("another.npz", image=np.zeros((4, 3, 32, 32), "f"))
    finished = placer("init", "digits.onnx")
    assert finished.code == 0, finished.err
    assert finished.out == "wrote placer.yaml; now run: placer optimize --project placer.yaml\n"
    given = keywords_of(read_project(Path("placer.yaml")), Path("placer.yaml"), ["quick"])
    assert given == {
        "data": "calibration.npz",
        "eval_data": "evaluation.npz",
        "gates": ["top1_drop<=0.01"],
        "engine": "auto",
        "preset": "quick",
    }
    text = Path("placer.yaml").read_text()
    assert "# 56 nodes: 15 BatchNormalization, 14 Conv, 13 Relu, 3 Add and others.\n" in text
    assert "# Inputs: image (batchx1x32x32). Outputs: logits.\n" in text


def test_profiles_of_engines_that_estimate_name_a_gpu(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    runs = tuple(
        EngineStatus(name, None) for name in ("onnxruntime", "fusion-model", "tensorrt-rtx-build")
    )
    here = Diagnosis("3.12", "Linux", packages={}, gpus=(), engines=runs)
    monkeypatch.setattr(project_draft, "diagnose", lambda: here)
    shutil.copy(DIGITS / "digits.onnx", "digits.onnx")
    assert placer("init", "digits.onnx").code == 0
    text = Path("placer.yaml").read_text()
    assert "# auto measures on a GPU's engine, or the fastest of: onnxruntime.\n" in text
    profiles = yaml.safe_load(text)["profiles"]
    estimating = [p for p in profiles.values() if p.get("engine") not in (None, "onnxruntime")]
    assert [profile["engine"] for profile in estimating] == ["fusion-model", "tensorrt-rtx-build"]
    assert {profile["gpu"] for profile in estimating} == {"l4"}


def test_gates_are_for_the_labels_of_what_is_judged(placer: Placer):
    shutil.copy(DIGITS / "digits.onnx", "digits.onnx")
    image = np.zeros((4, 1, 32, 32), "f")
    np.savez("calibration.npz", image=image, labels=np.zeros(4, "i"))
    np.savez("evaluation.npz", image=image)
    assert placer("init", "digits.onnx").code == 0
    assert yaml.safe_load(Path("placer.yaml").read_text())["gates"] == ["sqnr>=15"]


def test_gates_are_left_open_where_folders_may_be_classes(placer: Placer):
    Path("images").mkdir()
    Path("images/preprocess.yaml").write_text("{}")
    model = DIGITS / "digits.onnx"
    assert placer("init", model, "--data", "images", "--output", "placer.yaml").code == 0
    text = Path("placer.yaml").read_text()
    assert "gates" not in yaml.safe_load(text)
    assert "# By default top1_drop<=0.01 where the data has labels, otherwise:\n" in text


def test_folders_that_may_not_be_read_are_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    model = Path(shutil.copy(DIGITS / "digits.onnx", tmp_path))
    (tmp_path / "private").mkdir()
    monkeypatch.setattr(Path, "is_file", refuse)
    assert "data" not in yaml.safe_load(init_project(model).read_text())


def test_editors_find_the_schema_beside_it(placer: Placer):
    finished = placer("init", DIGITS / "digits.onnx", "--output", "my own/placer.yaml")
    assert finished.code == 0, finished.err
    assert finished.out.endswith("run: placer optimize --project 'my own/placer.yaml'\n")
    text = Path("my own/placer.yaml").read_text()
    named = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    jsonschema.validate(yaml.safe_load(text), json.loads((Path("my own") / named).read_text()))
    assert (Path("my own") / yaml.safe_load(text)["model"]).samefile(DIGITS / "digits.onnx")


def test_sizes_that_the_model_leaves_open_are_asked_for_or_the_data_s(placer: Placer):
    onnx.save(parse_model(TWO_INPUTS), "net.onnx")
    assert placer("init", "net.onnx").code == 0
    text = Path("placer.yaml").read_text()
    assert "# shapes:\n#   tokens: NxT\n" in text
    assert "gates: ['sqnr>=15']" in text
    assert "# data: calibration.npz" in text

    np.savez("mine.npz", tokens=np.zeros((4, 7), "f"), other=np.zeros((4, 3), "f"))
    finished = placer("init", "net.onnx")
    assert finished.code == 2
    assert "placer.yaml is there already; give --replace or another --output" in finished.err
    assert placer("init", "net.onnx", "--replace").code == 0
    assert yaml.safe_load(Path("placer.yaml").read_text())["shapes"] == {"tokens": [1, 7]}


def test_what_is_no_model_or_no_data_is_refused(placer: Placer):
    Path("net.onnx").write_text("no model")
    assert "net.onnx is not an ONNX file" in placer("init", "net.onnx").err
    finished = placer("init", DIGITS / "digits.onnx", "--data", "x.npz", "-o", "placer.yaml")
    assert finished.code == 2
    assert "x.npz" in finished.err
    assert not Path("placer.yaml").exists()


def test_a_folder_that_cannot_be_written_is_told_by_the_file_asked_for(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "touch", refuse)
    finished = placer("init", DIGITS / "digits.onnx", "-o", "placer.yaml")
    assert finished.code == 2
    assert "cannot write placer.yaml: Read-only file system" in finished.err
    assert not Path(".schema").exists()
