"""Read rule packs from disk; every error names file, line and field."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from placer.errors import InputError
from placer.rules.schema import Manifest, Rule
from placer.rules.target import ANY_TARGET, Target

M = TypeVar("M", bound=BaseModel)

# A rule is a page of text; anything much larger is a mistake or an attack.
MAX_FILE_BYTES = 256 * 1024


@dataclass(frozen=True)
class Pack:
    """A loaded rule pack: its manifest and its rules ordered by id."""

    path: Path
    manifest: Manifest
    rules: tuple[Rule, ...]

    @property
    def name_and_version(self) -> str:
        """E.g. ``tensorrt 0.1.0``."""
        return f"{self.manifest.name} {self.manifest.version}"

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the SHA-256 over the manifest and all rules."""
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


def load_pack(name_or_path: str | Path) -> Pack:
    """Load a built-in pack by name or any pack by its folder.

    Raises InputError for an unknown name and for any file that is not a valid manifest or rule.
    """
    folder = _builtin_folder() / str(name_or_path)
    if str(name_or_path) not in builtin_pack_names():
        folder = Path(name_or_path)
        if not folder.is_dir():
            known = ", ".join(builtin_pack_names())
            raise InputError(
                f"rule pack '{name_or_path}' is neither a folder nor built in; built in: {known}"
            )
    manifest = parse_file(folder / "pack.yaml", folder, Manifest)
    paths = sorted(p for p in folder.glob("*.yaml") if p.name != "pack.yaml")
    rules = [parse_file(path, folder, Rule) for path in paths]
    for path, rule in zip(paths, rules, strict=True):
        if rule.id != path.stem:
            raise InputError(
                f"{path}: field 'id' is '{rule.id}'; rename the file to {rule.id}.yaml"
            )
    if not rules:
        raise InputError(f"rule pack {folder} has no rules; add a rule file beside pack.yaml")
    return Pack(folder, manifest, tuple(rules))


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
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{name}: not valid YAML: {error}") from error
    except RecursionError as error:
        raise InputError(f"{name}: nested too deeply; a rule needs few levels") from error


def _refuse_tags(tree: yaml.Node, name: str) -> None:
    for node in _walk(tree):
        if not node.tag.startswith("tag:yaml.org,2002:") or "python" in node.tag:
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


def _walk(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        children = [child for pair in node.value for child in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = list(node.value)
    else:
        children = []
    return [node, *(found for child in children for found in _walk(child))]


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
