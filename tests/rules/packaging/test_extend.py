"""Packs that extend others: what counts in the end, and what is refused."""

from pathlib import Path

import pytest

from placer.common.processor import PROCESSORS
from placer.errors import InputError
from placer.rules.gains import Conversion, Gains
from placer.rules.packaging.diff import diff_packs
from placer.rules.packaging.files import read_pack_files
from placer.rules.packaging.install import install
from placer.rules.packaging.load import MAX_DEPTH, load_pack
from placer.rules.packaging.store import Store
from placer.rules.target import Target
from tests.rules.packaging.test_load import GOOD, MANIFEST, pack

TANH = GOOD.replace("id: relu", "id: tanh").replace("op: Relu", "op: Tanh")
NO_SCHEME = "".join(line for line in MANIFEST.splitlines(True) if not line.startswith("scheme"))


def manifest(name: str, extends: str, *, version: str = "1.0.0", more: str = "") -> str:
    text = NO_SCHEME.replace("name: mine", f"name: {name}").replace("1.0.0", version)
    return f'{text}extends: "{extends}"\n{more}'


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with the pack `mine` 1.0.0, which has the rules `relu` and `tanh`."""
    store = Store(tmp_path / "store")
    install(pack(tmp_path / "mine", tanh=TANH), store)
    return store


def child(tmp_path: Path, text: str, **rules: str) -> Path:
    folder = tmp_path / "child"
    folder.mkdir(exist_ok=True)
    for name, content in {"pack": text, **rules}.items():
        (folder / f"{name}.yaml").write_text(content)
    return folder


def refusal(path: Path, store: Store) -> str:
    with pytest.raises(InputError) as caught:
        load_pack(path, store)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_rules_are_taken_over_replaced_added_and_disabled(tmp_path: Path, store: Store):
    text = manifest("child", "mine@>=1", more="disable: [tanh]\n")
    ours = GOOD.replace("source: test", "source: test\npriority: 7")
    new = GOOD.replace("id: relu", "id: elu").replace("op: Relu", "op: Elu")
    loaded = load_pack(child(tmp_path, text, relu=ours, elu=new), store)
    assert [rule.id for rule in loaded.rules] == ["elu", "relu"]
    assert loaded.rule("relu").priority == 7
    assert [str(one) for one in loaded.lineage] == ["child 1.0.0", "mine 1.0.0"]
    assert [str(one) for one in loaded.origins["relu"]] == ["child 1.0.0", "mine 1.0.0"]
    assert loaded.own_rules == loaded.rules
    changes = diff_packs(load_pack("mine", store), loaded)
    assert changes.added == ("elu",)
    assert changes.removed == ("tanh",)
    assert [str(change) for change in changes.changed["relu"]] == ["priority: absent -> 7"]


def test_the_scheme_comes_from_the_extended_pack_unless_the_own_manifest_gives_one(
    tmp_path: Path, store: Store
):
    taken = load_pack(child(tmp_path, manifest("child", "mine")), store)
    assert taken.manifest.scheme == load_pack("mine", store).manifest.scheme
    own = "scheme: {activation: int8, symmetric: true, bias: float}\n"
    given = load_pack(child(tmp_path, manifest("child", "mine", more=own)), store)
    assert given.manifest.scheme.activation == "int8"
    fp8 = NO_SCHEME.replace("onnxruntime", "tensorrt") + "extends: tensorrt\n"
    assert load_pack(child(tmp_path, fp8), store).with_scheme("fp8").manifest.scheme.is_float8
    assert "give the 'scheme', or a pack that" in refusal(child(tmp_path, NO_SCHEME), store)


def test_times_of_ones_own_processor_replace_those_of_the_extended_pack(
    tmp_path: Path, store: Store
):
    inherited = load_pack(child(tmp_path, manifest("child", "onnxruntime")), store)
    theirs = load_pack("onnxruntime").manifest.behaviour
    assert inherited.manifest.behaviour == theirs
    own = "behaviour:\n  gains: {quantize: {each: 9}, dequantize: {each: 8}, nodes: []}\n"
    found = load_pack(child(tmp_path, manifest("child", "onnxruntime", more=own)), store)
    gains = Gains(quantize=Conversion(each=9), dequantize=Conversion(each=8), nodes=[])
    assert found.manifest.behaviour == theirs.model_copy(update={"gains": gains})


def test_the_highest_installed_version_that_fits_is_extended(tmp_path: Path, store: Store):
    for version in ("1.9.0", "1.10.0", "2.0.0"):
        text = MANIFEST.replace("1.0.0", version)
        install(pack(tmp_path / version, pack=text), store)
    folder = child(tmp_path, manifest("child", "mine@>=1,<2"))
    assert str(load_pack(folder, store).lineage[1]) == "mine 1.10.0"
    assert str(load_pack("mine@1.9.0", store).lineage[0]) == "mine 1.9.0"
    assert str(load_pack("mine", store).lineage[0]) == "mine 2.0.0"


def test_the_fingerprint_covers_the_extended_pack(tmp_path: Path, store: Store):
    folder = child(tmp_path, manifest("child", "mine"))
    before = load_pack(folder, store)
    text = MANIFEST.replace("1.0.0", "1.0.1")
    install(
        pack(tmp_path / "next", pack=text, tanh=TANH.replace("op: Tanh", "op: Erf")),
        store,
    )
    after = load_pack(folder, store)
    assert before.content_hash == after.content_hash
    assert before.fingerprint != after.fingerprint


def test_a_built_in_pack_can_be_extended(tmp_path: Path, store: Store):
    folder = child(tmp_path, manifest("child", "onnxruntime@>=0.1"), relu=GOOD)
    built_in = load_pack("onnxruntime")
    loaded = load_pack(folder, store)
    assert len(loaded.rules) == len(built_in.rules) + 1
    assert [rule.id for rule in loaded.own_rules] == ["relu"]
    too_new = child(tmp_path, manifest("child", "onnxruntime@>=99"))
    assert (
        f"extends onnxruntime@>=99, but built in is onnxruntime {built_in.manifest.version}; "
        "extend a version that is there"
    ) in refusal(too_new, store)


@pytest.mark.parametrize(
    ("text", "rules", "expected"),
    [
        (
            manifest("child", "nobody@>=2"),
            {},
            "pack child 1.0.0 extends nobody@>=2, which is neither built in nor installed; "
            "built in: onnxruntime, onnxruntime-arm, openvino, tensorrt, tensorrt-rtx; "
            "installed: mine 1.0.0",
        ),
        (
            manifest("child", "mine@>=3"),
            {},
            "extends mine@>=3, but installed is mine 1.0.0; extend",
        ),
        (manifest("child", "child"), {}, "pack 'child' extends itself (child -> child); drop one"),
        (manifest("child", "../mine"), {}, "'../mine' names no pack; write e.g. 'team-pack@>=0.2'"),
        (manifest("child", "mine@new"), {}, "'new' is not a version range"),
        (manifest("child", "mine@"), {}, "'mine@' has no version behind '@'"),
        (manifest("child", "tensorrt"), {}, "is onnxruntime, but tensorrt 0.28.0, which the pack"),
        (
            manifest("child", "mine", more="disable: [gelu]\n"),
            {},
            "disables 'gelu', which mine 1.0.0 does not have",
        ),
        (
            manifest("child", "mine", more="disable: [relu]\n"),
            {"relu": GOOD},
            "disables 'relu' and has relu.yaml; drop one",
        ),
        (manifest("child", "mine", more="disable: [relu, tanh]\n"), {}, "disables every rule"),
        (MANIFEST + "disable: [relu]\n", {}, "'disable' is for rules of a pack that this one"),
        (
            manifest("child", "mine", more='placer_versions: ">=99"\nof_placer_99: true\n'),
            {},
            "pack.yaml: the pack needs placer >=99, this is",
        ),
    ],
)
def test_what_is_refused(
    tmp_path: Path, store: Store, text: str, rules: dict[str, str], expected: str
):
    assert expected in refusal(child(tmp_path, text, **rules), store)


def test_a_cycle_that_came_with_a_later_version(tmp_path: Path, store: Store):
    install(child(tmp_path, manifest("child", "mine")), store)
    again = pack(tmp_path / "again", pack=manifest("mine", "child", version="1.1.0"))
    expected = r"pack 'mine' extends itself \(mine -> child -> mine\); drop one extends"
    with pytest.raises(InputError, match=expected):
        install(again, store)
    store.add("mine", "1.1.0", read_pack_files(again))  # Past all checks.
    expected = r"pack 'child' extends itself \(child -> mine -> child\)"
    with pytest.raises(InputError, match=expected):
        load_pack("child@1.0.0", store)


def test_a_chain_may_not_be_too_long(tmp_path: Path, store: Store):
    below = "mine"
    for number in range(MAX_DEPTH - 1):
        text = manifest(f"level-{number}", below)
        install(child(tmp_path, text), store)
        below = f"level-{number}"
    sentence = refusal(child(tmp_path, manifest("top", below)), store)
    assert sentence.startswith("pack 'top' extends more than 7 packs in a row")


def test_where_products_are_exact_times_are_those_of_processors_on_which_all_are() -> None:
    """Kernels for ARM know no VNNI, whatever the processor that explains their plans."""
    parent, arm = (
        load_pack(name).manifest.behaviour for name in ("onnxruntime", "onnxruntime-arm")
    )
    (times,) = arm.all_gains
    assert times.nodes == parent.all_gains[0].nodes
    avx2 = Target(processor=PROCESSORS["avx2"])
    assert arm.gains_on(avx2) == times.with_half_kept()
    assert parent.gains_on(avx2) == parent.all_gains[1].with_half_kept()
