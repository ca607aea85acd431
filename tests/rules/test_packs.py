"""The built-in packs: every rule's own tests, lint, and the mistakes both must find."""

import re
from pathlib import Path

import pytest

from placer.common.yaml_file import parse_text
from placer.errors import InputError
from placer.prediction.rule_tests import failures
from placer.rules.lint import lint
from placer.rules.pack import Pack
from placer.rules.packaging.load import builtin_pack_names, load_pack
from placer.rules.schema import Rule
from tests.rules.packaging.test_load import GOOD, MANIFEST, pack

RULES = [
    pytest.param(rule, loaded, id=f"{loaded.manifest.name}-{rule.id}")
    for loaded in map(load_pack, builtin_pack_names())
    for rule in loaded.own_rules
]


@pytest.mark.parametrize(("rule", "loaded"), RULES)
def test_inline_tests_hold(rule: Rule, loaded: Pack):
    assert rule.tests
    assert list(failures(rule, loaded)) == []


@pytest.mark.slow
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
        (
            "(float[4] x) => (float[4] out)",
            "() => (float[4] out) <float[4] x = {1}>",
            "'quantized' needs a match",
        ),
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


def test_an_operator_that_onnx_has_not_is_told(tmp_path):
    found = list(lint(load_pack(pack(tmp_path / "mine", relu=GOOD.replace("Relu", "ReLU")))))
    assert "relu: node 'act': ONNX has no operator 'ReLU'; did you mean 'Relu'?" in found


def test_a_node_without_a_tensor_of_those_above_it_is_told(tmp_path):
    add, gate = (
        "  add: {op: Add, inputs: [y, z], output: t}",
        "  gate: {op: Sigmoid, inputs: [g], output: z}",
    )
    for order, is_told in ((f"{add}\n{gate}", False), (f"{gate}\n{add}", True)):
        text = re.sub(r"(  act: .*)", rf"\1\n{order}", GOOD)
        found = list(lint(load_pack(pack(tmp_path / f"mine-{is_told}", relu=text))))
        assert any("node 'gate' has no tensor of a node above it" in f for f in found) == is_told


@pytest.mark.parametrize("op", ["ai.onnx::Relu", "::Relu"])
def test_a_domain_of_onnxs_own_operators_is_told(tmp_path, op: str):
    text = GOOD.replace("op: Relu", f'op: "{op}"')
    assert text != GOOD
    (found,) = (f for f in lint(load_pack(pack(tmp_path / "mine", relu=text))) if "never" in f)
    assert f"'{op}' never matches" in found


def test_a_misspelt_field_is_told_rather_than_the_one_that_is_missing():
    with pytest.raises(
        InputError, match=r"'layout': there is no such field; did you mean 'layouts'?"
    ):
        parse_text(GOOD.replace("layouts:", "layout:"), "relu.yaml", Rule)


WIDE = """\
id: wide
why: Says what a wider rule would say.
source: made up for this test
priority: 5
pattern:
  act: {op: Relu, inputs: [x], output: y}
layouts:
  int8:
    quantize: [act.x]
    default: true
    fuses: [{nodes: [act], op: PointWise, inputs: int8, outputs: readers}]
  float: {}
tests:
  - model: |
      <ir_version: 9, opset_import: ["": 17]>
      g (float[4] x) => (float[4] out) {
        [relu1] out = Relu(x)
      }
    matches: [{act: relu1}]
    quantized: {int8: ["x->relu1[0]"]}
    layers:
      int8:
        - "quantize x: float -> int8"
        - "relu1: int8 -> float16"
        - "reformat out: float16 -> float"
"""
TENSORRT = MANIFEST.replace("engine: onnxruntime", "engine: tensorrt").replace("uint8", "int8")


def test_a_pack_for_tensorrt_by_itself_has_written_types_and_symmetric_pairs(tmp_path):
    behaviour = load_pack(pack(tmp_path / "mine", pack=TENSORRT, wide=WIDE)).manifest.behaviour
    assert (behaviour.types, behaviour.pairs) == ("written", "symmetric")
    says = TENSORRT + "behaviour: {types: chosen}\n"
    behaviour = load_pack(pack(tmp_path / "ours", pack=says, wide=WIDE)).manifest.behaviour
    assert (behaviour.types, behaviour.pairs) == ("chosen", "symmetric")


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        (
            "quantize: [act.x]",
            "quantize: [act.x, x.*]",
            "layout 'int8' quantizes an edge twice: act.x and x.*",
        ),
        (
            "default: true",
            "default: true\n    share_scale: [[x, y], [x]]",
            "layout 'int8' gives 'x' two scales; write one share_scale set for both",
        ),
        ("float: {}", "float: {keep_float: [act.x]}\n  none: {}", None),
        (
            "float: {}",
            "float: {}\n  old: {requires: [act.x], when: {engine_versions: '<8'}}",
            "layout 'old' is unreachable: its engine_versions exclude those of the rule",
        ),
        (
            '      int8:\n        - "quantize x',
            '      float:\n        - "quantize x',
            "layout 'int8' states layers that no test predicts; list them under 'layers'",
        ),
        (
            "float: {}",
            "float: {}\n  same: {quantize: [act.x], requires: [act.x]}",
            "layout 'same' is in no test; list its edges under 'quantized'",
        ),
    ],
)
def test_lint_finds(tmp_path: Path, old: str, new: str, finding: str | None):
    text = WIDE.replace("priority: 5", "priority: 5\nwhen: {engine_versions: '>=8'}")
    folder = pack(tmp_path / "mine", pack=TENSORRT, wide=text.replace(old, new))
    found = [sentence for sentence in lint(load_pack(folder)) if sentence.startswith("wide")]
    assert found == ([f"wide: {finding}"] if finding else [])


def test_lint_finds_a_shadowed_rule(tmp_path: Path):
    narrow = WIDE.replace("id: wide", "id: narrow").replace("priority: 5", "priority: 4")
    folder = pack(tmp_path / "mine", pack=TENSORRT, wide=WIDE, narrow=narrow)
    assert [sentence for sentence in lint(load_pack(folder)) if "shadowed" in sentence] == [
        "narrow: is shadowed by wide in all its tests; raise its priority"
    ]
