"""The built-in packs: every rule's own tests, lint, and the mistakes both must find."""

import pytest

from placer.rules.lint import lint
from placer.rules.loader import Pack, builtin_pack_names, load_pack, parse_text
from placer.rules.schema import Rule
from placer.rules.testing import failures
from tests.rules.test_loader import GOOD, pack

RULES = [
    pytest.param(rule, loaded, id=f"{loaded.manifest.name}-{rule.id}")
    for loaded in map(load_pack, builtin_pack_names())
    for rule in loaded.rules
]


@pytest.mark.parametrize(("rule", "loaded"), RULES)
def test_inline_tests_hold(rule: Rule, loaded: Pack):
    assert rule.tests
    assert list(failures(rule, loaded)) == []


@pytest.mark.parametrize("name", builtin_pack_names())
def test_no_lint_findings(name: str):
    assert list(lint(load_pack(name))) == []


TESTED = """\
tests:
  - model: |
      <ir_version: 9, opset_import: ["": 17]>
      g (float[4] x) => (float[4] out) {
        [relu1] out = Relu(x)
      }
    matches: [{act: relu1}]
    quantized: {int8: ["x->relu1[0]"]}
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("{act: relu1}", "{act: relu2}", "expected matches"),
        ("x->relu1[0]", "x->relu1[1]", "layout 'int8': expected"),
        ('int8: ["', 'int4: ["', "unknown layout 'int4'"),
        ("Relu(x)", "Relu(y)", "not a valid ONNX text model"),
    ],
)
def test_a_wrong_expectation_fails(old: str, new: str, expected: str):
    right = parse_text(GOOD + TESTED, "relu.yaml", Rule)
    wrong = parse_text(GOOD + TESTED.replace(old, new), "relu.yaml", Rule)
    assert list(failures(right, load_pack("onnxruntime"))) == []
    (sentence,) = failures(wrong, load_pack("onnxruntime"))
    assert sentence.startswith("relu: test 1: ")
    assert expected in sentence


def test_lint_findings(tmp_path):
    text = GOOD.replace(
        "float: {}", "float: {}\n  again: {}\n  odd: {quantize: [act.x], keep_float: [act.x]}"
    )
    found = list(lint(load_pack(pack(tmp_path / "mine", relu=text))))
    assert found == [
        "relu: has no tests; add an ONNX text graph and its expected matches",
        "relu: layout 'int8' is in no test; list its edges under 'quantized'",
        "relu: layout 'odd' is in no test; list its edges under 'quantized'",
        "relu: layout 'odd' both quantizes and keeps float: act.x",
        "relu: layouts 'float' and 'again' say the same",
    ]
