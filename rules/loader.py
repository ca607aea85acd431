"""Load rule packs: built in, installed, folders and .zip files; errors name file, line and field.

A pack may extend another one. What is loaded is then the effective pack: the rules of the extended
pack, less those that are disabled or replaced, and the pack's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TypeVar

import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, ValidationError

from placer import __version__
from placer.errors import InputError
from placer.rules.pack_files import HASH_FILE, MANIFEST, PackFiles, read_pack_files
from placer.rules.schema import (
    Manifest,
    ManifestFile,
    PackRequirement,
    Rule,
    Versions,
    parse_requirement,
)
from placer.rules.store import Store
from placer.rules.target import ANY_TARGET, Target

M = TypeVar("M", bound=BaseModel)

# A rule is a page of text; anything much larger is a mistake or an attack.
MAX_FILE_BYTES = 256 * 1024
MAX_NESTING = 40
MAX_DEPTH = 8

# YAML's own kinds of values, less those that no rule has: bytes, sets, ordered maps.
_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}"
    for kind in ("null", "bool", "int", "float", "str", "seq", "map", "timestamp")
)


@dataclass(frozen=True)
class PackId:
    """One pack: ``content_hash`` is ``sha256:`` and 64 hex digits over its files."""

    name: str
    version: str
    content_hash: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Pack:
    """A loaded rule pack: its manifest and its effective rules ordered by id.

    ``path``: its folder or archive. ``lineage``: the pack itself, the one it extends, and so on.
    ``origins``: for each rule's id the packs that have such a rule, the one that counts first.
    """

    path: Path
    manifest: Manifest
    rules: tuple[Rule, ...]
    lineage: tuple[PackId, ...]
    origins: Mapping[str, tuple[PackId, ...]]

    @property
    def name_and_version(self) -> str:
        """E.g. ``tensorrt 0.1.0``."""
        return f"{self.manifest.name} {self.manifest.version}"

    @property
    def content_hash(self) -> str:
        """``sha256:`` and 64 hex digits over the pack's own files."""
        return self.lineage[0].content_hash

    @property
    def own_rules(self) -> tuple[Rule, ...]:
        """The rules that the pack does not take over from one it extends."""
        return tuple(rule for rule in self.rules if self.origins[rule.id][0] == self.lineage[0])

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the SHA-256 over the manifest and all effective rules."""
        texts = [part.model_dump_json() for part in (self.manifest, *self.rules)]
        return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]

    def with_scheme(self, name: str, target: Target = ANY_TARGET) -> Pack:
        """The pack with the alternative scheme ``name``.

        Raises InputError for an unknown name and for a target that does not have the formats.
        """
        alternatives = self.manifest.alternatives
        if name not in alternatives:
            known = ", ".join(sorted(alternatives)) or "none"
            raise InputError(
                f"pack '{self.manifest.name}' has no scheme '{name}'; "
                f"beside its own it has: {known}"
            )
        chosen = alternatives[name]
        if not target.meets(chosen.when):
            needs = chosen.when.compute_capability or chosen.when.engine_versions
            raise InputError(
                f"scheme '{name}' needs {needs}; the target has compute capability "
                f"{target.compute_capability}, engine version {target.engine_version}"
            )
        return replace(self, manifest=self.manifest.model_copy(update={"scheme": chosen.scheme}))

    def rule(self, rule_id: str) -> Rule:
        """Return the rule called ``rule_id``; InputError lists the known ones."""
        for rule in self.rules:
            if rule.id == rule_id:
                return rule
        known = ", ".join(rule.id for rule in self.rules)
        raise InputError(f"pack '{self.manifest.name}' has no rule '{rule_id}'; it has: {known}")


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
    settled = Manifest.model_validate(dict(manifest))
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
    text = _text(files, MANIFEST)
    needs = parse_text(text, name, _Needs).placer_versions
    # A development version counts as the release that it leads to.
    if needs is not None and not SpecifierSet(needs).contains(Version(__version__).base_version):
        raise InputError(f"{name}: the pack needs placer {needs}, this is {__version__}")
    return parse_text(text, name, ManifestFile)


def _own_rules(files: PackFiles) -> list[Rule]:
    rules: dict[str, Rule] = {}
    for name in sorted(files.files):
        if not name.endswith(".yaml") or name in (MANIFEST, HASH_FILE):
            continue
        path = files.source / name
        rule = parse_text(_text(files, name), str(path), Rule)
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


def _extended(
    files: PackFiles, manifest: ManifestFile, own: list[Rule], this: PackId, parent: Pack
) -> Pack:
    """The effective pack of ``manifest`` and ``own`` over ``parent``."""
    name = str(files.source / MANIFEST)
    if manifest.engine != parent.manifest.engine:
        raise InputError(
            f"{name}: field 'engine' is {manifest.engine}, but {parent.lineage[0]}, which the pack "
            f"extends, is for {parent.manifest.engine}"
        )
    own_ids = {rule.id for rule in own}
    for rule_id in manifest.disable:
        if rule_id in own_ids:
            raise InputError(f"{name}: disables '{rule_id}' and has {rule_id}.yaml; drop one")
        if rule_id not in parent.origins:
            raise InputError(
                f"{name}: disables '{rule_id}', which {parent.lineage[0]} does not have"
            )
    kept = [r for r in parent.rules if r.id not in own_ids and r.id not in manifest.disable]
    rules = tuple(sorted((*kept, *own), key=lambda rule: rule.id))
    if not rules:
        raise InputError(f"{name}: disables every rule; leave at least one")
    inherited = {rule.id: parent.origins[rule.id] for rule in kept}
    replaced = {rule.id: (this, *parent.origins.get(rule.id, ())) for rule in own}
    return Pack(
        path=files.source,
        manifest=_with_scheme_of(parent.manifest, manifest),
        rules=rules,
        lineage=(this, *parent.lineage),
        origins={**inherited, **replaced},
    )


def _with_scheme_of(parent: Manifest, manifest: ManifestFile) -> Manifest:
    fields = dict(manifest)
    if manifest.scheme is None:
        fields["scheme"] = parent.scheme
        fields["alternatives"] = {**parent.alternatives, **manifest.alternatives}
    return Manifest.model_validate(fields)


def _parent(wanted: PackRequirement, child: PackId, store: Store) -> PackFiles:
    found = _files_by_name(wanted, store)
    if found is None:
        raise InputError(
            f"pack {child} extends {wanted}, which is neither built in nor installed; "
            f"{_known(store)}"
        )
    return found


def _files_of(text: str, store: Store) -> PackFiles:
    path = Path(text)
    try:
        wanted = parse_requirement(text)
    except ValueError as error:
        if "@" in text and not path.exists():
            raise InputError(f"rule pack '{text}': {error}") from error
    else:
        found = _files_by_name(wanted, store)
        if found is not None and not is_builtin(text) and (path / MANIFEST).is_file():
            raise InputError(
                f"rule pack '{text}' is installed and a folder here; write ./{text} for the "
                f"folder or {text}@{store.versions(text)[-1].version} for the installed one"
            )
        if found is not None:
            return found
    if path.is_dir() or (path.is_file() and path.suffix == ".zip"):
        return read_pack_files(path)
    raise InputError(
        f"rule pack '{text}' is neither a folder nor built in nor installed nor a .zip file; "
        f"{_known(store)}"
    )


def _files_by_name(wanted: PackRequirement, store: Store) -> PackFiles | None:
    """The files of the built-in or of the highest installed version that will do."""
    if is_builtin(wanted.name):
        files = read_pack_files(_builtin_folder() / wanted.name)
        version = _manifest(files).version if str(wanted.versions) else None
        return files if version is None or wanted.versions.contains(version) else None
    installed = store.find(wanted)
    return installed.read() if installed is not None else None


def _known(store: Store) -> str:
    installed = ", ".join(map(str, store.installed())) or "none"
    return f"built in: {', '.join(builtin_pack_names())}; installed: {installed}"


def _text(files: PackFiles, name: str) -> str:
    """The text of one YAML file; raises InputError if it is too large or no text."""
    path, data = files.source / name, files.files[name]
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"{path} is larger than {MAX_FILE_BYTES // 1024} KiB; split it")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason}") from error


def parse_file(path: Path, folder: Path, model: type[M]) -> M:
    """Read one YAML file of a pack into ``model``; the file must lie inside ``folder``."""
    if not path.exists():
        raise InputError(f"{path} does not exist; a rule pack needs it")
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{path} points outside its rule pack; replace the link by a file")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise InputError(f"{path} is larger than {MAX_FILE_BYTES // 1024} KiB; split it")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason}") from error
    return parse_text(text, str(path), model)


def parse_text(text: str, name: str, model: type[M]) -> M:
    """Parse YAML ``text`` into ``model``; ``name`` stands for the file in messages."""
    tree, data = _read_yaml(text, name)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = [part for part in first["loc"] if part != "function-after"]
        field = ".".join(str(part) for part in location) or "document"
        message = first["msg"].removeprefix("Value error, ")
        line = _line_of(tree, location)
        raise InputError(f"{name}:{line}: field '{field}': {message}") from error


def _read_yaml(text: str, name: str) -> tuple[yaml.Node, object]:
    """Return the node tree (for line numbers) and the plain data of one YAML document."""
    try:
        # Aliases can blow up exponentially and a rule has no use for them.
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.AliasToken):
                line = token.start_mark.line + 1
                raise InputError(f"{name}:{line}: YAML aliases are not allowed; repeat the value")
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(tree, yaml.MappingNode):
            raise InputError(f"{name}:1: expected a mapping of fields")
        _refuse_tags(tree, name)
        _refuse_odd_keys(tree, name)
        return tree, yaml.SafeLoader("").construct_document(tree)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{name}:{line}: not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise InputError(f"{name}: not valid YAML: {error}") from error
    except RecursionError as error:
        raise InputError(f"{name}: nested too deeply; a rule needs few levels") from error


def _refuse_tags(tree: yaml.Node, name: str) -> None:
    for node in _walk(tree):
        if node.tag not in _TAGS:
            line = node.start_mark.line + 1
            raise InputError(f"{name}:{line}: YAML tag '{node.tag}' is not allowed; remove it")


def _refuse_odd_keys(tree: yaml.Node, name: str) -> None:
    for node in _walk(tree):
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, _ in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    raise InputError(f"{name}:{line}: a field name must be plain text")
                if key.value in seen:
                    raise InputError(f"{name}:{line}: field '{key.value}' is given twice")
                seen.add(key.value)


def _walk(node: yaml.Node, depth: int = 0) -> Iterator[yaml.Node]:
    if depth > MAX_NESTING:
        raise RecursionError
    yield node
    if isinstance(node, yaml.MappingNode):
        children = [child for pair in node.value for child in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = list(node.value)
    else:
        children = []
    for child in children:
        yield from _walk(child, depth + 1)


def _line_of(tree: yaml.Node, location: list[int | str]) -> int:
    """Line of the deepest node on the way to ``location``; 1-based."""
    node = tree
    for part in location:
        found: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            found = next((v for k, v in node.value if k.value == str(part)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            found = node.value[part] if part < len(node.value) else None
        if found is None:
            break
        node = found
    return int(node.start_mark.line) + 1


def _builtin_folder() -> Path:
    return Path(str(resources.files("placer.rules"))) / "packs"
