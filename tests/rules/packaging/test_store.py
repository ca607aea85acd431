"""Packs on their way: start, pack, install, pin, uninstall."""

import hashlib
import json
import os
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from placer.errors import InputError, RunError
from placer.prediction.rule_tests import failures_of
from placer.rules.lint import lint
from placer.rules.pack import Pack
from placer.rules.packaging.diff import diff_packs
from placer.rules.packaging.files import PackFiles, read_pack_files
from placer.rules.packaging.install import build_archive, install
from placer.rules.packaging.load import load_pack
from placer.rules.packaging.lock import LOCK_NAME, Lock, check_lock, read_lock
from placer.rules.packaging.new import new_pack
from placer.rules.packaging.store import Store
from tests.rules.packaging.test_load import GOOD
from tests.rules.packaging.test_load import MANIFEST as TEXT
from tests.rules.packaging.test_load import pack as write_pack
from tests.rules.test_packs import TESTED


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def archive(folder: Path, output: Path, store: Store) -> tuple[Path, Pack, PackFiles]:
    return build_archive(folder, output, store, failures_of)


def good(folder: Path, **files: str) -> Path:
    return write_pack(folder, relu=GOOD + TESTED, **files)


@pytest.mark.parametrize(
    ("engine", "extends", "scheme"),
    [
        ("tensorrt", None, "int8"),
        ("tensorrt", "tensorrt@>=0.2", "int8"),
        ("onnxruntime", "onnxruntime", "uint8"),
        ("my-npu", None, "int8"),
    ],
)
def test_a_new_pack_is_ready_to_be_passed_on(
    tmp_path: Path, store: Store, engine: str, extends: str | None, scheme: str
):
    folder = new_pack("my-pack", engine, extends, tmp_path, store)
    made = [".schema", "README.md", "example.yaml", "pack.yaml"]
    assert sorted(p.name for p in folder.iterdir()) == made
    found = load_pack(folder, store)
    base = len(load_pack(extends).rules) if extends else 0
    assert len(found.rules) == base + 1
    assert found.manifest.engine == engine
    assert found.manifest.scheme.activation == scheme
    assert list(lint(found)) == list(failures_of(found)) == []
    path, _, _ = archive(folder, tmp_path, store)
    assert path.name == "my-pack-0.1.0.zip"


def test_editors_find_the_schema_that_a_new_packs_files_name(tmp_path: Path, store: Store):
    folder = new_pack("my-pack", "tensorrt", None, tmp_path, store)
    for name in ("example.yaml", "pack.yaml"):
        text = (folder / name).read_text()
        comment = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
        schema = json.loads((folder / comment[1]).read_text())
        jsonschema.validate(yaml.safe_load(text), schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**yaml.safe_load(text), "misspelt": 1}, schema)
    assert read_pack_files(folder).left_out == ()


def test_what_a_new_pack_cannot_be(tmp_path: Path, store: Store):
    def refusal(name: str, engine: str = "tensorrt", extends: str | None = None) -> str:
        with pytest.raises(InputError) as caught:
            new_pack(name, engine, extends, tmp_path, store)
        assert not list(tmp_path.iterdir())
        return str(caught.value)

    assert "'tensorrt' is the name of a built-in pack" in refusal("tensorrt")
    assert "'../up' names no pack or engine; use lower-case" in refusal("../up")
    assert "'My NPU' names no pack or engine" in refusal("mine", "My NPU")
    assert "rule pack 'nobody' is neither" in refusal("mine", extends="nobody")
    assert "`extends`: '../x' names no pack" in refusal("mine", extends="../x")
    assert "is onnxruntime, but tensorrt" in refusal("mine", "onnxruntime", "tensorrt")
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="mine exists; choose another name"):
        new_pack("mine", "tensorrt", None, tmp_path, store)


def test_the_same_files_give_the_same_bytes(tmp_path: Path, store: Store):
    folder = good(tmp_path / "mine")
    first = archive(folder, tmp_path / "out", store)[0].read_bytes()
    other = good(tmp_path / "elsewhere")
    os.utime(other / "relu.yaml", (0, 0))
    (other / "relu.yaml").chmod(0o600)
    again = archive(other, tmp_path / "out", store)[0].read_bytes()
    assert first == again
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine-1.0.0.zip"]


