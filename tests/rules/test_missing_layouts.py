"""Layouts that quantize only beside others, in tests where there are no others."""

from pathlib import Path

from placer.prediction.rule_tests import failures_of
from placer.rules.lint import lint
from placer.rules.packaging.load import load_pack
from tests.rules.packaging.test_load import pack

MANIFEST = """
name: mine
version: 0.1.0
engine: openvino
engine_versions: ">=2025.1"
scheme: {activation: uint8, symmetric: false, weight: int8, per_channel: true, bias: float}
licence: Apache-2.0
maintainers: [me]
"""
POOL = """
id: pool
why: MaxPool keeps uint8, so a pair before it is no layer of its own beside others.
source: a log of OpenVINO 2026.4.1
pattern:
  pool: {op: MaxPool, inputs: [x], output: y}
where:
  - is_activation: x
layouts:
  beside-others: {quantize: [pool.x], beside_others: true}
  also: {quantize: [pool.x], share_scale: [[x, y]], beside_others: true}
  follow: {share_scale: [[x, y]], default: true}
tests:
  - model: |
      <ir_version: 9, opset_import: ["": 17]>
      g (float[1,16,8,8] x) => (float[1,16,4,4] y) {
        [pool1] y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
      }
    matches:
      - {pool: pool1}
    quantized:
      beside-others: EXPECTED
"""


def _pool(folder: Path, expected: str) -> Path:
    return pack(folder, pack=MANIFEST, pool=POOL.replace("EXPECTED", expected))


def test_a_layout_that_is_missing_quantizes_nothing(tmp_path: Path):
    assert not list(failures_of(load_pack(_pool(tmp_path / "right", "[]"))))
    (failure,) = failures_of(load_pack(_pool(tmp_path / "wrong", '["x->pool1[0]"]')))
    assert failure == ("pool: test 1: layout 'beside-others': expected ['x->pool1[0]'], found []")


def test_lint_says_that_no_test_has_layouts_that_are_missing_everywhere(tmp_path: Path):
    found = [str(finding) for finding in lint(load_pack(_pool(tmp_path / "mine", "[]")))]
    missing = "no test has layout 'beside-others' or 'also'; add one where each quantizes"
    assert any(missing in finding for finding in found)
    assert not any("come to the same" in finding for finding in found)
