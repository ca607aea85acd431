"""Drafts of rules from what NVIDIA's builder makes otherwise than predicted."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import yaml
from onnx import ModelProto

from placer.engines.tensorrt.library import Library
from placer.engines.tensorrt.offline_builder import check_model
from placer.errors import InputError
from placer.graph.text import parse_model
from placer.learning.builder import BuilderPlans
from placer.learning.case import Case, loaded
from placer.learning.learn import Lesson, learn, sentences_of
from placer.learning.region import cut
from placer.learning.text import model_text, with_short_names
from placer.learning.write import drafts_or_pack, write_draft
from placer.plan import Layer, Plan, Port
from placer.prediction.rule_tests import failures_of
from placer.rules.lint import lint
from placer.rules.packaging.load import load_pack
from placer.rules.packaging.new import new_pack
from placer.rules.packaging.store import Store
from placer.rules.schema import Rule
from placer.rules.sites import find_sites, place
from placer.rules.target import Target
from tests.conftest import Finished

TARGET = Target(compute_capability="8.9", typing="strong")
PACK = load_pack("tensorrt-rtx")
HEAD = '<ir_version: 9, opset_import: ["": 17]>\n'
POOLED = f"""{HEAD}
g (float[1,16,8,8] x) => (float[1,16,4,4] out)
<float[16,16,3,3] w1 = {{0.1}}, float[16,16,3,3] w2 = {{0.1}}> {{
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
  [pool1] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
  [conv2] out = Conv<pads = [1, 1, 1, 1]>(p, w2)
}}
"""
UP = f"""{HEAD}
g (float[1,8,8,8] x) => (float[1,8,17,17] out)
<float[8,8,3,3] w1 = {{0.1}}, float[8,8,3,3] w2 = {{0.1}}> {{
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w1)
  [relu1] r = Relu(c)
  [up1] out = ConvTranspose<strides = [2, 2]>(r, w2)
}}
"""


def case(text: str) -> Case:
    """A model with the default placement of the pack that says most about INT8."""
    model = loaded(parse_model(text))
    return Case(model, place(find_sites(model.graph, load_pack("tensorrt").rules, TARGET), {}))


class AsForetold(BuilderPlans):
    """Predicts with a pack that lacks a rule, and builds what the whole pack says."""

    def built(self, case: Case) -> Plan:
        return self.predicted(case, load_pack("tensorrt"))


def test_a_motion_that_is_missing_is_drafted_from_the_pool_and_one_convolution():
    whole = load_pack("tensorrt")

    def moves_past_pools(rule: Rule) -> bool:
        return rule.motion is not None and any("MaxPool" in n.op for n in rule.pattern.values())

    rules = tuple(rule for rule in whole.rules if not moves_past_pools(rule))
    assert len(rules) < len(whole.rules)
    plans = AsForetold(replace(whole, rules=rules), TARGET, lambda _: Plan(()))
    learned = learn(case(POOLED), plans, "a test, which builds what the pack says")
    assert learned.kind == "motion"
    assert learned.rule["pattern"] == {
        "maxpool1": {"op": "MaxPool", "inputs": ["x1"], "output": "t1"}
    }
    assert learned.rule["motion"] == {"before": "x1", "after": "t1"}
    (test,) = learned.rule["tests"]
    assert test["layers"]["follow"][:2] == ["quantize x1: float -> int8", "maxpool1: int8 -> int8"]


def test_nothing_is_to_be_learned_where_the_plans_agree(builder: Library):
    def build(model: ModelProto) -> Plan:
        return check_model(builder, model, "sm89").plan

    learned = learn(case(POOLED), BuilderPlans(PACK, TARGET, build), "a test")
    assert learned == Lesson(learned.whole)
    assert list(sentences_of(learned)) == [
        "all 6 layers are built as predicted; there is nothing to learn"
    ]


def test_a_difference_that_no_rule_can_say_is_shown_and_not_drafted():
    def halves(model: ModelProto) -> Plan:
        """A convolution in two layers, as no engine has it."""
        convs = [node.name for node in model.graph.node if node.op_type == "Conv"]
        ports = (Port("half"),)
        layers = (Layer(f"{n} {i}", "kgen", (n,), ports, ports) for n in convs for i in (1, 2))
        return Plan(tuple(layers), "a test")

    model = loaded(parse_model(POOLED))
    plans = BuilderPlans(PACK, TARGET, halves)
    learned = learn(Case(model, place((), {})), plans, "a test")
    assert learned.rule is None
    assert learned.minimal.disagrees
    *_, last = sentences_of(learned)
    assert last.startswith("no draft: what pack tensorrt-rtx says of layers is not in its rules")


def test_a_part_reads_what_the_rest_computes_and_names_become_short():
    whole = case(UP)
    part = Case.of(cut(whole, frozenset({"relu1", "up1"})), whole.placement)
    assert [value.name for value in part.model.proto.graph.input] == ["c"]
    short = with_short_names(part)
    assert [node.name for node in short.model.graph.nodes] == ["relu1", "convtranspose1"]
    assert sorted(map(str, short.placement.edges)) == [
        "t1 -> convtranspose1[0]",
        "w1 -> convtranspose1[1]",
    ]
    again = loaded(parse_model(model_text(short)))
    assert model_text(Case(again, short.placement)) == model_text(short)


@pytest.mark.slow
@pytest.mark.usefixtures("builder")
def test_the_command_writes_a_pack_of_drafts_and_never_over_one(
    placer: Callable[..., Finished],
):
    onnx.save(parse_model(UP), "up.onnx")
    learn_up = ("rules", "learn", "up.onnx", "--from", "builder", "-o", "drafts")
    nothing = placer(*learn_up)
    assert nothing.code == 0, nothing.err
    assert "there is nothing to learn" in nothing.out
    assert not Path("drafts").exists()
    found = placer(*learn_up, "--pack", "tensorrt")
    assert found.code == 0, found.err
    assert "rules test: 0 failures; rules lint: 0 findings" in found.out
    (path,) = Path("drafts").glob("draft-*.yaml")
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert document["id"].startswith("draft-convtranspose-float-")
    assert document["source"].startswith("builder of TensorRT-RTX 1.")
    drafts = load_pack(str(path.parent.resolve()))
    assert drafts.lineage[1].name == "tensorrt"
    assert not [*failures_of(drafts), *lint(drafts)]
    before = path.read_bytes()
    with pytest.raises(InputError, match="is there already; review it"):
        write_draft(document, path.parent, "tensorrt", "tensorrt")
    assert path.read_bytes() == before
    refused = placer("rules", "learn", "nowhere.onnx", "--from", "builder", "-o", "others")
    assert refused.code == 2


def test_where_a_draft_cannot_be_written_nothing_is_built(tmp_path: Path):
    assert drafts_or_pack(tmp_path / "drafts", "tensorrt") == load_pack("tensorrt")
    new_pack("drafts", "tensorrt", "tensorrt", tmp_path, Store.default())
    assert drafts_or_pack(tmp_path / "drafts", "tensorrt").manifest.name == "drafts"
    for folder, pack, message in (
        ("drafts", "tensorrt-rtx", "drafts extend pack tensorrt, not tensorrt-rtx; give that as"),
        ("Bad Name", "tensorrt", "'Bad Name' names no pack or engine"),
        ("other", "./a-pack", "by its name, not by a path as ./a-pack: install"),
        ("none/drafts", "tensorrt", "none is not a folder; make it first"),
    ):
        with pytest.raises(InputError, match=message):
            drafts_or_pack(tmp_path / folder, pack)
