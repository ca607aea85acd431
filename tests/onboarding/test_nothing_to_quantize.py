"""Models with nothing to quantize among networks: no fault, unless options leave nothing."""

from pathlib import Path

import pytest
from junitparser import JUnitXml

from tests.conftest import Finished
from tests.onboarding.nets import ESTIMATE, NET, run, save_net, summary_in

PREPROCESSING = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,3,4,4] x) => (float[1,3,4,4] y) <float s = {0.5}> {
  [scale] m = Mul(x, s)
  [squash] y = Tanh(m)
}
"""


def onboarded(folder: Path, entries: str) -> Finished:
    (folder / "models.yaml").write_text(f"defaults: {ESTIMATE}\nmodels:\n{entries}")
    return run(folder / "models.yaml")


@pytest.mark.slow
def test_a_model_that_no_rule_matches_passes(tmp_path: Path):
    save_net(tmp_path / "scale.onnx", PREPROCESSING)
    save_net(tmp_path / "net.onnx")
    entries = "  - {model: scale.onnx, exclude: [squash]}\n  - {model: net.onnx, gates: sqnr>=0}\n"
    first, second = onboarded(tmp_path, entries), onboarded(tmp_path, entries)
    assert (first.code, second.code) == (0, 0), first.out
    output = tmp_path / "models.placer"
    scale = summary_in(output)["scale"]
    assert (scale.state, scale.ran, scale.result) == ("nothing to quantize", False, None)
    assert scale.why == "nothing changed"
    assert scale.reason.startswith("no rule of pack 'tensorrt' matches a node of")
    assert [(s.failures, s.errors) for s in JUnitXml.fromfile(str(output / "junit.xml"))] == [
        (0, 0),
        (0, 0),
    ]
    assert "1 had nothing to quantize." in (output / "report.html").read_text()


@pytest.mark.slow
def test_options_that_leave_nothing_are_bad_input_and_named_as_in_the_manifest(tmp_path: Path):
    save_net(tmp_path / "net.onnx")
    save_net(tmp_path / "open.onnx", NET.replace("float[1,16,16,16] x", "float[1,16,h,w] x"))
    entries = "  - {model: net.onnx, exclude: ['op:Conv']}\n  - {model: open.onnx}\n"
    assert onboarded(tmp_path, entries).code == 1
    found = summary_in(tmp_path / "models.placer")
    assert {model.state for model in found.values()} == {"bad input"}
    assert found["net"].reason.startswith("`exclude` and `only` leave no site")
    assert "`shapes`" in found["open"].reason
    assert "--" not in found["open"].reason
