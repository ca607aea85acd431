"""Put the draft of a rule into a pack of drafts, which extends the pack that lacks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from placer.common.files import write_text
from placer.errors import InputError
from placer.rules.packaging.load import load_pack
from placer.rules.packaging.new import new_pack
from placer.rules.packaging.store import Store


class _Dumper(yaml.SafeDumper):
    """Graphs are written line by line."""

    def ignore_aliases(self, data: Any) -> bool:
        """Nothing is written as a reference to something else."""
        del data
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def rule_yaml(document: dict[str, Any]) -> str:
    """The file of a rule."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)


def write_draft(document: dict[str, Any], folder: Path, extends: str, engine: str) -> Path:
    """Write ``folder/ID.yaml`` and return it; ``folder`` is made as a pack that extends another.

    Raises InputError if the file is there, or the folder and no pack.
    """
    name = f"{document['id']}.yaml"
    path = folder / name
    text = rule_yaml(document)
    if not folder.exists():
        rules = {name: text.encode()}
        new_pack(folder.name, engine, extends, folder.parent, Store.default(), rules)
        return path
    load_pack(str(folder.resolve()))
    if path.exists():
        raise InputError(f"{path} is there already; review it, or choose another folder")
    write_text(path, text)
    return path