def test_the_bytes_of_an_archive_do_not_depend_on_the_version_of_python():
    files = PackFiles(Path("mine"), {"pack.yaml": b"name: mine\n", "LICENSE": b"free\n"})
    digest = hashlib.sha256(files.with_hash().archive()).hexdigest()
    assert digest == "e30587628fe3ab800bc2c1701210941f0599bdc03bf49f4a4c2ed77e4eedf9e8"


def test_a_pack_that_fails_its_own_checks_is_not_packed(tmp_path: Path, store: Store):
    out = tmp_path / "out"
    untested = write_pack(tmp_path / "a")
    with pytest.raises(InputError, match=r"relu: has no tests; .* \(and 1 more\); see `placer"):
        archive(untested, out, store)
    wrong = write_pack(tmp_path / "b", relu=GOOD + TESTED.replace("[{act: relu1}]", "[{act: r}]"))
    with pytest.raises(RunError, match="relu: test 1: expected matches"):
        archive(wrong, out, store)
    with pytest.raises(InputError, match="is not a folder; give the folder of a rule pack"):
        archive(tmp_path / "nowhere", out, store)
    assert not out.exists()


def test_an_archive_is_installed_found_by_name_and_uninstalled(tmp_path: Path, store: Store):
    path, packed, files = archive(good(tmp_path / "mine"), tmp_path, store)
    installed, is_new = install(path, store, files.content_hash)
    assert is_new
    assert installed.fingerprint == packed.fingerprint == load_pack("mine", store).fingerprint
    assert installed.content_hash == load_pack(path, store).content_hash == files.content_hash
    assert [str(one) for one in store.installed()] == ["mine 1.0.0"]
    assert not install(path, store)[1]
    # The folder that it was made from has the same files, so the same hash.
    assert not install(tmp_path / "mine", store)[1]
    store.remove(store.installed()[0])
    assert not list(store.folder.iterdir())
    with pytest.raises(InputError, match="rule pack 'mine' is neither a folder"):
        load_pack("mine", store)


def test_what_is_not_installed(tmp_path: Path, store: Store):
    install(good(tmp_path / "mine"), store)
    changed = good(tmp_path / "changed", pack=TEXT.replace("MIT", "Apache-2.0"))
    with pytest.raises(
        InputError, match=r"another pack mine 1\.0\.0 is installed; raise 'version'"
    ):
        install(changed, store)
    assert load_pack("mine", store).manifest.licence == "MIT"
    with pytest.raises(InputError, match=r"has the hash sha256:.*, not sha256:0"):
        install(changed, store, "sha256:0")
    named = good(tmp_path / "named", pack=TEXT.replace("name: mine", "name: tensorrt"))
    with pytest.raises(InputError, match="'tensorrt' is the name of a built-in pack; rename"):
        install(named, store)
    newer = good(tmp_path / "newer", pack=TEXT + 'placer_versions: ">=99"\n')
    with pytest.raises(InputError, match="the pack needs placer >=99, this is"):
        install(newer, store)
    assert [str(one) for one in store.installed()] == ["mine 1.0.0"]


def test_an_installed_pack_cannot_be_changed(tmp_path: Path, store: Store):
    install(good(tmp_path / "mine"), store)
    path = store.installed()[0].path / "relu.yaml"
    path.write_text(path.read_text().replace("why: a", "why: another"))
    with pytest.raises(InputError, match=r"do not have the hash that hash\.yaml states"):
        load_pack("mine", store)
    (path.parent / "hash.yaml").unlink()
    with pytest.raises(InputError, match=r"installed pack mine 1\.0\.0 has lost its hash\.yaml"):
        load_pack("mine", store)


def test_what_a_killed_install_leaves_is_not_seen(tmp_path: Path, store: Store):
    (store.folder / "mine" / ".new-abc").mkdir(parents=True)
    (store.folder / "notes.txt").write_text("")
    assert store.installed() == ()
    assert install(good(tmp_path / "mine"), store)[1]
    assert [str(one) for one in store.installed()] == ["mine 1.0.0"]


