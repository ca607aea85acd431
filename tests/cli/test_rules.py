"""``placer rules``: look at packs, test and lint them, pass them on, pin them."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.prepare import prepare
from placer.rules.packaging.load import load_pack
from tests.conftest import Finished
from tests.rules.packaging.test_load import GOOD, MANIFEST, pack
from tests.rules.test_packs import TESTED

Placer = Callable[..., Finished]


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's data folder, for packs that a test installs."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "placer" / "packs"


def refused(finished: Finished) -> str:
    assert finished.code == 2
    assert finished.err.startswith("placer: error: ")
    assert finished.err.count("\n") == 1
    return finished.err


def test_list_names_the_packs_and_on_demand_their_rules(placer: Placer):
    finished = placer("rules", "list")
    assert finished.code == 0
    lines = [re.split(r"\W*│\W*", line) for line in finished.out.splitlines()]
    packs = [load_pack(name) for name in ("onnxruntime", "tensorrt")]
    listed = {(line[1], line[2], line[-2]) for line in lines if len(line) > 5}
    assert listed >= {
        (p.manifest.name, p.manifest.version, p.content_hash.removeprefix("sha256:")[:12])
        for p in packs
    }
    rules = placer("rules", "list", "tensorrt").out
    assert "tensorrt 0.28.0 for tensorrt" in rules
    assert "conv-add-relu" in rules


def test_show_prints_a_rule_that_loads_again(placer: Placer):
    finished = placer("rules", "show", "concat", "--pack", "tensorrt")
    assert finished.out.startswith("# from tensorrt 0.28.0\n")
    shown = yaml.safe_load(finished.out)
    assert shown["id"] == "concat"
    assert shown["layouts"]["shared-scale"]["share_scale"] == [["xs", "y"]]
    unknown = placer("rules", "show", "nothing")
    assert unknown.code == 2
    assert "pack 'onnxruntime': unknown rule 'nothing'; use one of: activation," in unknown.err


def test_test_and_lint_pass_for_a_built_in_pack(placer: Placer):
    assert "tests passed" in placer("rules", "test", "tensorrt-rtx").out
    assert placer("rules", "lint", "tensorrt-rtx").out == "no findings\n"


@pytest.mark.parametrize(("command", "code"), [("test", 1), ("lint", 2)])
def test_a_broken_pack_fails(placer: Placer, tmp_path: Path, command: str, code: int):
    wrong = GOOD + "tests: [{model: nothing, matches: []}]\n"
    finished = placer("rules", command, pack(tmp_path / "mine", relu=wrong))
    assert finished.code == code
    assert "relu: " in finished.out


@pytest.mark.parametrize("command", ["test", "lint"])
def test_tests_that_would_fill_the_memory_are_refused(placer: Placer, tmp_path: Path, command: str):
    """Each of them is small enough, all together are not."""
    large = TESTED.replace("out) {", "out) <float[4194304] w = {1}> {")
    one = large.removeprefix("tests:\n")
    folder = pack(tmp_path / "mine", relu=GOOD + "tests:\n" + one * 5)
    told = refused(placer("rules", command, folder))
    assert f"{folder / 'relu.yaml'}: the tests have initializers of 20,971,520 values" in told
    assert "set PLACER_MAX_TEST_VALUES=20971520 if that is meant" in told


@pytest.mark.parametrize("name", ["relu.yml", "rules/relu.yaml"])
def test_rules_that_are_not_read_are_no_success(placer: Placer, tmp_path: Path, name: str):
    """A pack whose only rule lies where none is read has nothing to find fault with."""
    folder = pack(tmp_path / "mine", pack=MANIFEST + "extends: onnxruntime\n")
    (folder / "relu.yaml").unlink()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(GOOD + TESTED)
    linted = placer("rules", "lint", folder)
    told = f"{name} is not read: rules are .yaml files beside pack.yaml"
    assert (linted.out, linted.code) == (f"{folder}: {told}\n", 2)
    tested = refused(placer("rules", "test", folder))
    assert f"{folder}: no rule of its own has a test: nothing was tested; {told}" in tested
    (folder / name).rename(folder / "relu.yaml")
    assert "not read" not in placer("rules", "lint", folder).out
    assert placer("rules", "test", folder).out == "1 test passed\n"


@pytest.mark.slow
def test_the_printed_schema_accepts_the_built_in_rules(placer: Placer):
    schema = json.loads(placer("rules", "schema").out)
    for path in sorted(load_pack("tensorrt").path.glob("*.yaml")):
        if path.name != "pack.yaml":
            jsonschema.validate(yaml.safe_load(path.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"id": "Not An Id"}, schema)


def test_a_pack_goes_from_one_team_to_another(placer: Placer, own_store: Path):
    made = placer("rules", "new", "team", "--engine", "tensorrt", "--extends", "tensorrt")
    assert made.out == "wrote team; see team/README.md\n"
    Path("team/notes.txt").write_text("mine alone")
    left_out, written = placer("rules", "pack", "team", "-o", "out").out.splitlines()
    assert left_out == "left out: 'notes.txt'"
    path, content_hash = written.removeprefix("wrote ").split(", ")
    assert path == "out/team-0.1.0.zip"

    assert "not sha256:0" in refused(placer("rules", "install", path, "--hash", "sha256:0"))
    installed = placer("rules", "install", path, "--hash", content_hash)
    assert installed.out == f"installed team 0.1.0, {content_hash}\n"
    assert placer("rules", "install", path).out.startswith("already installed: team 0.1.0")
    assert content_hash.removeprefix("sha256:")[:12] in placer("rules", "list").out
    shown = placer("rules", "show", "example", "--pack", "team@0.1.0").out
    assert shown.startswith("# from team 0.1.0\nid: example\n")
    assert placer("rules", "diff", "team@0.1.0", "./team").out == "no difference\n"
    assert "added      example" in placer("rules", "diff", "tensorrt", path).out

    assert placer("rules", "uninstall", "team").out == "uninstalled team 0.1.0\n"
    assert not list(own_store.iterdir())
    assert "no pack team is installed; installed: none" in refused(
        placer("rules", "uninstall", "team")
    )
    assert "'../x' names no pack" in refused(placer("rules", "uninstall", "../x"))


def test_show_says_which_rule_is_replaced(placer: Placer, tmp_path: Path):
    manifest = MANIFEST + "extends: onnxruntime\n"
    rule = GOOD.replace("id: relu", "id: concat")
    folder = pack(tmp_path / "mine", pack=manifest, concat=rule, relu=GOOD)
    shown = placer("rules", "show", "concat", "--pack", folder).out
    replaced = load_pack("onnxruntime").name_and_version
    assert shown.startswith(f"# from mine 1.0.0, replaces that of {replaced}\n")


def test_one_of_several_versions_is_uninstalled(placer: Placer, tmp_path: Path):
    for version in ("1.0.0", "1.1.0"):
        folder = pack(tmp_path / version, pack=MANIFEST.replace("1.0.0", version))
        assert placer("rules", "install", folder).code == 0
    sentence = refused(placer("rules", "uninstall", "mine"))
    assert "mine is installed as 1.0.0, 1.1.0; name one, as mine@VERSION" in sentence
    assert placer("rules", "uninstall", "mine@1.0.0").out == "uninstalled mine 1.0.0\n"


def test_a_broken_pack_does_not_hide_the_others(placer: Placer, tmp_path: Path, own_store: Path):
    assert placer("rules", "install", pack(tmp_path / "mine")).code == 0
    (own_store / "mine" / "1.0.0" / "relu.yaml").write_text("id: [")
    listed = placer("rules", "list")
    assert listed.code == 0
    assert "onnxruntime" in listed.out
    assert "mine 1.0.0 cannot be loaded: " in listed.err


def test_markup_in_a_pack_is_printed_as_it_is(placer: Placer, tmp_path: Path):
    rule = GOOD.replace("a sentence for the test", "a sentence [/red] or [bold]two")
    listed = placer("rules", "list", pack(tmp_path / "mine", relu=rule))
    assert listed.code == 0
    assert "[/red]" in listed.out


NET = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,3,3] w = {0.1}> {
  [conv] c = Conv<pads = [1, 1, 1, 1]>(x, w)
  [relu] y = Relu(c)
}
"""


def test_optimize_refuses_a_pack_that_is_not_the_locked_one(
    placer: Placer, save: Callable[..., Path], tmp_path: Path
):
    net = save(NET)
    folder = pack(tmp_path / "mine", relu=GOOD + TESTED)
    run = ("optimize", net, "--engine", "onnxruntime", "--pack", folder)

    wrote = placer("rules", "lock", folder)
    assert wrote.out == "wrote placer.lock: mine 1.0.0\n"
    accepted = prepare(
        Request(net, engine="onnxruntime", pack=str(folder), preset="quick"), QuietObserver()
    )
    assert accepted.pack.name_and_version == "mine 1.0.0"

    (folder / "relu.yaml").write_text(GOOD)
    sentence = refused(placer(*run, "--quiet"))
    assert "placer.lock pins rule pack mine 1.0.0 with other content (sha256:" in sentence
    assert placer("rules", "lock", "onnxruntime").code == 0
    assert "rule pack mine 1.0.0 (sha256:" in refused(placer(*run, "--quiet"))
    assert placer("rules", "lock", "nowhere").code == 2
    assert not list(Path().glob("*.placer"))
