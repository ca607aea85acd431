"""Packs from strangers: each attack is refused with one sentence, and nothing is written."""

import io
import os
import stat
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import InputError
from placer.rules.packaging.files import MAX_ARCHIVE_BYTES, PackFiles, read_pack_files
from placer.rules.packaging.install import install
from placer.rules.packaging.load import load_pack
from placer.rules.packaging.store import Store
from tests.rules.packaging.test_load import GOOD, MANIFEST, pack

FILES = {"pack.yaml": MANIFEST.encode(), "relu.yaml": GOOD.encode()}
Edit = Callable[[zipfile.ZipInfo], None]


def archive(
    path: Path,
    more: dict[str, bytes] | None = None,
    edit: Edit | None = None,
    compression: int = zipfile.ZIP_STORED,
) -> Path:
    """A .zip of a valid pack with ``more`` files; ``edit`` changes the headers of the last."""
    with zipfile.ZipFile(path, "w", compression) as written:
        for name, data in {**FILES, **(more or {})}.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = written.compression
            written.writestr(info, data)
        if edit is not None:
            edit(info)
    return path


def refusal(path: Path, tmp_path: Path) -> str:
    store = Store(tmp_path / "store")
    with pytest.raises(InputError) as caught:
        install(path, store)
    assert not store.folder.exists()
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize(
    "name", ["../evil.yaml", "/etc/evil.yaml", "a/../../evil.yaml", "..\\evil.yaml", "C:evil.yaml"]
)
def test_zip_slip(tmp_path: Path, name: str):
    sentence = refusal(archive(tmp_path / "slip.zip", {name: b""}), tmp_path)
    assert f"entry {name!r} leads out of the archive" in sentence


@pytest.mark.parametrize("name", ["sub/", "sub/rule.yaml", ".hidden.yaml", "run.py", "a\0b.yaml"])
def test_an_archive_holds_rules_and_texts_only(tmp_path: Path, name: str):
    def set_name(info: zipfile.ZipInfo) -> None:
        info.filename = name  # As the central directory then has it; zipfile would cut at the NUL.

    path = archive(tmp_path / "odd.zip", {"x" * len(name): b""}, set_name)
    assert "is not a .yaml, .md or LICENSE file at the top level" in refusal(path, tmp_path)


def test_a_symbolic_link(tmp_path: Path):
    def link(info: zipfile.ZipInfo) -> None:
        info.external_attr = (stat.S_IFLNK | 0o777) << 16

    path = archive(tmp_path / "link.zip", {"secret.yaml": b"/etc/passwd"}, link)
    assert "entry 'secret.yaml' is a symbolic link" in refusal(path, tmp_path)
    folder = pack(tmp_path / "mine")
    (folder / "README.md").symlink_to("/etc/passwd")
    assert "README.md points outside its rule pack" in refusal(folder, tmp_path)
    (folder / "README.md").unlink()
    (folder / "README.md").symlink_to("relu.yaml")
    assert "README.md is a link; replace the link by a file" in refusal(folder, tmp_path)
    (folder / "README.md").unlink()
    (folder / "README.md").symlink_to("README.md")
    assert "README.md is a link; replace the link by a file" in refusal(folder, tmp_path)


def test_a_device_in_a_folder_is_not_opened(tmp_path: Path):
    folder = pack(tmp_path / "mine")
    os.mkfifo(folder / "endless.yaml")
    assert "endless.yaml is not a regular file" in refusal(folder, tmp_path)


