"""Damage to SQLite files: rows, types, tables and bytes."""

from __future__ import annotations

import json
import sqlite3
from random import Random
from typing import Any

from tests.fuzz.documents import damaged_bytes, damaged_json

_CELLS: tuple[Any, ...] = (
    None,
    b"\x00\xff",
    "",
    "x" * 5000,
    "nan",
    "Infinity",
    "[]",
    "{}",
    "null",
    '{"a": 1}',
    -1,
    0,
    2**62,
    1e308,
    float("inf"),
    -0.5,
    "\u202e",
    "COMPLETE",
    "2026-13-45 99:00:00",
)


def damaged_database(data: bytes, random: Random) -> tuple[bytes, list[str]]:
    """A SQLite file with some of its content changed; and what was changed."""
    if random.random() < 0.2:
        return _damaged_file(data, random)
    connection = sqlite3.connect(":memory:")
    connection.deserialize(data)
    connection.execute("PRAGMA foreign_keys = OFF")
    classes = []
    for _ in range(random.choice((1, 1, 2, 3))):
        change = random.choice(_CHANGES)
        try:
            change(connection, _some_table(connection, random), random)
        except (
            sqlite3.Error,
            IndexError,
            ValueError,
        ):  # The table is gone or empty, or forbids it.
            continue
        classes.append(change.__name__.strip("_").replace("_", " "))
    connection.commit()
    changed = connection.serialize()
    connection.close()
    return changed, classes or ["unchanged"]


def _damaged_file(data: bytes, random: Random) -> tuple[bytes, list[str]]:
    match random.randrange(5):
        case 0:
            return data[: random.randrange(len(data))], ["cut short"]
        case 1:
            return b"", ["empty"]
        case 2:
            return b"no database at all\n" * 100, ["another file"]
        case 3:
            return data[:100] + bytes(len(data) - 100), ["zeros"]
        case _:
            return damaged_bytes(data, random), ["bytes"]


def _some_table(connection: sqlite3.Connection, random: Random) -> str:
    """Tables with rows are likelier."""
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
    tables = sorted(name for name in names if not name.startswith(("ix_", "sqlite_", "uix_")))
    filled = [t for t in tables if _count(connection, t)]
    return random.choice(filled if filled and random.random() < 0.9 else tables)


def _count(connection: sqlite3.Connection, table: str) -> int:
    try:
        count: int = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
    except sqlite3.Error:
        return 0
    return count


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]


def _some_row(connection: sqlite3.Connection, table: str, random: Random) -> int:
    rows = connection.execute(f'SELECT rowid FROM "{table}"').fetchall()
    row: int = random.choice(rows)[0]
    return row


def _change_cell(connection: sqlite3.Connection, table: str, random: Random) -> None:
    column = random.choice(_columns(connection, table))
    row = _some_row(connection, table, random)
    connection.execute(
        f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (random.choice(_CELLS), row)
    )


def _change_json(connection: sqlite3.Connection, table: str, random: Random) -> None:
    """A value inside of a document that a cell holds."""
    tables = ("trial_user_attributes", "trial_system_attributes", "study_user_attributes")
    table = random.choice(tables)
    row = _some_row(connection, table, random)
    where = f'"{table}" WHERE rowid = {row}'
    (text,) = connection.execute(f"SELECT value_json FROM {where}").fetchone()
    document = json.loads(text)
    if isinstance(document, str) and document[:1] in ("{", "["):  # A document within one.
        text = json.dumps(damaged_json(document, random))
    elif isinstance(document, dict | list):
        text = damaged_json(text, random)
    else:
        text = json.dumps(random.choice((None, [], {}, "x", -1)))
    connection.execute(f'UPDATE "{table}" SET value_json = ? WHERE rowid = {row}', (text,))


def _swap_cells(connection: sqlite3.Connection, table: str, random: Random) -> None:
    one, other = random.sample(_columns(connection, table), 2)
    connection.execute(f'UPDATE "{table}" SET "{one}" = "{other}", "{other}" = "{one}"')


def _delete_rows(connection: sqlite3.Connection, table: str, random: Random) -> None:
    connection.execute(f'DELETE FROM "{table}" WHERE abs(rowid) % ? = 0', (random.choice((1, 2)),))


def _repeat_row(connection: sqlite3.Connection, table: str, random: Random) -> None:
    row = _some_row(connection, table, random)
    first, *others = _columns(connection, table)
    names = ", ".join(f'"{name}"' for name in others)
    connection.execute(
        f'INSERT INTO "{table}" ("{first}", {names}) '
        f'SELECT (SELECT max("{first}") FROM "{table}") + 1, {names} FROM "{table}" '
        f"WHERE rowid = {row}"
    )


def _drop_table(connection: sqlite3.Connection, table: str, random: Random) -> None:
    del random
    connection.execute(f'DROP TABLE "{table}"')


def _drop_column(connection: sqlite3.Connection, table: str, random: Random) -> None:
    column = random.choice(_columns(connection, table))
    connection.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO gone')


_CHANGES = (
    _change_cell,
    _change_cell,
    _change_json,
    _change_json,
    _change_json,
    _swap_cells,
    _delete_rows,
    _repeat_row,
    _drop_table,
    _drop_column,
)