def test_a_data_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(InputError, match=r"cannot install to .*taken/store/mine/1\.0\.0: Not a"):
        install(good(tmp_path / "mine"), Store(tmp_path / "taken" / "store"))


def test_a_name_that_could_be_two_packs(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
):
    install(good(tmp_path / "mine"), store)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"write \./mine for the folder or mine@1\.0\.0 for"):
        load_pack("mine", store)
    assert load_pack("./mine", store).path == Path("mine")
    assert load_pack("mine@1.0.0", store).path == store.folder / "mine" / "1.0.0"
    with pytest.raises(InputError, match="rule pack 'mine@one': 'one' is not a version range"):
        load_pack("mine@one", store)


def test_the_difference_of_two_packs_by_field(tmp_path: Path):
    before = load_pack(good(tmp_path / "a"))
    text = GOOD.replace("int8: {quantize: [act.x]", "int8: {quantize: [act.x, y.*]")
    after = load_pack(write_pack(tmp_path / "b", pack=TEXT.replace("1.0.0", "1.1.0"), relu=text))
    assert list(diff_packs(before, before).lines()) == []
    first, second, third = diff_packs(before, after).lines()
    assert first == 'pack.yaml  version: "1.0.0" -> "1.1.0"'
    assert second == ('changed    relu  layouts.int8.quantize: ["act.x"] -> ["act.x", "y.*"]')
    assert third.startswith('changed    relu  tests: [{"model": "<ir_version: 9')
    assert third.endswith("… -> absent")


CHILD = 'extends: "mine"\n'


def locked(folder: Path, pack: Pack) -> Path:
    Lock.of([pack]).save(folder / LOCK_NAME)
    return folder


def refusal(pack: Pack, folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        check_lock(pack, folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_lock_holds_a_pack_and_what_it_extends(tmp_path: Path, store: Store):
    install(good(tmp_path / "mine"), store)
    text = TEXT.replace("name: mine", "name: child") + CHILD
    folder = good(tmp_path / "child", pack=text)
    child = load_pack(folder, store)
    check_lock(child, tmp_path)  # No lock file: nothing to hold it against.
    locked(tmp_path, child)
    check_lock(child, tmp_path)
    check_lock(load_pack("mine", store), tmp_path)
    pack = load_pack("onnxruntime")
    assert f"rule pack {pack.name_and_version} (sha256:" in refusal(pack, tmp_path)

    (folder / "relu.yaml").write_text(GOOD + TESTED + "priority: 1\n")
    sentence = refusal(load_pack(folder, store), tmp_path)
    assert "placer.lock pins rule pack child 1.0.0 with other content (sha256:" in sentence

    (folder / "relu.yaml").write_text(GOOD + TESTED)
    install(good(tmp_path / "next", pack=TEXT.replace("1.0.0", "1.0.1")), store)
    sentence = refusal(load_pack(folder, store), tmp_path)
    assert "placer.lock pins rule pack mine 1.0.0, but mine 1.0.1 is in use; use mine@1.0.0" in (
        sentence
    )
    with pytest.raises(InputError, match=r"cannot lock both mine 1\.0\.1 .* and mine 1\.0\.0"):
        Lock.of([load_pack(folder, store), load_pack("mine@1.0.0", store)])


def test_a_lock_file_with_mistakes(tmp_path: Path):
    path = tmp_path / LOCK_NAME
    pin = f"{{name: mine, version: 1.0.0, hash: 'sha256:{'0' * 64}'}}"
    for text, expected in {
        "packs: 1\n": "placer.lock:1: field 'packs'",
        "format: 2\npacks: []\n": "placer.lock:1: field 'format'",
        f"packs: [{pin}, {pin}]\n": "pack 'mine' is given twice",
        "packs: [{name: mine, version: 1.0.0, hash: abc}]\n": "field 'packs.0.hash'",
        "packs: &a [*a]\n": "aliases are not allowed",
    }.items():
        path.write_text(text)
        with pytest.raises(InputError) as caught:
            read_lock(path)
        assert expected in str(caught.value)