def zeros(megabytes: int) -> bytes:
    """A deflate stream of so many MiB of zeros: one block, compressed once and repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * megabytes + zlib.compressobj(9, zlib.DEFLATED, -15).flush()


def bomb(path: Path, megabytes: int, claimed: int) -> Path:
    """An archive whose README unpacks to so many MiB and claims another size."""

    def claim(info: zipfile.ZipInfo) -> None:
        info.compress_type = zipfile.ZIP_DEFLATED
        info.file_size = claimed

    return archive(path, {"README.md": zeros(megabytes)}, claim)


def test_a_bomb_of_10_gb(tmp_path: Path):
    path = bomb(tmp_path / "bomb.zip", 10 * 1024, 1000)
    assert path.stat().st_size > MAX_ARCHIVE_BYTES
    assert "the archive is larger than 5 MiB" in refusal(path, tmp_path)


def test_a_bomb_small_enough_to_be_opened_is_unpacked_no_further_than_1_mib(tmp_path: Path):
    honest = bomb(tmp_path / "honest.zip", 4 * 1024, 4 * 2**30 - 1)
    lying = bomb(tmp_path / "lying.zip", 4 * 1024, 1000)
    tracemalloc.start()
    assert "README.md is larger than 1 MiB" in refusal(honest, tmp_path)
    assert "lying.zip is not a .zip archive that can be read" in refusal(lying, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * MAX_ARCHIVE_BYTES


def test_a_bomb_of_many_files(tmp_path: Path):
    large = {f"note{i}.md": bytes(2**20) for i in range(21)}
    path = archive(tmp_path / "large.zip", large, compression=zipfile.ZIP_DEFLATED)
    assert "large.zip: holds more than 20 MiB" in refusal(path, tmp_path)
    many = {f"note{i}.md": b"" for i in range(2000)}
    path = archive(tmp_path / "many.zip", many)
    assert "many.zip: holds more than 2000 files" in refusal(path, tmp_path)


def test_compression_that_is_not_deflate(tmp_path: Path):
    path = archive(tmp_path / "lzma.zip", compression=zipfile.ZIP_LZMA)
    assert "compressed in a way other than deflate" in refusal(path, tmp_path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_one_name_twice(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as written:
        for name in (*FILES, "relu.yaml"):
            written.writestr(name, FILES[name])
    sentence = refusal(tmp_path / "two.zip", tmp_path)
    assert "holds relu.yaml and relu.yaml; give every file a name of its own" in sentence
    path = archive(tmp_path / "case.zip", {"README.md": b"", "Readme.md": b""})
    assert "holds README.md and Readme.md" in refusal(path, tmp_path)


def test_one_id_twice(tmp_path: Path):
    folder = pack(tmp_path / "mine", other=GOOD)
    assert "other.yaml: field 'id' is 'relu', which relu.yaml has" in refusal(folder, tmp_path)


LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LAUGHS, "relu.yaml:2: YAML aliases are not allowed"),
        ("a: &a {b: *a}\n", "relu.yaml:1: YAML aliases are not allowed"),
        ("id: !!python/object/apply:os.system [reboot]\n", "python/object/apply:os.system' is not"),
        ("id: !!python/name:os.system\n", "python/name:os.system' is not allowed; remove it"),
        ("id: !include /etc/passwd\n", "YAML tag '!include' is not allowed"),
        ('why: !!int ""\n', "relu.yaml:1: YAML tag 'tag:yaml.org,2002:int' is not allowed"),
        ('why: ! ""\n', "relu.yaml:1: YAML tag '!' is not allowed"),
        ("why: !!str 1\n", "field 'id': it is missing"),
        ("why: !!binary G1sybQ==\n", "YAML tag 'tag:yaml.org,2002:binary' is not allowed"),
        ('why: "a title \\e]0;owned\\a"\n', "control characters are not allowed"),
        ("priority: 1" + ":59" * 20_000 + ".5\n", "not valid YAML"),
        ("priority: 0x" + "f" * 4_000 + "\n", "relu.yaml:1: a whole number is larger than 64 bits"),
        ("priority: " + "9" * 5_000 + "\n", "relu.yaml:1: a whole number is larger than 64 bits"),
        ("priority: 18446744073709551616\n", "relu.yaml:1: a whole number is larger than 64 bits"),
        ("priority: 0x10000000000000000\n", "relu.yaml:1: a whole number is larger than 64 bits"),
        ("priority: 18446744073709551615\n", "field 'id': it is missing"),
        (
            GOOD + "where: [{dim: {tensor: x, axis: 0, multiple_of: 0}}]\n",
            "field 'where.0.dim.multiple_of': it must be greater than or equal to 1",
        ),
        (GOOD.replace("id: relu", "id: Re-lu"), "field 'id': the text must match pattern"),
        ("where: [" + "{never: " * 99 + "}" * 99 + "]\n", "nested too deeply"),
    ],
)
def test_yaml_bombs_and_tags(tmp_path: Path, text: str, expected: str):
    assert expected in refusal(pack(tmp_path / "mine", relu=text), tmp_path)


def valid_archive() -> bytes:
    return PackFiles(Path("mine"), FILES).with_hash().archive()


@settings(max_examples=75, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(valid_archive()) - 1), st.integers(0, 255)),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 2**32),
)
def test_a_damaged_archive_is_refused_or_holds_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], cut: int
):
    data = bytearray(valid_archive())
    for at, byte in changes:
        data[at] = byte
    folder = tmp_path_factory.mktemp("damaged")
    path = folder / "mine.zip"
    path.write_bytes(data[: cut if cut < len(data) else None])
    store = Store(folder / "store")
    try:
        install(path, store)
    except InputError:
        assert not store.folder.exists()
    else:
        (installed,) = store.installed()
        assert {n: d for n, d in installed.read().files.items() if n in FILES} == FILES


def test_a_hash_that_does_not_fit(tmp_path: Path):
    changed = {**PackFiles(Path("mine"), FILES).with_hash().files, "relu.yaml": b"id: evil\n"}
    path = tmp_path / "mine.zip"
    path.write_bytes(PackFiles(path, changed).archive())
    assert "the files do not have the hash that hash.yaml states" in refusal(path, tmp_path)
    bare = archive(tmp_path / "bare.zip")
    assert "bare.zip has no hash.yaml; make archives with `placer" in refusal(bare, tmp_path)
    assert load_pack(bare).name_and_version == "mine 1.0.0"  # To look at it is no harm.


def test_what_is_no_archive(tmp_path: Path):
    path = tmp_path / "notes.zip"
    path.write_text("these are not the bytes you are looking for")
    assert "notes.zip is not a .zip archive that can be read" in refusal(path, tmp_path)
    assert "nowhere.zip does not exist" in refusal(tmp_path / "nowhere.zip", tmp_path)
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    path.write_bytes(empty.getvalue())
    assert "pack.yaml does not exist; a rule pack needs it" in refusal(path, tmp_path)


def test_files_beside_a_pack_are_left_aside(tmp_path: Path):
    folder = pack(tmp_path / "mine")
    (folder / "setup.py").write_text("raise SystemExit")
    (folder / ".git").mkdir()
    found = read_pack_files(folder)
    assert found.left_out == ("setup.py",)  # Hidden files go unmentioned.
    assert found.files == FILES
