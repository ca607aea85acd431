"""What differs between two rule packs, rule by rule and field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from placer.common.yaml_file import Strict
from placer.rules.pack import Pack

_SHOWN = 60


@dataclass(frozen=True)
class FieldChange:
    """A field by its dotted path; ``before`` or ``after`` is None where it is absent."""

    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.field}: {_short(self.before)} -> {_short(self.after)}"


@dataclass(frozen=True)
class PackDiff:
    """From one pack to another: effective rules by id, and fields of the manifest."""

    manifest: tuple[FieldChange, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: dict[str, tuple[FieldChange, ...]]

    def lines(self) -> Iterator[str]:
        """A line per difference; none if there is none."""
        for change in self.manifest:
            yield f"pack.yaml  {change}"
        for rule_id in self.removed:
            yield f"removed    {rule_id}"
        for rule_id in self.added:
            yield f"added      {rule_id}"
        for rule_id, changes in self.changed.items():
            for change in changes:
                yield f"changed    {rule_id}  {change}"


def diff_packs(before: Pack, after: Pack) -> PackDiff:
    """Compare the manifests and the effective rules of two packs."""
    old = {rule.id: rule for rule in before.rules}
    new = {rule.id: rule for rule in after.rules}
    both = [rule_id for rule_id in old if rule_id in new and old[rule_id] != new[rule_id]]
    return PackDiff(
        manifest=_changes(before.manifest, after.manifest),
        added=tuple(rule_id for rule_id in new if rule_id not in old),
        removed=tuple(rule_id for rule_id in old if rule_id not in new),
        changed={rule_id: _changes(old[rule_id], new[rule_id]) for rule_id in both},
    )


def _changes(before: Strict, after: Strict) -> tuple[FieldChange, ...]:
    # In JSON's types, so that the order of fields and tuples against lists make no difference.
    old, new = (part.model_dump(mode="json", exclude_defaults=True) for part in (before, after))
    return tuple(_between(old, new, ""))


def _between(before: Any, after: Any, path: str) -> Iterator[FieldChange]:
    if before == after and type(before) is type(after):
        return
    if not (isinstance(before, dict) and isinstance(after, dict)):
        yield FieldChange(path, before, after)
        return
    for key in dict.fromkeys((*before, *after)):
        yield from _between(before.get(key), after.get(key), f"{path}.{key}" if path else key)


def _short(value: Any) -> str:
    if value is None:
        return "absent"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
