"""Measured noise, kept on disk, so that a probe is never taken twice."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path

from pydantic import FiniteFloat, TypeAdapter, ValidationError

log = logging.getLogger(__name__)

Noises = Mapping[str, float | None]
_LINE = TypeAdapter(tuple[str, dict[str, FiniteFloat | None]])


class NoiseCache:
    """Noise by placement id, of one model, engine, set of ranges and data.

    ``context``: all that noise depends on besides the placement, as JSON values. The file has a
    line for each placement, added once it is measured; lines that are damaged are left out.
    """

    def __init__(self, cache_dir: Path | None, context: object) -> None:
        """``cache_dir``: None keeps nothing on disk."""
        key = hashlib.sha256(json.dumps(context, sort_keys=True).encode()).hexdigest()
        self._path = None if cache_dir is None else cache_dir / f"noise-1-{key}.jsonl"
        self._found: dict[str, Noises] = {}
        if self._path is not None:
            self._read(self._path)

    def get(self, placement: str) -> Noises | None:
        """What is known of ``placement``."""
        return self._found.get(placement)

    def add(self, placement: str, noises: Noises) -> None:
        """Keep what was measured; a disk that cannot be written costs time only."""
        self._found[placement] = noises
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([placement, noises]) + "\n")
        except OSError as error:
            log.warning("what is measured is not kept: cannot write %s: %s", self._path, error)
            self._path = None  # The next one would fail, too.

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_bytes().splitlines() if path.is_file() else []
        except OSError as error:
            log.warning("%s cannot be read: %s", path, error)
            return
        for number, line in enumerate(lines, 1):
            try:
                placement, noises = _LINE.validate_json(line)
            except ValidationError:
                log.warning("%s:%d is damaged and not used", path, number)
                continue
            self._found[placement] = noises
