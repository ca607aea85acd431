"""``placer init``: a project file that says what was seen and that a run takes as it is."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import yaml

from placer.graph.text import parse_model
from placer.optimizer.project import keywords_of, read_project
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


def test_editors_find_the_schema_beside_it(placer: Placer):
    finished = placer("init", DIGITS / "digits.onnx", "--output", "mine/placer.yaml")
    assert finished.code == 0, finished.err
    text = Path("mine/placer.yaml").read_text()
    named = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    jsonschema.validate(yaml.safe_load(text), json.loads((Path("mine") / named).read_text()))
    assert (Path("mine") / yaml.safe_load(text)["model"]).samefile(DIGITS / "digits.onnx")


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
