"""Installed rule packs: a folder per version under the user's data folder.

``STORE/NAME/VERSION/`` holds the files of a pack and is never changed: a version comes whole, by
one rename, and goes whole.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version
from platformdirs import user_data_path

from placer.common.files import remove_if_empty
from placer.errors import InputError
from placer.rules.pack_manifest import PackRequirement
from placer.rules.packaging.files import PackFiles, read_pack_files

_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")


@dataclass(frozen=True)
class Installed:
    """One version of a pack in the store; ``path`` is its folder."""

    name: str
    version: str
    path: Path

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def read(self) -> PackFiles:
        """Its files; raises InputError if they are not those that were installed."""
        files = read_pack_files(self.path)
        if not files.states_hash:
            raise InputError(
                f"installed pack {self} has lost its hash.yaml; uninstall it and install it again"
            )
        return files


@dataclass(frozen=True)
class Store:
    """The installed packs below ``folder``, which need not exist."""

    folder: Path

    @classmethod
    def default(cls) -> Store:
        """The user's, e.g. ``~/.local/share/placer/packs`` on Linux."""
        return cls(user_data_path("placer") / "packs")

    def installed(self) -> tuple[Installed, ...]:
        """All packs, by name and then from the lowest version to the highest."""
        packs = [
            Installed(name.name, path.name, path)
            for name in self._folders(self.folder)
            for path in self._folders(name)
            if _VERSION.fullmatch(path.name)
        ]
        return tuple(sorted(packs, key=lambda pack: (pack.name, Version(pack.version))))

    def versions(self, name: str) -> tuple[Installed, ...]:
        """The installed versions of ``name``, the highest last."""
        return tuple(pack for pack in self.installed() if pack.name == name)

    def find(self, wanted: PackRequirement) -> Installed | None:
        """The highest installed version that will do."""
        fits = [p for p in self.versions(wanted.name) if wanted.versions.contains(p.version)]
        return fits[-1] if fits else None

    def add(self, name: str, version: str, files: PackFiles) -> bool:
        """Install ``files`` as that version; False if they are installed already.

        Raises InputError if other files are installed under that name and version, or the folder
        cannot be written.
        """
        target = self.folder / name / version
        if target.is_dir():
            self._check_same(Installed(name, version, target), files)
            return False
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            files.with_hash().write(target)
        except OSError as error:
            if target.is_dir():  # Another process was faster.
                self._check_same(Installed(name, version, target), files)
                return False
            raise InputError(f"cannot install to {target}: {error.strerror}") from error
        return True

    def remove(self, pack: Installed) -> None:
        """Uninstall ``pack``; raises InputError if its folder cannot be changed."""
        try:
            # Out of sight by one rename: a killed run leaves no half of a pack.
            doomed = Path(tempfile.mkdtemp(prefix=".old-", dir=self.folder))
            pack.path.replace(doomed / pack.version)
        except OSError as error:
            raise InputError(f"cannot uninstall {pack.path}: {error.strerror}") from error
        shutil.rmtree(doomed, ignore_errors=True)
        remove_if_empty(pack.path.parent)

    def _check_same(self, pack: Installed, files: PackFiles) -> None:
        if pack.read().content_hash != files.content_hash:
            raise InputError(
                f"{files.source}: another pack {pack} is installed; raise 'version' in pack.yaml, "
                f"or run `placer rules uninstall {pack.name}@{pack.version}` first"
            )

    @staticmethod
    def _folders(folder: Path) -> list[Path]:
        try:
            return [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise InputError(
                f"cannot read installed packs in {folder}: {error.strerror}"
            ) from error
