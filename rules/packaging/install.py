"""Make a .zip archive of a rule pack's folder, and install one; nothing of a pack is executed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from placer.common.files import check_writable, make_output_folder, write_bytes
from placer.errors import InputError, RunError
from placer.rules.lint import lint
from placer.rules.pack import Pack
from placer.rules.packaging.files import PackFiles, read_pack_files
from placer.rules.packaging.load import is_builtin, load_files
from placer.rules.packaging.store import Store


def build_archive(
    folder: Path,
    output: Path,
    store: Store,
    failures: Callable[[Pack], Iterable[str]],
    *,
    replace: bool = False,
) -> tuple[Path, Pack, PackFiles]:
    """Write ``output/NAME-VERSION.zip`` of the pack in ``folder``; the same bytes every time.

    ``failures``: runs the inline tests, see ``placer.prediction.rule_tests.failures_of``.
    ``replace``: whether a file that no run of placer wrote may be written over. Returns the
    archive's path, the pack and its files. Raises InputError for lint findings and RunError for
    inline tests that fail, those of the pack's own rules in both cases.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give the folder of a rule pack")
    files = read_pack_files(folder).with_hash()
    pack = load_files(files, store)
    path = output / f"{pack.manifest.name}-{pack.manifest.version}.zip"
    check_writable(path, replace=replace)
    findings = list(lint(pack))
    if findings:
        raise InputError(f"{folder}: {findings[0]}{_and_more(findings)}; see `placer rules lint`")
    failed = list(failures(pack))
    if failed:
        raise RunError(f"{folder}: {failed[0]}{_and_more(failed)}; see `placer rules test`")
    make_output_folder(output)
    write_bytes(path, files.archive())
    return path, pack, files


def install(path: Path, store: Store, expected_hash: str | None = None) -> tuple[Pack, bool]:
    """Install the pack in the folder or archive ``path``; False if it is installed already.

    ``expected_hash``: the content hash that the pack must have, ``sha256:`` and 64 hex digits.
    Raises InputError if the pack is not valid, does not fit this version of placer or extends one
    that is not there, and if other files are installed under its name and version.
    """
    files = read_pack_files(path)
    if not path.is_dir() and not files.states_hash:
        raise InputError(f"{path} has no hash.yaml; make archives with `placer rules pack`")
    if expected_hash is not None and expected_hash != files.content_hash:
        raise InputError(f"{path} has the hash {files.content_hash}, not {expected_hash}")
    pack = load_files(files, store)
    name, version = pack.manifest.name, pack.manifest.version
    if is_builtin(name):
        raise InputError(f"{path}: '{name}' is the name of a built-in pack; rename the pack")
    return pack, store.add(name, version, files)


def _and_more(sentences: list[str]) -> str:
    return f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
