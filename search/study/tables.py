"""SQLite files with Optuna's tables: made whole, and looked at before they are used."""

from __future__ import annotations

import logging
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from optuna.storages import RDBStorage
from optuna.storages._rdb.models import BaseModel
from sqlalchemy import URL, create_engine, inspect
from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError

from placer.common.files import temporary_beside

log = logging.getLogger(__name__)

# Processes that create the tables of one empty database at once get in each other's way so often.
OPEN_ATTEMPTS = 5
# How long a process waits for others that are writing to the same SQLite file.
SQLITE_TIMEOUT_S = 60


def engine_arguments(url: URL) -> dict[str, Any]:
    """What SQLAlchemy's ``create_engine`` is given for the database at ``url``."""
    if url.get_backend_name() == "sqlite":
        return {"connect_args": {"timeout": SQLITE_TIMEOUT_S}}
    return {"pool_pre_ping": True}


def make_file(url: URL) -> bool:
    """Make a SQLite file that is not there, with Optuna's tables in it, all of it or nothing.

    A process that is killed while Optuna makes tables would leave a file that looks damaged.
    Returns whether the file is this process's own, which needs no second look.
    """
    path = Path(url.database or "")
    is_new_file = url.get_backend_name() == "sqlite" and not path.exists() and path.parent.is_dir()
    if not is_new_file or path.name.startswith((":", "file:")) or not path.name:
        return False
    temporary = temporary_beside(path)
    try:
        temporary.write_bytes(_empty_database())
        path.hardlink_to(temporary)
        return True
    except FileExistsError:  # Another process has made it meanwhile, and a link replaces none.
        return False
    except (OSError, SQLAlchemyError):  # E.g. a file system without links: Optuna makes it itself.
        log.debug("%s is made in place", path)
        return False
    finally:
        temporary.unlink(missing_ok=True)


@cache
def _empty_database() -> bytes:
    """A SQLite file with Optuna's tables, for which Optuna runs all of its migrations' modules.

    Raises OSError or SQLAlchemyError if there is no room for it in the folder of temporary files.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        address = template(URL.create("sqlite", database=str(path)))
        storage = RDBStorage(address, skip_compatibility_check=True)
        storage.remove_session()
        storage.engine.dispose()
        return path.read_bytes()


def check_tables(url: URL) -> None:
    """Raise ValueError for a SQLite file without some of the tables or columns that Optuna makes.

    Optuna would add what is missing, and fail later. Asked several times, for another process may
    be making them at this moment.
    """
    if url.get_backend_name() != "sqlite" or not Path(url.database or "").is_file():
        return
    for attempt in range(1, OPEN_ATTEMPTS + 1):
        engine = create_engine(url, **engine_arguments(url))
        present = _columns(engine)
        missing = sorted(_expected() - present) if present else []
        if not missing:
            _check_versions(engine)
            return
        time.sleep(0.1 * attempt)
    table, column = missing[0]
    raise ValueError(f"it is damaged: column '{column}' of table '{table}' is missing")


def _expected() -> set[tuple[str, str]]:
    """Every table and column that Optuna makes, with those of Alembic, which it has versions by."""
    tables = BaseModel.metadata.tables.values()
    columns = {(table.name, column.name) for table in tables for column in table.columns}
    return columns | {("alembic_version", "version_num")}


def _check_versions(engine: Engine) -> None:
    """Raise ValueError if the database does not say which version of Optuna's tables it has."""
    with engine.connect() as connection:
        for table in ("version_info", "alembic_version") if _columns(engine) else ():
            if not connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar():
                raise ValueError(f"it is damaged: table '{table}' is empty")
    engine.dispose()


def _columns(engine: Engine) -> set[tuple[str, str]]:
    """Every table and column of a database."""
    try:
        inspector = inspect(engine)
        return {
            (table, column["name"])
            for table in inspector.get_table_names()
            for column in inspector.get_columns(table)
        }
    finally:
        engine.dispose()


def template(url: URL) -> str:
    """``url`` for Optuna, which fills in templates in braces."""
    return url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
