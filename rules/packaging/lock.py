"""``placer.lock``: the rule packs that a project uses, pinned by version and content hash."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, model_validator

from placer.common.files import read_text, write_text
from placer.common.yaml_file import Strict, parse_text
from placer.errors import InputError
from placer.rules.field_types import RuleId
from placer.rules.pack import Pack, PackId

LOCK_NAME = "placer.lock"
_HEAD = "# Written by `placer rules lock`. `placer optimize` refuses packs that differ.\n"


class LockedPack(Strict):
    """One pinned pack."""

    name: RuleId
    version: str
    hash: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class Lock(Strict):
    """The pinned packs, each name once; a pack comes with those that it extends."""

    format: Literal[1] = 1
    packs: list[LockedPack]

    @model_validator(mode="after")
    def _names_once(self) -> Lock:
        names = [pack.name for pack in self.packs]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"pack '{twice[0]}' is given twice")
        return self

    @classmethod
    def of(cls, packs: Sequence[Pack]) -> Lock:
        """Pin ``packs`` and all that they extend.

        Raises InputError if two of them come to different packs of one name.
        """
        pinned: dict[str, PackId] = {}
        for used in (one for pack in packs for one in pack.lineage):
            other = pinned.setdefault(used.name, used)
            if other != used:
                raise InputError(
                    f"cannot lock both {_described(other)} and {_described(used)}; give one of them"
                )
        ordered = [pinned[name] for name in sorted(pinned)]
        return cls(
            packs=[LockedPack(name=p.name, version=p.version, hash=p.content_hash) for p in ordered]
        )

    def save(self, path: Path) -> None:
        """Write the lock file."""
        write_text(path, _HEAD + yaml.safe_dump(self.model_dump(), sort_keys=False))

    def check(self, pack: Pack, path: Path) -> None:
        """Raise InputError unless ``pack`` and all that it extends are pinned as they are."""
        pins = {pin.name: pin for pin in self.packs}
        for used in pack.lineage:
            pin = pins.get(used.name)
            again = f"`placer rules lock` if the change is meant ({path})"
            if pin is None:
                raise InputError(f"rule pack {_described(used)} is not in {path.name}; run {again}")
            if pin.version != used.version:
                raise InputError(
                    f"{path.name} pins rule pack {pin.name} {pin.version}, but {used} is in use; "
                    f"use {pin.name}@{pin.version}, or run {again}"
                )
            if pin.hash != used.content_hash:
                raise InputError(
                    f"{path.name} pins rule pack {used} with other content "
                    f"({_short(pin.hash)}, not {_short(used.content_hash)}); get the pinned one "
                    f"again, or run {again}"
                )


def read_lock(path: Path) -> Lock | None:
    """The lock file at ``path``, None if there is none; InputError if it is not valid."""
    if not path.exists():
        return None
    return parse_text(read_text(path, "a lock file", "rule_bytes"), str(path), Lock)


def check_lock(pack: Pack, folder: Path) -> None:
    """Hold ``pack`` against ``placer.lock`` in ``folder``, if there is one.

    Raises InputError if the lock file is not valid, does not name the pack or pins another one.
    """
    path = folder / LOCK_NAME
    lock = read_lock(path)
    if lock is not None:
        lock.check(pack, path)


def _described(pack: PackId) -> str:
    return f"{pack} ({_short(pack.content_hash)})"


def _short(content_hash: str) -> str:
    return content_hash[: len("sha256:") + 12]
