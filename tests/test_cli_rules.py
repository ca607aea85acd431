"""``placer rules``: list, show, test, lint, schema."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

from placer.rules.loader import load_pack
from tests.conftest import Finished
from tests.rules.test_loader import GOOD, pack

Placer = Callable[..., Finished]


def test_list_names_every_rule(placer: Placer):
    finished = placer("rules", "list")
    assert finished.code == 0
    for name in ("onnxruntime", "tensorrt"):
        assert load_pack(name).name_and_version in finished.out
    assert "conv-add-relu" in finished.out


def test_show_prints_a_rule_that_loads_again(placer: Placer):
    finished = placer("rules", "show", "concat", "--pack", "tensorrt")
    shown = yaml.safe_load(finished.out)
    assert shown["id"] == "concat"
    assert shown["layouts"]["shared-scale"]["share_scale"] == [["xs", "y"]]
    unknown = placer("rules", "show", "nothing")
    assert unknown.code == 2
    assert "pack 'onnxruntime' has no rule 'nothing'; it has: activation," in unknown.err


def test_test_and_lint_pass_for_the_built_in_packs(placer: Placer):
    assert "tests passed" in placer("rules", "test").out
    assert placer("rules", "lint").out == "no findings\n"


@pytest.mark.parametrize(("command", "code"), [("test", 1), ("lint", 2)])
def test_a_broken_pack_fails(placer: Placer, tmp_path: Path, command: str, code: int):
    wrong = GOOD + "tests: [{model: nothing, matches: []}]\n"
    finished = placer("rules", command, pack(tmp_path / "mine", relu=wrong))
    assert finished.code == code
    assert "relu: " in finished.out


def test_the_printed_schema_accepts_the_built_in_rules(placer: Placer):
    schema = json.loads(placer("rules", "schema").out)
    for path in sorted(load_pack("tensorrt").path.glob("*.yaml")):
        if path.name != "pack.yaml":
            jsonschema.validate(yaml.safe_load(path.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"id": "Not An Id"}, schema)
