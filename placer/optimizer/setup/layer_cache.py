"""Layer times that earlier runs measured, kept for other runs and other models.

A SQLite file in the user's cache folder: microseconds by engine and layer signature. Engines are
told apart by name, version, device and base precision, so nothing outlives its truth.
"""

from __future__ import annotations

import logging
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

FILE_NAME = "layer-costs-1.db"
_CREATE = """CREATE TABLE IF NOT EXISTS costs (
    engine TEXT, signature TEXT, microseconds REAL, trials INTEGER,
    PRIMARY KEY (engine, signature))"""
# A running mean over at most so many trials, so that old measurements fade.
_ADD = """INSERT INTO costs VALUES (?, ?, ?, 1) ON CONFLICT (engine, signature) DO UPDATE SET
    microseconds = microseconds + (excluded.microseconds - microseconds) / (min(trials, 20) + 1),
    trials = trials + 1"""
# A damaged row would spoil every mean that it is part of.
_DROP_DAMAGED = """DELETE FROM costs WHERE typeof(signature) != 'text'
    OR typeof(trials) != 'integer' OR trials < 1
    OR typeof(microseconds) != 'real' OR microseconds NOT BETWEEN 0 AND 1e300"""


@dataclass(frozen=True)
class LayerCosts:
    """The times of one ``engine`` in the file at ``path``, which is ignored if it is damaged."""

    path: Path
    engine: str

    def load(self) -> Mapping[str, float]:
        """Microseconds by signature id."""
        rows: list[tuple[object, object]] = []
        with self._open() as connection:  # Ends the block where the file fails.
            if connection is not None:
                query = "SELECT signature, microseconds FROM costs WHERE engine = ?"
                rows = connection.execute(query, (self.engine,)).fetchall()
        costs = {
            signature: time
            for signature, time in rows
            if isinstance(signature, str) and isinstance(time, float) and 0 <= time < math.inf
        }
        if len(costs) < len(rows):
            log.warning(
                "%d layer costs in %s are damaged and not used", len(rows) - len(costs), self.path
            )
        return costs

    def add(self, times: Sequence[tuple[str, float]]) -> None:
        """Keep measured times, signature id and microseconds, and drop damaged rows."""
        rows = [(self.engine, signature, time) for signature, time in times]
        with self._open() as connection:
            if connection is not None:
                connection.execute(_DROP_DAMAGED)
                connection.executemany(_ADD, rows)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection | None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=10)
            connection.execute(_CREATE)
        except (sqlite3.Error, OSError) as error:
            log.warning("layer costs in %s are not used: %s", self.path, error)
            yield None
            return
        try:
            with connection:
                yield connection
        except sqlite3.Error as error:
            log.warning("layer costs in %s cannot be read or kept: %s", self.path, error)
        finally:
            connection.close()
