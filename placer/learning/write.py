"""Put the draft of a rule into a pack of drafts, which extends the pack that lacks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from placer.common.files import write_text
from placer.errors import InputError
from placer.rules.pack import Pack
from placer.rules.pack_manifest import parse_requirement
from placer.rules.packaging.load import load_pack
from placer.rules.packaging.new import check_name, new_pack
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


def drafts_or_pack(folder: Path, pack: str) -> Pack:
    """What to learn with: the drafts in ``folder``, which extend ``pack``, or ``pack`` alone.

    Raises InputError, before anything is built, where drafts could not be written there.
    """
    if not folder.exists():
        try:
            parse_requirement(pack)
        except ValueError as error:
            raise InputError(
                f"drafts extend a pack by its name, not by a path as {pack}: install it with "
                "placer rules install, or write the drafts into it as `output`"
            ) from error
        check_name(folder.name)
        if not folder.absolute().parent.is_dir():
            raise InputError(f"output {folder}: {folder.parent} is not a folder; make it first")
        return load_pack(pack)
    drafts = load_pack(str(folder.resolve()))
    parent, wanted = drafts.lineage[1:2], load_pack(pack).manifest.name
    if parent and wanted not in (parent[0].name, drafts.manifest.name):
        raise InputError(
            f"the drafts in {folder} extend pack {parent[0].name}, not {wanted}; give that as "
            "`pack`, or another folder as `output`"
        )
    return drafts


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
