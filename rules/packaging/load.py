"""Load rule packs: built in, installed, folders and .zip files; errors name file, line and field.

A pack may extend another one. What is loaded is then the effective pack: the rules of the extended
pack, less those that are disabled or replaced, and the pack's own.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import BaseModel, ConfigDict

from placer.common.limits import Limits
from placer.common.names import near
from placer.common.yaml_file import parse_text
from placer.errors import InputError
from placer.rules.behaviour import Behaviour
from placer.rules.field_types import Versions
from placer.rules.pack import Pack, PackId
from placer.rules.pack_manifest import Manifest, ManifestFile, PackRequirement, parse_requirement
from placer.rules.packaging.files import HASH_FILE, MANIFEST, PackFiles, read_pack_files
from placer.rules.packaging.store import Store
from placer.rules.schema import Rule
from placer.version import __version__

MAX_DEPTH = 8


def builtin_pack_names() -> tuple[str, ...]:
    """Names of the packs that placer ships."""
    return tuple(sorted(p.name for p in _builtin_folder().iterdir() if (p / "pack.yaml").exists()))


def load_pack(name_or_path: str | Path, store: Store | None = None) -> Pack:
    """Load a pack: ``NAME`` or ``NAME@VERSIONS`` of a built-in or installed one, a folder, a .zip.

    ``VERSIONS`` is a version or a range; of several installed versions the highest that fits is
    taken. ``store`` None is the user's. Raises InputError for an unknown name and for any file
    that is not a valid manifest or rule.
    """
    store = store or Store.default()
    return load_files(_files_of(str(name_or_path), store), store)


def enters_bodies(pack: str) -> bool:
    """Whether rules of ``pack`` look into bodies; False where there is no such pack."""
    try:
        return load_pack(pack).enters_bodies
    except InputError:
        return False


def load_files(files: PackFiles, store: Store) -> Pack:
    """Load the pack of ``files``; what it extends is built in or in ``store``.

    Raises InputError for any file that is not a valid manifest or rule, for a pack that it extends
    and that is not there, and for a pack that extends itself.
    """
    return _load(files, store, ())


def is_builtin(name: str) -> bool:
    """Whether placer ships a pack called ``name``."""
    return name in builtin_pack_names()


def _load(files: PackFiles, store: Store, children: tuple[str, ...]) -> Pack:
    manifest = _manifest(files)
    rules = _own_rules(files)
    this = PackId(manifest.name, manifest.version, files.content_hash)
    if manifest.extends is not None:
        chain = (*children, manifest.name)
        wanted = parse_requirement(manifest.extends)
        _check_chain((*chain, wanted.name))
        parent = _load(_parent(wanted, this, store), store, chain)
        return _extended(files, manifest, rules, this, parent)
    if not rules:
        raise InputError(f"rule pack {files.source} has no rules; add a rule file beside pack.yaml")
    behaviour = manifest.behaviour.of_engine(manifest.engine)
    settled = Manifest.model_validate({**dict(manifest), "behaviour": behaviour})
    origins = {rule.id: (this,) for rule in rules}
    return Pack(files.source, settled, tuple(rules), (this,), origins)


def _check_chain(chain: tuple[str, ...]) -> None:
    """Raise InputError if the last pack of ``chain`` came before or is one too many."""
    *children, last = chain
    if last in children:
        raise InputError(f"pack '{last}' extends itself ({' -> '.join(chain)}); drop one extends")
    if len(chain) > MAX_DEPTH:
        raise InputError(
            f"pack '{chain[0]}' extends more than {MAX_DEPTH - 1} packs in a row; merge some"
        )


class _Needs(BaseModel):
    """What must be known of a manifest before the rest can be understood."""

    model_config = ConfigDict(extra="ignore")

    placer_versions: Versions | None = None


def _manifest(files: PackFiles) -> ManifestFile:
    name = str(files.source / MANIFEST)
    limits = Limits.from_environment()
    return _manifest_of(_text(files, MANIFEST, limits.rule_bytes), name, limits.yaml_depth)


@lru_cache(maxsize=64)
def _manifest_of(text: str, name: str, depth: int) -> ManifestFile:
    needs = parse_text(text, name, _Needs, depth=depth).placer_versions
    # A development version counts as the release that it leads to.
    if needs is not None and not SpecifierSet(needs).contains(Version(__version__).base_version):
        raise InputError(f"{name}: the pack needs placer {needs}, this is {__version__}")
    return parse_text(text, name, ManifestFile, depth=depth)


def _own_rules(files: PackFiles) -> list[Rule]:
    rules: dict[str, Rule] = {}
    limits = Limits.from_environment()
    for name in sorted(files.files):
        if not name.endswith(".yaml") or name in (MANIFEST, HASH_FILE):
            continue
        path = files.source / name
        rule = _rule(_text(files, name, limits.rule_bytes), str(path), limits.yaml_depth)
        if f"{rule.id}.yaml" in files.files and rule.id != path.stem:
            raise InputError(
                f"{path}: field 'id' is '{rule.id}', which {rule.id}.yaml has; give it another id"
            )
        if rule.id != path.stem:
            raise InputError(
                f"{path}: field 'id' is '{rule.id}'; rename the file to {rule.id}.yaml"
            )
        rules[rule.id] = rule
    return [rules[rule_id] for rule_id in sorted(rules)]


@lru_cache(maxsize=1024)
def _rule(text: str, name: str, depth: int) -> Rule:
    """The rule that a file says, read once: a process often loads the same pack several times."""
    return parse_text(text, name, Rule, depth=depth)


def _extended(
    files: PackFiles, manifest: ManifestFile, own_rules: list[Rule], this: PackId, parent: Pack
) -> Pack:
    """The effective pack of ``manifest`` and ``own_rules`` over ``parent``."""
    name = str(files.source / MANIFEST)
    if manifest.engine != parent.manifest.engine:
        raise InputError(
            f"{name}: field 'engine' is {manifest.engine}, but {parent.lineage[0]}, which the pack "
            f"extends, is for {parent.manifest.engine}"
        )
    own_ids = {rule.id for rule in own_rules}
    for rule_id in manifest.disable:
        if rule_id in own_ids:
            raise InputError(f"{name}: disables '{rule_id}' and has {rule_id}.yaml; drop one")
        if rule_id not in parent.origins:
            raise InputError(
                f"{name}: disables '{rule_id}', which {parent.lineage[0]} does not have"
            )
    kept = [r for r in parent.rules if r.id not in own_ids and r.id not in manifest.disable]
    rules = tuple(sorted((*kept, *own_rules), key=lambda rule: rule.id))
    if not rules:
        raise InputError(f"{name}: disables every rule; leave at least one")
    inherited = {rule.id: parent.origins[rule.id] for rule in kept}
    replaced = {rule.id: (this, *parent.origins.get(rule.id, ())) for rule in own_rules}
    return Pack(
        path=files.source,
        manifest=_inheriting(parent.manifest, manifest),
        rules=rules,
        lineage=(this, *parent.lineage),
        origins={**inherited, **replaced},
    )


def _inheriting(parent: Manifest, manifest: ManifestFile) -> Manifest:
    """``manifest`` with what it leaves out as ``parent`` has it."""
    fields = dict(manifest)
    fields["exclude"] = [*parent.exclude, *manifest.exclude]
    given = manifest.behaviour.model_fields_set
    behaviour = parent.behaviour.model_copy(
        update={name: getattr(manifest.behaviour, name) for name in given}
    )
    is_exact = (parent.behaviour.products, behaviour.products) == ("saturating", "exact")
    if is_exact and "gains" not in given:
        behaviour = _with_exact_products(behaviour)
    fields["behaviour"] = behaviour
    if manifest.scheme is None:
        fields["scheme"] = parent.scheme
        fields["alternatives"] = {**parent.alternatives, **manifest.alternatives}
    return Manifest.model_validate(fields)


def _with_exact_products(behaviour: Behaviour) -> Behaviour:
    """``behaviour`` with inherited times of processors whose sums of products are exact, too.

    On any processor, as its own kernels do not depend on that.
    """
    gains = [
        one.model_copy(update={"when": one.when.model_copy(update={"exact_products": None})})
        for one in behaviour.all_gains
        if one.when.exact_products is not False
    ]
    return behaviour.model_copy(update={"gains": gains or None})


def _parent(wanted: PackRequirement, child: PackId, store: Store) -> PackFiles:
    files = _files_by_name(wanted, store)
    if files is None:
        if there := _versions(wanted.name, store):
            raise InputError(
                f"pack {child} extends {wanted}, but {there}; extend a version that is there"
            )
        raise InputError(
            f"pack {child} extends {wanted}, which is neither built in nor installed; "
            f"{_known(store)}{near(wanted.name, _names(store))}"
        )
    return files


def _files_of(text: str, store: Store) -> PackFiles:
    path = Path(text)
    try:
        wanted = parse_requirement(text)
    except ValueError as error:
        if "@" in text and not path.exists():
            raise InputError(f"rule pack '{text}': {error}") from error
    else:
        files = _files_by_name(wanted, store)
        if files is not None and not is_builtin(text) and (path / MANIFEST).is_file():
            raise InputError(
                f"rule pack '{text}' is installed and a folder here; write ./{text} for the "
                f"folder or {text}@{store.versions(text)[-1].version} for the installed one"
            )
        if files is not None:
            return files
    if path.is_dir() or (path.is_file() and path.suffix == ".zip"):
        return read_pack_files(path)
    raise InputError(
        f"rule pack '{text}' is neither a folder nor built in nor installed nor a .zip file; "
        f"{_known(store)}{near(text, _names(store))}"
    )


def _files_by_name(wanted: PackRequirement, store: Store) -> PackFiles | None:
    """The files of the built-in or of the highest installed version that will do."""
    if is_builtin(wanted.name):
        files = read_pack_files(_builtin_folder() / wanted.name)
        version = _manifest(files).version if str(wanted.versions) else None
        return files if version is None or wanted.versions.contains(version) else None
    installed = store.find(wanted)
    return installed.read() if installed is not None else None


def _versions(name: str, store: Store) -> str:
    """Where ``name`` is to be had and in which versions; nothing if it is not."""
    if is_builtin(name):
        return f"built in is {name} {_manifest(read_pack_files(_builtin_folder() / name)).version}"
    versions = ", ".join(str(pack.version) for pack in store.versions(name))
    return f"installed is {name} {versions}" if versions else ""


def _known(store: Store) -> str:
    installed = ", ".join(map(str, store.installed())) or "none"
    return f"built in: {', '.join(builtin_pack_names())}; installed: {installed}"


def _names(store: Store) -> list[str]:
    return [*builtin_pack_names(), *(pack.name for pack in store.installed())]


def _text(files: PackFiles, name: str, limit: int) -> str:
    """The text of one YAML file; InputError if it has more than ``limit`` bytes, or no text."""
    path, data = files.source / name, files.files[name]
    if len(data) > limit:
        raise InputError(f"{path} is larger than {limit // 1024} KiB; split it")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason}") from error


def _builtin_folder() -> Path:
    return Path(str(resources.files("placer.rules"))) / "packs"
